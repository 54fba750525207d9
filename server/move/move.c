/* The order of things: both sides opened and looked at, the mark, partitions, table by table in batches, each table
 * read back and compared, the mark away, the source marked. */
#include "server/move/move.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "server/move/move_impl.h"

#define BATCH_ROWS 5000
#define BATCH_BYTES ((size_t)16 << 20)
#define WEEKS_MAX 520 /* of partitions; what is in more goes to the default ones */
#define WEEK_MS (INT64_C(7) * 86400 * 1000)
#define MONDAY_MS (INT64_C(4) * 86400 * 1000) /* the first one; 1970 began on a Thursday */

struct move {
	struct move_source from;
	struct move_target to;
	struct move_error error;
	struct move_digest read[MOVE_TABLES], stored[MOVE_TABLES];
	struct buf tuple;
	int64_t began_mono_ns, told_mono_ns;
};

int move_fail(struct move_error *e, int code, const char *fmt, ...)
{
	va_list args;
	e->code = code;
	va_start(args, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, args);
	va_end(args);
	return -1;
}

/* ---- which stores ---- */

static const char *after(const char *url, const char *scheme)
{
	size_t n = strlen(scheme);
	return strncmp(url, scheme, n) == 0 ? url + n : NULL;
}

static bool is_postgres(const char *url) { return after(url, "postgres://") || after(url, "postgresql://"); }

static int check_urls(const char *from, const char *to, struct move_error *e)
{
	const char *path = after(from, "sqlite:");
	if (!path && !is_postgres(from))
		return move_fail(e, MOVE_REFUSED, "move-from: no such kind of store; sqlite:PATH is wanted");
	if (strcmp(from, to) == 0)
		return move_fail(e, MOVE_REFUSED,
				 "move-from: that is the --store itself; say where the tasks go: --store postgres://USER@HOST:PORT/DATABASE");
	if (!path)
		return move_fail(e, MOVE_REFUSED, "move-from: tasks can be moved out of sqlite:PATH only");
	if (!*path)
		return move_fail(e, MOVE_REFUSED, "move-from: sqlite: needs a path: sqlite:reins.db");
	if (!is_postgres(to))
		return move_fail(e, MOVE_REFUSED, "store: tasks can be moved into postgres://USER@HOST:PORT/DATABASE only");
	return 0;
}

/* ---- steps ---- */

/* The partitions of every week that has tasks, so that they can be dropped by week later. */
static int make_weeks(struct move *m)
{
	struct uuid from = {{0}}, id;
	int found = 0;
	for (int i = 0; i < WEEKS_MAX; i++) {
		found = move_source_next_id(&m->from, &from, &id, &m->error);
		if (found <= 0)
			break;
		int64_t ms = uuid7_wall_us(&id) / 1000, next = MONDAY_MS;
		if (ms >= MONDAY_MS) {
			if (move_target_week(&m->to, ms, &m->error) < 0)
				return -1;
			next = ms - (ms - MONDAY_MS) % WEEK_MS + WEEK_MS;
		}
		if (next >> 48)
			break;
		memset(&from, 0, sizeof(from));
		for (int b = 0; b < 6; b++)
			from.b[b] = (uint8_t)(next >> (8 * (5 - b)));
	}
	return found < 0 ? -1 : 0;
}

static void progress(struct move *m, const char *doing, const struct move_table *t, int64_t done, int64_t all)
{
	int64_t now = clock_mono_ns();
	if (now - m->told_mono_ns < NS_PER_S)
		return;
	m->told_mono_ns = now;
	printf("%6.1f s  %s %-11s %lld of %lld\n", (double)(now - m->began_mono_ns) / 1e9, doing, t->name, (long long)done,
	       (long long)all);
}

/* One transaction.  1: there is more; 0: that was the last. */
static int copy_batch(struct move *m, const struct move_table *t, struct move_digest *d, int64_t *copied)
{
	int more = move_source_row(&m->from, &m->tuple, &m->error);
	if (more <= 0)
		return more;
	if (move_target_batch(&m->to, t, &m->error) < 0)
		return -1;
	size_t bytes = 0;
	int rows = 0;
	while (more > 0) {
		if (move_target_row(&m->to, buf_head(&m->tuple), buf_len(&m->tuple), &m->error) < 0)
			return -1;
		move_digest_add(d, buf_head(&m->tuple), buf_len(&m->tuple));
		bytes += buf_len(&m->tuple);
		if (++rows == BATCH_ROWS || bytes >= BATCH_BYTES)
			break;
		more = move_source_row(&m->from, &m->tuple, &m->error);
	}
	if (more < 0)
		return -1;
	*copied += rows;
	return move_target_commit(&m->to, t, *copied, &m->error) < 0 ? -1 : more;
}

static int read_all(struct move *m, const struct move_table *t, int64_t all, struct move_digest *d)
{
	*d = (struct move_digest){0};
	if (move_source_begin(&m->from, t, 0, &m->error) < 0)
		return -1;
	int rc;
	while ((rc = move_source_row(&m->from, &m->tuple, &m->error)) > 0) {
		move_digest_add(d, buf_head(&m->tuple), buf_len(&m->tuple));
		progress(m, "reading again", t, d->rows, all);
	}
	move_source_end(&m->from);
	return rc;
}

static int copy_table(struct move *m, const struct move_table *t, struct move_digest *d)
{
	int64_t all, copied, before;
	if (move_source_count(&m->from, t, &all, &m->error) < 0 || move_target_copied(&m->to, t, &copied, &m->error) < 0 ||
	    move_source_begin(&m->from, t, copied, &m->error) < 0)
		return -1;
	before = copied;
	int rc;
	while ((rc = copy_batch(m, t, d, &copied)) > 0)
		progress(m, "copying", t, copied, all);
	move_source_end(&m->from);
	if (rc < 0)
		return -1;
	/* What an earlier run has copied was not hashed in this one. */
	return before ? read_all(m, t, all, d) : 0;
}

static int compare(struct move *m)
{
	for (size_t i = 0; i < MOVE_TABLES; i++) {
		const struct move_table *t = &move_tables[i];
		if (move_target_digest(&m->to, t, &m->stored[i], &m->error) < 0)
			return -1;
		progress(m, "compared", t, m->stored[i].rows, m->read[i].rows);
		m->error.stays = !move_digest_same(&m->read[i], &m->stored[i]);
		if (m->error.stays)
			return move_fail(&m->error, MOVE_UNAVAILABLE,
					 "%s: the rows of %s differ from the source's (%lld of %lld): something else has changed one of them; "
					 "the source is whole: drop the schema reins there and move again",
					 m->to.name, t->name, (long long)m->stored[i].rows, (long long)m->read[i].rows);
	}
	return 0;
}

static void show(const struct move *m)
{
	printf("\n%-12s %10s %10s  %s\n", "table", "source", "target", "digest of both");
	for (size_t i = 0; i < MOVE_TABLES; i++)
		printf("%-12s %10lld %10lld  %016llx%016llx\n", move_tables[i].name, (long long)m->read[i].rows,
		       (long long)m->stored[i].rows, (unsigned long long)m->read[i].sum[0], (unsigned long long)m->read[i].sum[1]);
	printf("\nmoved in %.1f s, store id %s.\nStart reinsd with that --store now; its workers come back by themselves.\n"
	       "%s has all that it had, and a mark: no master starts on it any more. Put it away.\n",
	       (double)(clock_mono_ns() - m->began_mono_ns) / 1e9, m->from.files.store_id, m->from.name);
}

/* Should this fail, or be interrupted, the same command does it: it finds all moved. */
static int mark_source(struct move *m)
{
	if (move_source_mark(&m->from, m->to.name, &m->error) == 0)
		return 0;
	fprintf(stderr, "reinsd: move: all is moved, but the source could not be marked: %s\n"
		"reinsd: move: put %s away yourself: a master that starts on it would run everything again\n", m->error.text,
		m->from.name);
	return 0;
}

static int move(struct move *m, const char *from, const char *to)
{
	enum move_begun begun;
	if (check_urls(from, to, &m->error) < 0 || move_source_open(&m->from, after(from, "sqlite:"), &m->error) < 0 ||
	    move_target_open(&m->to, to, &m->error) < 0 || move_target_begin(&m->to, &m->from, &begun, &m->error) < 0)
		return -1;
	if (begun == MOVE_DONE_BEFORE) {
		printf("%s was moved into %s before: nothing is left to do\n", m->from.name, m->to.name);
		return mark_source(m);
	}
	printf("moving %s into %s%s\n", m->from.name, m->to.name,
	       begun == MOVE_GOES_ON ? ": going on where an earlier run ended"
	       : begun == MOVE_ANEW  ? ": from the start again, a master has used the source meanwhile"
				     : "");
	if (make_weeks(m) < 0)
		return -1;
	for (size_t i = 0; i < MOVE_TABLES; i++)
		if (copy_table(m, &move_tables[i], &m->read[i]) < 0)
			return -1;
	if (compare(m) < 0 || move_target_finish(&m->to, &m->from, &m->error) < 0)
		return -1;
	(void)mark_source(m);
	show(m);
	return 0;
}

int move_run(const char *from_url, const char *to_url)
{
	struct move m = {.from = {.files = {.lock_fd = -1}}, .began_mono_ns = clock_mono_ns()};
	m.told_mono_ns = m.began_mono_ns;
	setvbuf(stdout, NULL, _IOLBF, 0);
	buf_init(&m.tuple, MOVE_TUPLE_MAX);
	int rc = move(&m, from_url, to_url);
	if (rc < 0)
		fprintf(stderr, "reinsd: move: %s%s\n", m.error.text,
			m.error.code == MOVE_UNAVAILABLE && !m.error.stays ? "\nreinsd: move: nothing is lost; run the same again and it goes on" : "");
	buf_done(&m.tuple);
	move_target_done(&m.to);
	move_source_done(&m.from);
	return rc < 0 ? m.error.code : 0;
}
