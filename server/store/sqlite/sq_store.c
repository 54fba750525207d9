/* The loop's side.  Owns the queues: operations of a turn gather per lane and are handed over as one list in the
 * LOOP_STORE phase; what a lane has answered comes back through an eventfd, and done is called from there. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "server/store/sqlite/sq.h"
#include "server/store/sqlite/sq_events.h"

#define TAKE_BYTES (32 << 20) /* of one transaction; a larger operation goes alone */

void sqlite_store_config_default(struct sqlite_store_config *c)
{
	*c = (struct sqlite_store_config){
		.path = "reins.db",
		.max_queued = 200000,
		.max_queued_bytes = INT64_C(512) << 20,
		.lost_limit = 3,
		.max_log_bytes = INT64_C(4) << 30,
		.event_retention_ns = 3600 * NS_PER_S,
	};
}

static struct store_op *op_of(struct list *n) { return container_of(n, struct store_op, node); }

/* ---- for the lanes ---- */

/* Under the mutex. */
static void signal_loop(struct sq_store *s)
{
	uint64_t one = 1;
	if (s->signalled)
		return;
	s->signalled = true;
	while (write(s->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void wait_until(struct sq_lane *l, int64_t until_mono_ns)
{
	struct timespec t = {.tv_sec = until_mono_ns / NS_PER_S, .tv_nsec = until_mono_ns % NS_PER_S};
	if (until_mono_ns == INT64_MAX)
		pthread_cond_wait(&l->wake, &l->store->mutex);
	else
		pthread_cond_timedwait(&l->wake, &l->store->mutex, &t);
}

static void take_some(struct sq_lane *l, struct list *ret, int32_t max_items)
{
	int64_t items = 0, bytes = 0;
	list_each(it, &l->inbox) {
		struct store_op *op = op_of(it);
		items += sq_op_items(op);
		bytes += sq_op_bytes(op);
		if (!list_empty(ret) && (items > max_items || bytes > TAKE_BYTES))
			return;
		list_remove(it);
		list_push_back(ret, it);
	}
}

bool sq_lane_take(struct sq_lane *l, struct list *ret, int32_t max_items, int64_t not_before_mono_ns, int64_t until_mono_ns)
{
	struct sq_store *s = l->store;
	int64_t until = until_mono_ns < 0 ? INT64_MAX : until_mono_ns;
	pthread_mutex_lock(&s->mutex);
	while (!l->stop) {
		int64_t now = clock_mono_ns(), next = list_empty(&l->inbox) ? until : min_i64(until, not_before_mono_ns);
		if (now >= next)
			break;
		wait_until(l, next);
	}
	bool go_on = !l->stop;
	if (go_on && clock_mono_ns() >= not_before_mono_ns)
		take_some(l, ret, max_items);
	pthread_mutex_unlock(&s->mutex);
	return go_on;
}

void sq_lane_put_back(struct sq_lane *l, struct list *ops)
{
	pthread_mutex_lock(&l->store->mutex);
	list_splice_back(ops, &l->inbox);
	list_splice_back(&l->inbox, ops);
	pthread_mutex_unlock(&l->store->mutex);
}

void sq_lane_answer(struct sq_lane *l, struct list *answered)
{
	struct sq_store *s = l->store;
	bool seen[STORE_KINDS] = {false};
	if (list_empty(answered))
		return;
	pthread_mutex_lock(&s->mutex);
	list_each(it, answered) {
		enum store_kind k = op_of(it)->kind;
		l->n_batches[k] += !seen[k];
		seen[k] = true;
	}
	list_splice_back(&s->outbox, answered);
	signal_loop(s);
	pthread_mutex_unlock(&s->mutex);
}

void sq_store_set_state(struct sq_store *s, enum sq_down down, const char *text)
{
	pthread_mutex_lock(&s->mutex);
	if (s->down < SQ_STAYS && (s->down != down || strcmp(s->text, text) != 0)) {
		s->down = down;
		snprintf(s->text, sizeof(s->text), "%s", text);
		s->state_changes++;
		signal_loop(s);
	}
	pthread_mutex_unlock(&s->mutex);
}

void sq_store_set_warning(struct sq_store *s, const char *text)
{
	pthread_mutex_lock(&s->mutex);
	if (strcmp(s->warning, text) != 0) {
		snprintf(s->warning, sizeof(s->warning), "%s", text);
		s->state_changes++;
		signal_loop(s);
	}
	pthread_mutex_unlock(&s->mutex);
}

bool sq_store_is_up(struct sq_store *s, bool *ret_stays, char *text, size_t cap)
{
	pthread_mutex_lock(&s->mutex);
	bool up = s->down == SQ_OK;
	*ret_stays = s->down >= SQ_STAYS;
	if (!up)
		snprintf(text, cap, "%s", s->text);
	pthread_mutex_unlock(&s->mutex);
	return up;
}

/* ---- answers ---- */

static void tell_state(struct sq_store *s, bool up, const char *text)
{
	s->base.up = up;
	snprintf(s->base.down_text, sizeof(s->base.down_text), "%s", up ? "" : text);
	if (s->base.on_state)
		s->base.on_state(s->base.on_state_arg, up, text);
}

static void tell_done(struct sq_store *s, struct list *answered)
{
	struct list *n;
	while ((n = list_pop_front(answered))) {
		struct store_op *op = op_of(n);
		s->base.queued -= sq_op_items(op);
		s->base.queued_bytes -= sq_op_bytes(op);
		store_tell(&s->base, op);
	}
}

/* Takes what the lanes have said: the state first, as answers may stem from it. */
static void collect(struct sq_store *s)
{
	struct list answered;
	char text[sizeof(s->text)];
	list_init(&answered);
	pthread_mutex_lock(&s->mutex);
	s->signalled = false;
	list_splice_back(&answered, &s->outbox);
	bool up = s->down == SQ_OK, changed = s->state_changes != s->state_seen;
	s->state_seen = s->state_changes;
	s->stays_down = s->down >= SQ_STAYS;
	s->base.newer_schema = s->down == SQ_NEWER;
	memcpy(text, up ? s->warning : s->text, sizeof(text));
	for (int l = 0; l < SQ_LANES; l++)
		for (int k = 0; k < STORE_KINDS; k++) {
			s->base.batches_done[k] += s->lanes[l].n_batches[k];
			s->lanes[l].n_batches[k] = 0;
		}
	pthread_mutex_unlock(&s->mutex);
	if (changed)
		tell_state(s, up, text);
	tell_done(s, &answered);
}

static void on_event(void *arg, int events)
{
	struct sq_store *s = arg;
	uint64_t count;
	if (read(s->event_fd, &count, sizeof(count)) == (ssize_t)sizeof(count))
		collect(s);
}

/* ---- submitting ---- */

static void flush(struct loop_dirty *d)
{
	struct sq_store *s = container_of(d, struct sq_store, dirty);
	struct list answered;
	list_init(&answered);
	list_splice_back(&answered, &s->answers);
	tell_done(s, &answered);
	for (int i = 0; i < SQ_LANES; i++) {
		struct sq_lane *l = &s->lanes[i];
		if (list_empty(&l->gathering))
			continue;
		pthread_mutex_lock(&s->mutex);
		list_splice_back(&l->inbox, &l->gathering);
		pthread_cond_signal(&l->wake);
		pthread_mutex_unlock(&s->mutex);
	}
}

static void submit(struct store *base, struct store_op *op)
{
	struct sq_store *s = container_of(base, struct sq_store, base);
	bool taken = store_take(base, op, sq_op_items(op), sq_op_bytes(op));
	bool waits = sq_kinds[op->kind].kept && !s->stays_down;
	if (!taken || (!s->base.up && !waits)) {
		if (taken)
			sq_op_fail(op, STORE_UNAVAILABLE, s->base.down_text);
		list_push_back(&s->answers, &op->node);
	} else {
		list_push_back(&s->lanes[sq_kinds[op->kind].lane].gathering, &op->node);
	}
	loop_mark(s->loop, &s->dirty);
}

/* ---- beginning and end ---- */

static void *(*const mains[SQ_LANES])(void *) = {
	[SQ_WRITE] = sq_write_main, [SQ_READ] = sq_read_main, [SQ_LOG] = sq_log_main};

static void stop_lane(struct sq_lane *l)
{
	if (!l->running)
		return;
	pthread_mutex_lock(&l->store->mutex);
	l->stop = true;
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->store->mutex);
	pthread_join(l->thread, NULL);
	l->running = false;
}

static void end_lane(struct sq_store *s, struct sq_lane *l)
{
	struct list rest;
	list_init(&rest);
	list_splice_back(&rest, &l->inbox);
	list_splice_back(&rest, &l->gathering);
	sq_ops_fail(&rest, STORE_UNAVAILABLE, "the store was stopped");
	tell_done(s, &rest);
	pthread_cond_destroy(&l->wake);
}

static void store_sq_free(struct store *base)
{
	struct sq_store *s = container_of(base, struct sq_store, base);
	s->stopping = true;
	s->base.on_state = NULL;
	/* The writing thread last: the last connection closed puts the write-ahead log into the file. */
	stop_lane(&s->lanes[SQ_READ]);
	stop_lane(&s->lanes[SQ_LOG]);
	stop_lane(&s->lanes[SQ_WRITE]);
	collect(s);
	s->base.up = false;
	snprintf(s->base.down_text, sizeof(s->base.down_text), "the store was stopped");
	tell_done(s, &s->answers);
	for (int i = 0; i < SQ_LANES; i++)
		end_lane(s, &s->lanes[i]);
	loop_unmark(&s->dirty);
	loop_poll_free(s->poll);
	if (s->event_fd >= 0)
		close(s->event_fd);
	sq_files_done(&s->files);
	pthread_mutex_destroy(&s->mutex);
	free((char *)(uintptr_t)s->cfg.path);
	free(s);
}

static const struct store_ops ops = {.submit = submit, .free = store_sq_free};

static void init_lane(struct sq_store *s, enum sq_lane_id id)
{
	struct sq_lane *l = &s->lanes[id];
	pthread_condattr_t attr;
	l->store = s;
	l->id = id;
	list_init(&l->gathering);
	list_init(&l->inbox);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->wake, &attr);
	pthread_condattr_destroy(&attr);
}

static int start(struct sq_store *s)
{
	s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->event_fd < 0)
		return -errno;
	int rc = loop_poll_new(s->loop, s->event_fd, on_event, s, &s->poll);
	if (rc < 0)
		return rc;
	loop_poll_set(s->poll, LOOP_READ);
	for (int i = 0; i < SQ_LANES; i++) {
		rc = pthread_create(&s->lanes[i].thread, NULL, mains[i], &s->lanes[i]);
		if (rc)
			return -rc;
		s->lanes[i].running = true;
	}
	return 0;
}

static int check(const struct sqlite_store_config *c, char *ret_err, size_t cap)
{
	const char *wrong = !c->path || !c->path[0]               ? "the path is empty"
			    : strlen(c->path) >= SQ_PATH_MAX - 16 ? "the path is too long"
			    : c->path[strlen(c->path) - 1] == '/' ? "the path is a directory's"
			    : c->max_queued < 1                   ? "max_queued must be at least 1"
			    : c->max_queued_bytes < 1             ? "max_queued_bytes must be at least 1"
			    : c->max_log_bytes < 0                ? "max_log_bytes must not be negative"
								  : NULL;
	if (!wrong)
		return 0;
	snprintf(ret_err, cap, "sqlite store: %s", wrong);
	return -EINVAL;
}

int sqlite_store_new(struct loop *loop, const struct sqlite_store_config *cfg, char *ret_err, size_t err_cap,
		     struct store **ret)
{
	int rc = check(cfg, ret_err, err_cap);
	if (rc < 0)
		return rc;
	struct sq_store *s = xcalloc(1, sizeof(*s));
	s->base.ops = &ops;
	s->news_until_mono_ns = clock_mono_ns() + STORE_NEWS_US * NS_PER_US; /* who watched before this start comes again */
	s->base.on_state = cfg->on_state;
	s->base.on_state_arg = cfg->on_state_arg;
	snprintf(s->base.down_text, sizeof(s->base.down_text), "the store is being opened");
	memcpy(s->text, s->base.down_text, sizeof(s->text));
	s->base.max_queued = cfg->max_queued;
	s->base.max_queued_bytes = cfg->max_queued_bytes;
	s->loop = loop;
	s->cfg = *cfg;
	s->cfg.path = xstrdup(cfg->path);
	s->base.alone = true; /* by the lock that sq_files takes */
	s->event_fd = s->files.lock_fd = -1;
	s->down = SQ_AGAIN;
	list_init(&s->answers);
	list_init(&s->outbox);
	pthread_mutex_init(&s->mutex, NULL);
	loop_dirty_init(&s->dirty, LOOP_STORE, flush);
	for (int i = 0; i < SQ_LANES; i++)
		init_lane(s, (enum sq_lane_id)i);
	rc = start(s);
	if (rc < 0) {
		snprintf(ret_err, err_cap, "sqlite store: %s", strerrordesc_np(-rc));
		store_sq_free(&s->base);
		return rc;
	}
	*ret = &s->base;
	return 0;
}

bool sqlite_store_stays_down(const struct store *base)
{
	return container_of(base, struct sq_store, base)->stays_down;
}
