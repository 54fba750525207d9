/* The store as its user sees it.  Owns the queues; in the LOOP_STORE phase tells answers and gathers
 * operations into batches, each as large as what has come while the ones before were on the way. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/map.h"
#include "server/store/postgres/pg.h"

#define PIPELINE_MAX 16 /* batches on one connection */
#define PARTITIONS_EVERY (6 * 3600 * NS_PER_S)
#define PARTITIONS_FIRST (60 * NS_PER_S)
#define TRIM_EVERY (10 * NS_PER_S)
#define LABEL_EVERY NS_PER_S /* while tasks want labels */

void pg_store_config_default(struct pg_store_config *c)
{
	*c = (struct pg_store_config){
		.connections = 3,
		.max_batch = 1000,
		.max_in_flight = 2,
		.max_queued = 200000,
		.max_queued_bytes = INT64_C(512) << 20,
		.statement_timeout_ns = 10 * NS_PER_S,
		.connect_timeout_ns = 5 * NS_PER_S,
		.lost_limit = 3,
		.event_retention_ns = 3600 * NS_PER_S,
		.max_batch_bytes = 4 << 20,
	};
}

static void mark(struct pg_store *s) { loop_mark(s->loop, &s->dirty); }

static int32_t items(const struct store_op *op)
{
	if (op->kind != STORE_INSERT)
		return 1;
	const struct store_insert *o = container_of(op, struct store_insert, op);
	return o->group_n > 1 ? o->group_n : 1;
}

static int64_t weight(const struct store_op *op)
{
	const struct pg_kind *k = &pg_kinds[op->kind];
	return (int64_t)(k->bytes ? k->bytes(op) : 0);
}

/* ---- answers ---- */

static void answered(struct pg_store *s, struct store_op *op)
{
	s->queues[op->kind].n_ops--;
	s->base.queued -= items(op);
	s->base.queued_bytes -= weight(op);
	list_push_back(&s->answers, &op->node);
	mark(s);
}

void pg_store_answer(struct pg_store *s, struct store_op *op, enum store_result result, const char *text)
{
	op->result = result;
	op->maybe_done = op->no_memory = false;
	snprintf(op->text, sizeof(op->text), "%s", text);
	answered(s, op);
}

void pg_store_requeue(struct pg_store *s, struct store_op *op)
{
	list_push_front(&s->queues[op->kind].ops, &op->node);
	mark(s);
}

static void tell_answers(struct pg_store *s)
{
	/* What done submits is told in a later round at the earliest. */
	struct list now;
	list_init(&now);
	list_splice_back(&now, &s->answers);
	struct list *n;
	while ((n = list_pop_front(&now)))
		store_tell(&s->base, container_of(n, struct store_op, node));
}

/* ---- up and down ---- */

static bool any_ready(const struct pg_store *s)
{
	if (s->base.newer_schema)
		return false;
	for (int i = 0; i < s->cfg.connections; i++)
		if (pg_conn_ready(s->conns[i]))
			return true;
	return false;
}

/* Of what is queued only the kept kinds and what must be settled may wait for the store's return. */
static void fail_queued(struct pg_store *s)
{
	for (int k = 0; k < PG_KINDS; k++) {
		struct pg_queue *q = &s->queues[k];
		struct list *w;
		while (!list_empty(&q->waiting)) {
			w = q->waiting.prev;
			list_remove(w);
			struct pg_batch *b = container_of(w, struct pg_batch, node);
			for (size_t i = b->n; i--;)
				pg_store_requeue(s, b->ops[i]);
			pg_batch_free(b);
		}
		if (pg_kinds[k].kept)
			continue;
		list_each(it, &q->ops) {
			struct store_op *op = container_of(it, struct store_op, node);
			if (op->sent)
				continue;
			list_remove(it);
			pg_store_answer(s, op, STORE_UNAVAILABLE, s->base.down_text);
		}
	}
}

static void tell_state(struct pg_store *s, const char *text)
{
	bool was = s->base.up, up = any_ready(s);
	if (!up) {
		snprintf(s->base.down_text, sizeof(s->base.down_text), "%s", text);
		s->base.up = false;
		fail_queued(s);
	}
	s->base.up = up;
	if (s->told && up == was && strcmp(s->told_text, text) == 0)
		return;
	s->told = true;
	snprintf(s->told_text, sizeof(s->told_text), "%s", text);
	if (s->base.on_state)
		s->base.on_state(s->base.on_state_arg, up, text);
}

static void on_ready(void *arg, struct pg_conn *c)
{
	struct pg_store *s = arg;
	const char *id = pg_conn_store_id(c);
	if (s->base.newer_schema)
		return;
	if (!s->store_id[0]) {
		snprintf(s->store_id, sizeof(s->store_id), "%s", id);
	} else if (strcmp(s->store_id, id) != 0) {
		/* Somebody put another database behind the address: its rows are not those that we know. */
		pg_conn_give_up(c, "another store answers at this address than before");
		return;
	}
	if (!s->base.up)
		tell_state(s, pg_conn_warning(c));
	if (pg_conn_unlabelled(c) && !s->unlabelled) {
		s->unlabelled = true;
		loop_timer_set(&s->trim_timer, loop_now_mono_ns(s->loop) + LABEL_EVERY);
	}
	mark(s);
}

static void on_lost(void *arg, struct pg_conn *c, const char *text)
{
	struct pg_store *s = arg;
	bool found = pg_conn_newer_schema(c) && !s->base.newer_schema;
	/* Those that connected before the upgrade could go on for a while: with statements made for what it was. */
	if (found)
		s->base.newer_schema = true;
	if (found || (!s->base.newer_schema && !any_ready(s)))
		tell_state(s, text);
	mark(s);
}

/* A connection with nothing on its way would find out only when it is used, and until then the store would count as there. */
static void on_silent(void *arg)
{
	struct pg_store *s = arg;
	for (int i = 0; i < s->cfg.connections; i++)
		if (pg_conn_ready(s->conns[i]) && !pg_conn_in_flight(s->conns[i])) {
			pg_conn_give_up(s->conns[i], "another connection fell silent");
			pg_conn_flush(s->conns[i]);
		}
}

static void on_room(void *arg) { mark(arg); }

void pg_store_lost(struct pg_store *s, struct pg_batch *b, const char *text)
{
	/* The other connections find out for themselves. */
	pg_conn_give_up(b->conn, text);
}

/* ---- gathering ---- */

struct keys {
	struct map map;
	struct map_node *nodes;
	size_t n, cap;
};

static bool keys_have(const struct pg_kind *k, const struct store_op *op, const struct keys *seen)
{
	const void *key;
	size_t len;
	for (const void *at = NULL; k->key(op, &at, &key, &len);)
		if (map_get(&seen->map, key, len))
			return true;
	return false;
}

/* False: no room for its keys. */
static bool keys_add(const struct pg_kind *k, const struct store_op *op, struct keys *seen)
{
	const void *key;
	size_t len;
	size_t n = 0;
	for (const void *at = NULL; k->key(op, &at, &key, &len);)
		n++;
	if (seen->n + n > seen->cap)
		return false;
	for (const void *at = NULL; k->key(op, &at, &key, &len);)
		if (!map_get(&seen->map, key, len))
			map_put(&seen->map, &seen->nodes[seen->n++], key, len);
	return true;
}

static int by_order(const void *a, const void *b, void *kind)
{
	const struct pg_kind *k = kind;
	return k->order(*(struct store_op *const *)a, *(struct store_op *const *)b);
}

static struct pg_batch *gather(struct pg_store *s, int kind)
{
	const struct pg_kind *k = &pg_kinds[kind];
	struct pg_queue *q = &s->queues[kind];
	if (list_empty(&q->ops))
		return NULL;
	size_t max = (size_t)(k->max_ops ? k->max_ops : s->cfg.max_batch);
	size_t cap = min_sz(max, q->n_ops);
	bool resent = container_of(q->ops.next, struct store_op, node)->sent > 0;
	struct store_op **ops = xcalloc(cap, sizeof(*ops));
	struct keys seen = {.cap = max_sz(cap, (size_t)items(container_of(q->ops.next, struct store_op, node)))};
	if (k->key) {
		map_init(&seen.map);
		seen.nodes = calloc(seen.cap, sizeof(*seen.nodes));
	}
	bool keyed = k->key && seen.nodes;
	if (k->key && !keyed)
		cap = 1; /* without memory to compare with others: alone */
	size_t n = 0, n_items = 0;
	int64_t bytes = 0;
	list_each(it, &q->ops) {
		struct store_op *op = container_of(it, struct store_op, node);
		if (n == cap || (op->sent > 0) != resent)
			break;
		if (n && (n_items + (size_t)items(op) > max || bytes + weight(op) > s->cfg.max_batch_bytes))
			break;
		if (keyed && (keys_have(k, op, &seen) || !keys_add(k, op, &seen)))
			continue; /* stays for the next batch */
		list_remove(it);
		ops[n++] = op;
		n_items += (size_t)items(op);
		bytes += weight(op);
	}
	if (k->order)
		qsort_r(ops, n, sizeof(*ops), by_order, (void *)(uintptr_t)k);
	struct pg_batch *b = pg_batch_new(s, k, ops, n, resent);
	if (k->key)
		map_done(&seen.map);
	free(seen.nodes);
	free(ops);
	return b;
}

/* The least loaded of its lane that is ready and has room, else of the other lane; NULL: none. */
static struct pg_conn *choose(struct pg_store *s, bool reads)
{
	int n = s->cfg.connections;
	struct pg_conn *best = NULL;
	for (int pass = 0; pass < 2 && !best; pass++)
		for (int i = 0; i < n; i++) {
			bool in_lane = n == 1 || reads == (i == n - 1);
			struct pg_conn *c = s->conns[i];
			if (in_lane != (pass == 0) || !pg_conn_ready(c) || pg_conn_blocked(c))
				continue;
			if (!best || pg_conn_in_flight(c) < pg_conn_in_flight(best))
				best = c;
		}
	return best && pg_conn_in_flight(best) < PIPELINE_MAX ? best : NULL;
}

static void send_batch(struct pg_store *s, struct pg_conn *c, struct pg_batch *b)
{
	b->conn = c;
	int rc = pg_conn_send(c, b, &s->params);
	if (rc == 0) {
		b->on_way = true;
		s->queues[b->kind - pg_kinds].in_flight++;
		return;
	}
	if (rc == -ENOMEM && b->n > 1) {
		snprintf(b->sqlstate, sizeof(b->sqlstate), "54000");
		pg_batch_on_sync(b);
	} else if (rc == -ENOMEM) {
		pg_batch_too_large(b);
	} else {
		pg_conn_give_up(c, "libpq refused a statement");
		pg_batch_on_lost(b);
	}
}

static void send_kind(struct pg_store *s, int kind)
{
	struct pg_queue *q = &s->queues[kind];
	int max_in_flight = pg_kinds[kind].in_order ? 1 : s->cfg.max_in_flight;
	while ((!list_empty(&q->waiting) || !list_empty(&q->ops)) && q->in_flight < max_in_flight) {
		struct pg_conn *c = choose(s, pg_kinds[kind].reads);
		if (!c)
			return;
		struct list *w = list_pop_front(&q->waiting);
		struct pg_batch *b = w ? container_of(w, struct pg_batch, node) : gather(s, kind);
		send_batch(s, c, b);
	}
}

static void flush(struct loop_dirty *d)
{
	struct pg_store *s = container_of(d, struct pg_store, dirty);
	tell_answers(s);
	if (!s->base.up)
		return;
	for (int k = 0; k < PG_KINDS; k++)
		send_kind(s, k);
	for (int i = 0; i < s->cfg.connections; i++)
		pg_conn_flush(s->conns[i]);
}

/* ---- the interface ---- */

static void submit(struct store *base, struct store_op *op)
{
	struct pg_store *s = container_of(base, struct pg_store, base);
	struct pg_queue *q = &s->queues[op->kind];
	op->sent = op->tries = 0;
	op->maybe_done = op->no_memory = false;
	bool taken = store_take(base, op, items(op), weight(op));
	q->n_ops++;
	if (!taken)
		answered(s, op);
	else if (!s->base.up && !pg_kinds[op->kind].kept)
		pg_store_answer(s, op, STORE_UNAVAILABLE, s->base.down_text);
	else
		list_push_back(&q->ops, &op->node);
	mark(s);
}

static void on_partitions_timer(struct loop_timer *t)
{
	struct pg_store *s = container_of(t, struct pg_store, partitions_timer);
	loop_timer_set(t, loop_now_mono_ns(s->loop) + PARTITIONS_EVERY);
	if (s->partitions_busy || !s->base.up)
		return;
	s->partitions_busy = true;
	submit(&s->base, &s->partitions_op);
}

static void on_partitions_done(struct store_op *op)
{
	container_of(op, struct pg_store, partitions_op)->partitions_busy = false;
}

static void on_trim_timer(struct loop_timer *t)
{
	struct pg_store *s = container_of(t, struct pg_store, trim_timer);
	loop_timer_set(t, loop_now_mono_ns(s->loop) + (s->unlabelled ? LABEL_EVERY : TRIM_EVERY));
	if (s->trim_busy || !s->base.up)
		return;
	s->trim_busy = true;
	submit(&s->base, &s->trim_op);
}

static void on_trim_done(struct store_op *op)
{
	container_of(op, struct pg_store, trim_op)->trim_busy = false;
}

static void end_op(struct pg_store *s, struct store_op *op, bool maybe)
{
	op->result = STORE_UNAVAILABLE;
	op->maybe_done = maybe;
	snprintf(op->text, sizeof(op->text), "the store was stopped");
	op->done(op);
}

static void end_batch(struct pg_store *s, struct list *n, bool sent)
{
	struct pg_batch *b = container_of(n, struct pg_batch, node);
	for (size_t i = 0; i < b->n; i++)
		end_op(s, b->ops[i], sent || b->ops[i]->sent);
	pg_batch_free(b);
}

static void store_pg_free(struct store *base)
{
	struct pg_store *s = container_of(base, struct pg_store, base);
	struct list *n;
	s->base.up = false;
	loop_unmark(&s->dirty);
	loop_timer_stop(&s->partitions_timer);
	loop_timer_stop(&s->trim_timer);
	tell_answers(s);
	for (int i = 0; i < s->cfg.connections; i++) {
		while ((n = list_pop_front(pg_conn_batches(s->conns[i]))))
			end_batch(s, n, true);
		pg_conn_free(s->conns[i]);
	}
	for (int k = 0; k < PG_KINDS; k++) {
		while ((n = list_pop_front(&s->queues[k].waiting)))
			end_batch(s, n, false);
		while ((n = list_pop_front(&s->queues[k].ops))) {
			struct store_op *op = container_of(n, struct store_op, node);
			end_op(s, op, op->sent > 0);
		}
	}
	loop_unmark(&s->dirty);
	pg_params_done(&s->params);
	free((char *)(uintptr_t)s->cfg.url);
	free(s);
}

static const struct store_ops ops = {.submit = submit, .free = store_pg_free};
static const struct pg_conn_ops conn_ops = {.on_ready = on_ready, .on_lost = on_lost, .on_silent = on_silent, .on_room = on_room};

int pg_store_new(struct loop *loop, const struct pg_store_config *cfg, struct store **ret)
{
	PQconninfoOption *parsed = cfg->url ? PQconninfoParse(cfg->url, NULL) : NULL;
	if (!parsed || cfg->connections < 1 || cfg->connections > (int32_t)ARRAY_LEN(((struct pg_store *)0)->conns) ||
	    cfg->max_batch < 1 || cfg->max_in_flight < 1) {
		PQconninfoFree(parsed);
		return -EINVAL;
	}
	PQconninfoFree(parsed);
	struct pg_store *s = xcalloc(1, sizeof(*s));
	s->base.ops = &ops;
	s->base.on_state = cfg->on_state;
	s->base.on_state_arg = cfg->on_state_arg;
	snprintf(s->base.down_text, sizeof(s->base.down_text), "not connected yet");
	s->base.max_queued = cfg->max_queued;
	s->base.max_queued_bytes = cfg->max_queued_bytes;
	s->loop = loop;
	s->cfg = *cfg;
	s->cfg.url = xstrdup(cfg->url);
	list_init(&s->answers);
	for (int k = 0; k < PG_KINDS; k++) {
		list_init(&s->queues[k].ops);
		list_init(&s->queues[k].waiting);
	}
	pg_params_init(&s->params);
	loop_dirty_init(&s->dirty, LOOP_STORE, flush);
	loop_timer_init(&s->partitions_timer, loop, on_partitions_timer);
	s->partitions_op.kind = PG_KIND_PARTITIONS;
	s->partitions_op.done = on_partitions_done;
	list_init(&s->partitions_op.node);
	loop_timer_set(&s->partitions_timer, loop_now_mono_ns(loop) + PARTITIONS_FIRST);
	loop_timer_init(&s->trim_timer, loop, on_trim_timer);
	s->trim_op.kind = PG_KIND_TRIM;
	s->trim_op.done = on_trim_done;
	list_init(&s->trim_op.node);
	loop_timer_set(&s->trim_timer, loop_now_mono_ns(loop) + TRIM_EVERY);
	for (int i = 0; i < s->cfg.connections; i++) {
		s->conns[i] = pg_conn_new(loop, &s->cfg, i, &conn_ops, s);
		pg_conn_start(s->conns[i]);
	}
	*ret = &s->base;
	return 0;
}
