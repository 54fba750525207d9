/* What a log wants next, and how it gets there: the reader's buffer when the page cache has it, else a job of the thread
 * pool with a buffer of its own, which takes the cursor's file along and brings it back.
 *
 * A piece in flight costs its length, and the places to begin again from are kept for two groups of pieces: those before
 * `mark` and those after it.  When all before it is stored the second becomes the first. */
#include "worker/logs.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <uv.h>

#include "common/loop/loop.h"

#define OPEN_MAX 32
#define JOBS_MAX 16
#define AGAIN_NS (100 * NS_PER_MS)
#define LIVE_BACK (1024 * 1024)     /* where those who come late begin to read along */
#define LIVE_LAG (4 * 1024 * 1024)  /* a live track that is further behind skips */

struct log_job {
	uv_work_t work;
	struct logs_reader *reader;
	struct attempt_log *log; /* NULL: nobody waits for it */
	int dir_fd, fd;
	struct log_place hint;
	int64_t want, end;
	bool done, taken;
	struct log_found found;
	struct log_span span;    /* once taken: out of buf, which that has changed */
	struct log_place next;
	uint8_t buf[LOG_READ_BUFFER];
};

/* ---- what all logs share ---- */

void logs_split(int64_t limit, int64_t *ret_head, int64_t *ret_ring)
{
	*ret_ring = max_i64(limit / 4, 2);
	*ret_head = max_i64(limit - limit / 4, 1);
}

static void wake(struct list *waiting, int64_t n)
{
	for (struct list *it; n-- > 0 && (it = list_pop_front(waiting));) {
		struct attempt_log *l = container_of(it, struct attempt_log, waiting);
		l->reader->on_ready(l);
	}
}

static void on_again(struct loop_timer *t)
{
	wake(&container_of(t, struct logs_reader, again)->want_job, INT64_MAX);
}

void logs_reader_init(struct logs_reader *r, struct loop *loop, void (*on_ready)(struct attempt_log *l))
{
	*r = (struct logs_reader){.loop = loop, .on_ready = on_ready};
	list_init(&r->open);
	list_init(&r->want_job);
	list_init(&r->want_room);
	loop_timer_init(&r->again, loop, on_again);
	r->buf = xcalloc(1, LOG_READ_BUFFER);
}

bool logs_reader_idle(const struct logs_reader *r)
{
	return r->jobs == 0;
}

void logs_reader_done(struct logs_reader *r)
{
	loop_timer_stop(&r->again);
	free(r->buf);
	r->buf = NULL;
}

static void wait_on(struct attempt_log *l, struct list *waiting)
{
	if (list_empty(&l->waiting))
		list_push_back(waiting, &l->waiting);
}

/* ---- cursors ---- */

static void cursor_close(struct logs_reader *r, struct log_cursor *c)
{
	if (c->fd < 0)
		return;
	close(c->fd);
	c->fd = -1;
	list_remove(&c->open_node);
	r->n_open--;
}

static void cursor_open(struct logs_reader *r, struct log_cursor *c, int fd, const struct log_place *at)
{
	cursor_close(r, c);
	c->fd = fd;
	c->place = *at;
	list_push_back(&r->open, &c->open_node);
	if (++r->n_open > OPEN_MAX)
		cursor_close(r, container_of(r->open.next, struct log_cursor, open_node));
}

static void cursor_move(struct logs_reader *r, struct log_cursor *c, const struct log_place *to)
{
	if (c->fd >= 0 && to->file != c->place.file)
		cursor_close(r, c);
	c->place = *to;
}

/* ---- jobs ---- */

static void free_job(struct log_job *j)
{
	struct logs_reader *r = j->reader;
	if (j->found.fd >= 0)
		close(j->found.fd);
	if (j->dir_fd >= 0)
		close(j->dir_fd);
	free(j);
	r->jobs--;
	wake(&r->want_job, r->jobs ? 1 : INT64_MAX);
}

static void drop_job(struct log_cursor *c)
{
	struct log_job *j = c->job;
	c->job = NULL;
	if (!j)
		return;
	j->log = NULL;
	if (j->done)
		free_job(j);
}

static void run_job(uv_work_t *w)
{
	struct log_job *j = container_of(w, struct log_job, work);
	log_find(j->dir_fd, j->fd, &j->hint, j->want, j->end, j->buf, &j->found);
}

static void on_job_done(uv_work_t *w, int status)
{
	struct log_job *j = container_of(w, struct log_job, work);
	(void)status;
	j->done = true;
	if (j->log)
		j->reader->on_ready(j->log);
	else
		free_job(j);
}

/* Takes the cursor's file along. */
static void start_job(struct attempt_log *l, struct log_cursor *c, int64_t want)
{
	struct logs_reader *r = l->reader;
	if (r->jobs >= JOBS_MAX) {
		wait_on(l, &r->want_job);
		return;
	}
	struct log_job *j = calloc(1, sizeof(*j));
	int dir_fd = j ? fcntl(l->dir_fd, F_DUPFD_CLOEXEC, 0) : -1;
	if (dir_fd < 0) {
		free(j);
		wait_on(l, &r->want_job); /* out of memory or descriptors */
		loop_timer_set(&r->again, loop_now_mono_ns(r->loop) + AGAIN_NS);
		return;
	}
	*j = (struct log_job){.reader = r, .log = l, .dir_fd = dir_fd, .fd = c->fd, .hint = c->place, .want = want,
		.end = l->end, .found.fd = -1};
	if (c->fd >= 0) {
		list_remove(&c->open_node);
		r->n_open--;
		c->fd = -1;
	}
	c->job = j;
	r->jobs++;
	if (uv_queue_work(loop_uv(r->loop), &j->work, run_job, on_job_done) < 0)
		abort(); /* only for arguments that are wrong */
}

/* ---- one track ---- */

enum track { TRACK_PIECE, TRACK_GAP, TRACK_NOTHING };

static size_t piece_max(const struct logs_reader *r)
{
	int64_t max = LOGS_PIECE_MAX;
	if (r->window)
		max = min_i64(max, r->window);
	if (r->window_sum)
		max = min_i64(max, r->window_sum);
	return (size_t)max;
}

/* A finished job about `want`. */
static enum track take_job(struct attempt_log *l, struct log_cursor *c, struct log_span *ret, struct log_place *ret_next)
{
	struct log_job *j = c->job;
	if (j->found.fd >= 0) {
		cursor_open(l->reader, c, j->found.fd, &j->found.place);
		j->found.fd = -1;
		j->taken = log_take(j->buf, j->found.len, &c->place, j->want, j->end, piece_max(l->reader), &j->span, &j->next) == 0;
	}
	if (j->taken) {
		*ret = j->span;
		*ret_next = j->next;
		return TRACK_PIECE;
	}
	*ret = (struct log_span){.stream = 1, .offset = j->want, .dropped = j->found.gap_to - j->want};
	*ret_next = (struct log_place){.file = j->found.gap_to, .offset = j->found.gap_to};
	return TRACK_GAP;
}

/* Out of the page cache, if it is there. */
static bool take_now(struct attempt_log *l, struct log_cursor *c, int64_t want, struct log_span *ret, struct log_place *ret_next)
{
	struct logs_reader *r = l->reader;
	struct iovec io = {.iov_base = r->buf, .iov_len = LOG_READ_BUFFER};
	ssize_t n = preadv2(c->fd, &io, 1, c->place.pos, RWF_NOWAIT);
	if (n <= 0 || log_take(r->buf, (size_t)n, &c->place, want, l->end, piece_max(r), ret, ret_next) < 0)
		return false;
	list_remove(&c->open_node);
	list_push_back(&r->open, &c->open_node);
	return true;
}

/* The span at `want`, which is below the end. */
static enum track next_span(struct attempt_log *l, struct log_cursor *c, int64_t want, struct log_span *ret, struct log_place *ret_next)
{
	if (l->dir_fd < 0) {
		*ret = (struct log_span){.stream = 1, .offset = want, .dropped = l->end - want};
		*ret_next = (struct log_place){.file = l->end, .offset = l->end};
		return TRACK_GAP;
	}
	if (c->job && !c->job->done)
		return TRACK_NOTHING;
	if (c->job && c->job->want == want)
		return take_job(l, c, ret, ret_next);
	drop_job(c);
	if (c->fd >= 0 && take_now(l, c, want, ret, ret_next))
		return TRACK_PIECE;
	start_job(l, c, want);
	return TRACK_NOTHING;
}

static void fill(struct logs_piece *ret, const struct log_span *s, const struct log_place *next, bool live)
{
	*ret = (struct logs_piece){.stream = s->stream, .offset = s->offset, .data = s->data, .len = s->len, .dropped = s->dropped,
		.at_wall_us = s->at_wall_us, .live = live, .next = *next};
}

static bool has_room(struct attempt_log *l)
{
	const struct logs_reader *r = l->reader;
	int64_t cost = l->cost_old + l->cost_new;
	if (r->window && cost && cost + LOGS_PIECE_MAX > r->window)
		return false;
	if (!r->window_sum || !r->in_flight || r->in_flight + LOGS_PIECE_MAX <= r->window_sum)
		return true;
	wait_on(l, &l->reader->want_room);
	return false;
}

static bool next_to_store(struct attempt_log *l, struct logs_piece *ret)
{
	struct log_span s;
	struct log_place next;
	bool over = !l->closed && l->head_end >= 0 && l->sent >= l->head_end;
	if (l->sent >= l->end || over || (l->dir_fd < 0 && !l->closed) || !has_room(l))
		return false;
	enum track t = next_span(l, &l->head, l->sent, &s, &next);
	if (t == TRACK_NOTHING)
		return false;
	if (!l->closed && (t == TRACK_GAP || l->head.place.file != 0)) {
		l->head_end = l->sent;
		drop_job(&l->head);
		cursor_close(l->reader, &l->head);
		return false;
	}
	fill(ret, &s, &next, false);
	return true;
}

static bool next_live(struct attempt_log *l, struct logs_piece *ret)
{
	struct log_span s;
	struct log_place next;
	if (!l->followed || l->closed || l->head_end < 0 || l->stored < l->head_end)
		return false;
	if (l->live_at < 0 || l->end - l->live_at > LIVE_LAG)
		l->live_at = max_i64(l->head_end, l->end - LIVE_BACK);
	while (l->live_at < l->end) {
		enum track t = next_span(l, &l->live, l->live_at, &s, &next);
		if (t == TRACK_NOTHING)
			return false;
		if (t == TRACK_PIECE && !s.dropped) {
			fill(ret, &s, &next, true);
			return true;
		}
		l->live_at = s.offset + s.dropped;
		cursor_move(l->reader, &l->live, &next);
		drop_job(&l->live);
	}
	return false;
}

bool logs_next(struct attempt_log *l, struct logs_piece *ret)
{
	return next_to_store(l, ret) || next_live(l, ret);
}

void logs_sent(struct attempt_log *l, const struct logs_piece *p)
{
	struct log_cursor *c = p->live ? &l->live : &l->head;
	int64_t n = p->dropped + (int64_t)p->len;
	assert(p->offset == (p->live ? l->live_at : l->sent));
	cursor_move(l->reader, c, &p->next);
	drop_job(c);
	if (p->live) {
		l->live_at += n;
		return;
	}
	int64_t cost = max_i64((int64_t)p->len, LOGS_PIECE_COST_MIN);
	l->sent += n;
	l->cost_new += cost;
	l->reader->in_flight += cost;
}

bool logs_all_sent(const struct attempt_log *l)
{
	return l->closed && l->sent >= l->end;
}

/* ---- what is stored ---- */

static void release(struct attempt_log *l, int64_t *cost)
{
	struct logs_reader *r = l->reader;
	if (!*cost)
		return;
	r->in_flight -= *cost;
	*cost = 0;
	wake(&r->want_room, r->in_flight ? (r->window_sum - r->in_flight) / LOGS_PIECE_MAX : INT64_MAX);
}

void logs_stored(struct attempt_log *l, int64_t offset)
{
	offset = min_i64(offset, l->end);
	if (offset <= l->stored)
		return;
	l->stored = offset;
	if (offset > l->sent) {
		l->sent = offset;
		drop_job(&l->head);
	}
	if (offset < l->mark)
		return;
	release(l, &l->cost_old);
	if (offset >= l->sent)
		release(l, &l->cost_new);
	l->cost_old = l->cost_new;
	l->cost_new = 0;
	l->place_old = l->place_new;
	l->place_new = l->head.place;
	l->mark = l->sent;
}

void logs_rewind(struct attempt_log *l, int64_t offset)
{
	static const struct log_place start;
	const struct log_place *places[] = {&l->head.place, &l->place_new, &l->place_old, &start};
	size_t i = 0;
	drop_job(&l->head);
	l->sent = l->stored = min_i64(max_i64(offset, 0), l->end);
	while (places[i]->offset > l->sent)
		i++;
	struct log_place from = *places[i];
	cursor_move(l->reader, &l->head, &from);
	l->place_old = l->place_new = from;
	l->mark = l->sent;
	release(l, &l->cost_old);
	release(l, &l->cost_new);
	logs_follow(l, false);
}

void logs_follow(struct attempt_log *l, bool on)
{
	l->followed = on;
	if (on)
		return;
	l->live_at = -1;
	drop_job(&l->live);
	cursor_close(l->reader, &l->live);
}

/* ---- beginning and end ---- */

void logs_init(struct attempt_log *l, struct logs_reader *r)
{
	*l = (struct attempt_log){.reader = r, .dir_fd = -1, .head_end = -1, .live_at = -1, .head.fd = -1, .live.fd = -1};
	list_init(&l->waiting);
	list_init(&l->head.open_node);
	list_init(&l->live.open_node);
}

void logs_done(struct attempt_log *l)
{
	list_remove(&l->waiting);
	drop_job(&l->head);
	drop_job(&l->live);
	cursor_close(l->reader, &l->head);
	cursor_close(l->reader, &l->live);
	release(l, &l->cost_old);
	release(l, &l->cost_new);
}

void logs_open(struct attempt_log *l, int dir_fd)
{
	l->dir_fd = dir_fd;
}

void logs_grown(struct attempt_log *l, int64_t end, int64_t dropped)
{
	l->end = max_i64(l->end, end);
	l->dropped = max_i64(l->dropped, dropped);
}

void logs_close(struct attempt_log *l, int64_t end)
{
	logs_grown(l, end, 0);
	l->closed = true;
	logs_follow(l, false);
}
