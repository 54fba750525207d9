/* Labels of tasks that were accepted before schema version 5, out of their specs: some at a time, the newest first.  While meta
 * has `unlabelled_below` those with smaller numbers were not looked at. */
#include <errno.h>

#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "reins/v1/task.pb-c.h"
#include "server/store/labels.h"
#include "server/store/sqlite/sq.h"

static const char place_sql[] = "SELECT value FROM meta WHERE key = 'unlabelled_below'";
static const char go_on_sql[] = "UPDATE meta SET value = ? WHERE key = 'unlabelled_below'";
static const char end_sql[] = "DELETE FROM meta WHERE key = 'unlabelled_below'";
/* What lists show has the labels, and no payload. */
static const char next_sql[] =
	"SELECT seq, CASE WHEN labels IS NULL THEN coalesce(list_spec, spec) END FROM task WHERE seq < ? ORDER BY seq DESC LIMIT 1";
static const char set_sql[] = "UPDATE task SET labels = ? WHERE seq = ?";

/* None of what is no TaskSpec, or has more than could be accepted. */
static int labels_of(const void *spec, size_t len, struct buf *b)
{
	struct refusal r;
	if (pb_check(&reins__v1__task_spec__descriptor, spec, len, NULL, &r))
		return -EINVAL;
	Reins__V1__TaskSpec *s = pb_unpack(&reins__v1__task_spec__descriptor, spec, len, NULL, &r);
	int rc = s ? 0 : -ENOMEM;
	for (size_t i = 0; rc == 0 && i < s->n_labels; i++)
		rc = labels_add(b, s->labels[i]->key, s->labels[i]->value);
	pb_free(s);
	if (rc == 0)
		rc = labels_end(b);
	if (rc)
		buf_clear(b);
	return rc;
}

/* The next one below; false: there is none. */
static bool label_next(struct sq_db *db, int64_t *below, struct buf *b)
{
	sqlite3_stmt *q = sq_begin(db, next_sql);
	sq_bind_int(db, *below);
	if (!sq_row(db, q))
		return false;
	*below = sq_int(q, 0);
	buf_clear(b);
	int rc = sq_is_null(q, 1) ? 0 : labels_of(sqlite3_column_blob(q, 1), (size_t)sqlite3_column_bytes(q, 1), b);
	sq_end(q);
	if (rc == -ENOMEM)
		sq_db_no_memory(db);
	if (rc == 0 && buf_len(b)) {
		q = sq_begin(db, set_sql);
		sq_bind_bytes(db, buf_head(b), buf_len(b));
		sq_bind_int(db, *below);
		sq_run(db, q);
	}
	return !db->rc;
}

void sq_label_some(struct sq_db *db, int64_t most, int64_t within_ns)
{
	sqlite3_stmt *q = sq_begin(db, place_sql);
	if (!sq_row(db, q))
		return;
	int64_t below = sq_int(q, 0), ends_mono_ns = clock_mono_ns() + within_ns, n = 0;
	sq_end(q);
	struct buf b;
	buf_init(&b, LABELS_BYTES_MAX);
	bool more = true;
	while (more && n++ < most && clock_mono_ns() <= ends_mono_ns)
		more = label_next(db, &below, &b);
	buf_done(&b);
	q = sq_begin(db, more ? go_on_sql : end_sql);
	if (more)
		sq_bind_int(db, below);
	sq_run(db, q);
}
