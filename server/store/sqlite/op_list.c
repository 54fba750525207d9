/* LIST: newest first, from a cursor.  First which rows, one after the other until there are enough or enough were looked at;
 * then these one by one, so that no wide row is read beyond the bytes asked for.  Where to look first depends on what is asked
 * for: few running, pending or failed tasks among millions of others are found through their own tables, those of a queue or
 * a name through its index. */
#include <stdlib.h>
#include <string.h>

#include "server/store/labels.h"
#include "server/store/sqlite/sq.h"

#define ROW_COST 200

#define LOOK                                                                                                            \
	"SELECT t.seq, t.id, t.queue, t.name, t.owner, t.created_us, CASE WHEN e.seq IS NOT NULL THEN e.state WHEN r.task_id IS NOT NULL " \
	"THEN 2 ELSE 1 END, coalesce(r.worker, e.worker), t.labels FROM "
#define PLACES " LEFT JOIN ended e ON e.seq = t.seq LEFT JOIN running r ON r.task_id = t.id WHERE t.id < ?1 AND t.id >= ?2 "
#define NEWEST "ORDER BY t.id DESC LIMIT ?3"
enum { SEQ, ID, QUEUE, NAME, OWNER, CREATED, STATE, WORKER, LABELS };

static const char any_sql[] = LOOK "task t" PLACES NEWEST;
static const char queue_sql[] = LOOK "task t" PLACES "AND t.queue = ?4 " NEWEST;
static const char name_sql[] = LOOK "task t" PLACES "AND t.name = ?4 AND t.name IS NOT NULL " NEWEST;
static const char one_sql[] = LOOK "task t" PLACES "AND t.id = ?4 " NEWEST;
/* ?4: states; ?5: queue or null. All but the completed ones. */
#define PART(id, from, where)                                                                                       \
	"SELECT * FROM (SELECT " id " AS id FROM " from " WHERE " where " AND " id " < ?1 AND " id " >= ?2 ORDER BY " id " DESC LIMIT ?3)"
static const char parts_sql[] =
	LOOK "(" PART("task_id", "running", "?4 & 4") " UNION ALL " PART("task_id", "ended", "state <> 3 AND ?4 & 48") " UNION ALL "
	PART("task_id", "delayed", "?4 & 2") " UNION ALL " PART("task_id", "ready", "?4 & 2 AND ?5 IS NULL") " UNION ALL "
	PART("task_id", "ready", "?4 & 2 AND queue = ?5") " ORDER BY id DESC LIMIT ?3) u CROSS JOIN task t ON t.id = u.id" PLACES NEWEST;
static const char ready_sql[] =
	"SELECT count(*) FROM (SELECT 1 FROM ready WHERE ?1 IS NULL LIMIT " NUMBER_TEXT(STORE_LIST_READY_MAX) " + 1)";
static const char ready_of_sql[] =
	"SELECT count(*) FROM (SELECT 1 FROM ready WHERE queue = ?1 LIMIT " NUMBER_TEXT(STORE_LIST_READY_MAX) " + 1)";

static uint32_t bit(enum store_state s) { return UINT32_C(1) << s; }

static bool few_ready(struct sq_db *db, const struct store_list *o)
{
	if (!(o->states & bit(STORE_PENDING)))
		return true;
	sqlite3_stmt *q = sq_begin(db, o->queue ? ready_of_sql : ready_sql);
	sq_bind_text(db, o->queue);
	int64_t n = sq_row(db, q) ? sq_int(q, 0) : 0;
	sq_end(q);
	return n <= STORE_LIST_READY_MAX;
}

static const char *way(struct sq_db *db, const struct store_list *o)
{
	uint32_t ends = bit(STORE_COMPLETED) | bit(STORE_FAILED) | bit(STORE_CANCELLED);
	bool parts = o->states && !(o->states & bit(STORE_COMPLETED)) && (!o->name || !(o->states & ends));
	if (parts && few_ready(db, o))
		return parts_sql;
	return o->name ? name_sql : o->queue ? queue_sql : any_sql;
}

static bool same(sqlite3_stmt *q, int col, const char *wanted)
{
	return !wanted || (!sq_is_null(q, col) && strcmp(sq_text(q, col), wanted) == 0);
}

static bool matches(const struct store_list *o, sqlite3_stmt *q)
{
	int64_t created = sq_int(q, CREATED);
	if (o->states && !(o->states >> sq_int(q, STATE) & 1))
		return false;
	if (!same(q, QUEUE, o->queue) || !same(q, NAME, o->name) || !same(q, OWNER, o->owner) || !same(q, WORKER, o->worker))
		return false;
	if (o->name_prefix && strncmp(sq_text(q, NAME), o->name_prefix, strlen(o->name_prefix)) != 0)
		return false;
	if ((o->created_from_us && created < o->created_from_us) || (o->created_before_us && created >= o->created_before_us))
		return false;
	if (!o->labels || !o->labels->n_wants)
		return true;
	const void *labels = sqlite3_column_blob(q, LABELS);
	return label_selector_matches(o->labels, labels, (size_t)sqlite3_column_bytes(q, LABELS));
}

struct search {
	struct sq_db *db;
	struct store_list *o;
	struct uuid from, below;
	int64_t scan, seen;
	int64_t *seqs; /* limit + 1 */
	struct uuid *ids;
	size_t n;
	struct uuid last; /* looked at */
};

static void begin(struct search *s, const char *sql)
{
	sq_bind_uuid(s->db, &s->below);
	sq_bind_uuid(s->db, &s->from);
	sq_bind_int(s->db, s->scan);
	if (sql == parts_sql) {
		sq_bind_int(s->db, s->o->states & 0xff);
		sq_bind_text(s->db, s->o->queue);
	} else if (sql != any_sql) {
		sq_bind_text(s->db, sql == name_sql ? s->o->name : s->o->queue);
	}
}

/* True: enough. */
static bool look(struct search *s, sqlite3_stmt *q)
{
	s->seen++;
	sq_uuid(q, ID, &s->last);
	if (!matches(s->o, q))
		return false;
	s->seqs[s->n] = sq_int(q, SEQ);
	s->ids[s->n++] = s->last;
	return s->n == (size_t)s->o->limit + 1;
}

static void find(struct search *s)
{
	const char *sql = way(s->db, s->o);
	sqlite3_stmt *q = sq_begin(s->db, sql);
	begin(s, sql);
	while (sq_row(s->db, q))
		if (look(s, q)) {
			sq_end(q);
			return;
		}
}

static int newest_first(const void *a, const void *b) { return uuid_cmp(b, a); }

static void find_ids(struct search *s)
{
	_cleanup_free_ struct uuid *ids = calloc(s->o->n_ids + 1, sizeof(*ids));
	if (!ids) {
		sq_db_no_memory(s->db);
		return;
	}
	memcpy(ids, s->o->ids, s->o->n_ids * sizeof(*ids));
	qsort(ids, s->o->n_ids, sizeof(*ids), newest_first);
	for (size_t i = 0; i < s->o->n_ids; i++) {
		sqlite3_stmt *q = sq_begin(s->db, one_sql);
		begin(s, any_sql);
		sq_bind_uuid(s->db, &ids[i]);
		bool enough = sq_row(s->db, q) && look(s, q);
		sq_end(q);
		if (enough || s->seen == s->scan)
			return;
	}
}

static size_t size_of(const struct store_task *t)
{
	size_t n = ROW_COST + (t->spec ? t->spec->len : 0) + t->result.len + t->error.len;
	for (size_t i = 0; i < t->n_attempts; i++)
		n += ROW_COST + t->attempts[i].error.len;
	return n;
}

static void read_rows(struct search *s)
{
	struct store_list *o = s->o;
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	int64_t left = o->max_bytes > 0 ? o->max_bytes : INT64_MAX;
	size_t most = min_sz(s->n, (size_t)o->limit);
	o->ret_tasks = most ? sq_mem(s->db, mem, most * sizeof(*o->ret_tasks)) : NULL;
	while (o->ret_tasks && o->ret_n < most && left > 0) {
		struct store_task *t = &o->ret_tasks[o->ret_n];
		if (!sq_view_read(s->db, s->seqs[o->ret_n], o->full, o->bare, t, mem))
			break;
		o->ret_n++;
		left -= (int64_t)size_of(t);
	}
	o->ret_more = o->ret_n < s->n || s->seen == s->scan;
	o->ret_last = o->ret_n && o->ret_n < s->n ? s->ids[o->ret_n - 1] : s->last;
}

void sq_list_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_list *o = container_of(op, struct store_list, op);
	struct search s = { .db = &x->db, .o = o, .scan = o->scan > 0 ? o->scan : INT64_MAX };
	o->ret_n = 0;
	if (o->limit < 0)
		o->limit = 0;
	store_list_range(o, &s.from, &s.below);
	s.seqs = calloc((size_t)o->limit + 1, sizeof(*s.seqs));
	s.ids = calloc((size_t)o->limit + 1, sizeof(*s.ids));
	if (!s.seqs || !s.ids)
		sq_db_no_memory(&x->db);
	else if (o->ids)
		find_ids(&s);
	else
		find(&s);
	if (!x->db.rc)
		read_rows(&s);
	free(s.seqs);
	free(s.ids);
}
