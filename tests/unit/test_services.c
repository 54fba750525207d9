/* The services and the engine on a store whose answers the test gives: what is said to whom before, between and after
 * them.  A worker and a client speak real gRPC over an in-memory pair. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/grpc/client.h"
#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"
#include "reins/v1/worker_service.pb-c.h"
#include "server/lease/memory/memory.h"
#include "server/rpc/rpc.h"
#include "server/store/store_logs.h"
#include "tests/unit/turns.h"
#include "server/core/core_view.h"

#define LOG_MAX (1 << 20)
#define INSTANCE "00112233445566778899aabbccddeeff"
#define TASK_1 "01890000-0000-7000-8000-000000000001"

struct call {
	struct grpc_client_call *c;
	int n_messages;
	Reins__V1__MasterMessage *last; /* of a worker's stream */
	int64_t stored;                 /* newest LogStored */
	bool done;
	enum status_code code;
};

static struct {
	struct loop *loop;
	struct store store;
	struct list asked; /* operations that wait for the test's answer */
	struct lease *lease;
	struct engine *engine;
	struct rpc rpc;
	struct grpc_server *server;
	struct grpc_channel *channel, *another;
	bool ready, replaced, no_lease_answers;
	struct call w, c, gone; /* a worker, clients; used until the channel is freed */
} T;

/* ---- the store ---- */

static void store_ask(struct store *s, struct store_op *op)
{
	list_push_back(&T.asked, &op->node);
}

static const struct store_ops store_ops = { .submit = store_ask };

static struct store_op *asked(enum store_kind kind)
{
	list_each(it, &T.asked) {
		struct store_op *op = container_of(it, struct store_op, node);
		if (op->kind == kind)
			return op;
	}
	return NULL;
}

static int n_asked(enum store_kind kind)
{
	int n = 0;
	list_each(it, &T.asked)
		n += container_of(it, struct store_op, node)->kind == kind;
	return n;
}

static void answer(struct store_op *op, enum store_result result)
{
	list_remove(&op->node);
	op->result = result;
	op->done(op);
}

/* Turns until the store was asked this; fails the test otherwise. */
static struct store_op *await(enum store_kind kind)
{
	TURNS_UNTIL(T.loop, asked(kind));
	return asked(kind);
}

#define AWAIT(type, kind) container_of(await(kind), struct type, op)

/* Until all that is on its way in memory has arrived. */
static void settle(void)
{
	for (int i = 0; i < 30; i++)
		loop_turn(T.loop, false);
}

/* ---- a call ---- */

static void on_message(void *arg, const uint8_t *data, size_t len)
{
	((struct call *)arg)->n_messages++;
}

static void on_master_message(void *arg, const uint8_t *data, size_t len)
{
	struct call *c = arg;
	struct refusal r;
	c->n_messages++;
	pb_free(c->last);
	c->last = pb_unpack(&reins__v1__master_message__descriptor, data, len, NULL, &r);
	assert_non_null(c->last);
	if (c->last->kind_case == REINS__V1__MASTER_MESSAGE__KIND_HEARTBEAT_ACK)
		for (size_t i = 0; i < c->last->heartbeat_ack->n_logs; i++)
			c->stored = c->last->heartbeat_ack->logs[i]->offset;
}

static void on_status(void *arg, const struct grpc_status *status)
{
	struct call *c = arg;
	c->done = true;
	c->code = status->code;
	c->c = NULL;
}

static void begin(struct call *c, const char *path, enum grpc_call_kind kind)
{
	static const struct grpc_call_events unary = { .on_message = on_message, .on_status = on_status };
	static const struct grpc_call_events stream = { .on_message = on_master_message, .on_status = on_status };
	assert_int_equal(grpc_call_start(T.channel, path, kind, GRPC_NO_DEADLINE, kind == GRPC_CALL_UNARY ? &unary : &stream, c,
					 &c->c), 0);
}

static void say(struct call *c, void *message)
{
	struct blob *b = pb_pack_blob(message);
	assert_int_equal(grpc_client_send(c->c, b->data, b->len), 0);
	blob_unref(b);
}

/* ---- set up ---- */

static void on_ready(void *arg) { T.ready = true; }
static void on_closed(void *arg, const char *text) {}
static void on_replaced(void *arg) { T.replaced = true; }

static void on_preempted(void *arg, const struct lease_answer *answers, size_t n)
{
	if (!T.no_lease_answers)
		engine_lease_events.on_preempted(T.engine, answers, n);
}
static void on_hb(void *arg, const struct lease_hb *hb) { engine_lease_events.on_hb(T.engine, hb); }
static void on_lease_state(void *arg, bool up, const char *text) {}
static void on_page(void *arg, const struct lease_page *page)
{
	if (T.engine)
		engine_lease_events.on_page(T.engine, page);
}

static const struct lease_events lease_events = { .on_preempted = on_preempted, .on_hb = on_hb, .on_page = on_page,
						  .on_state = on_lease_state };

/* The store is up, and knows of no rows. */
static void open_master(void)
{
	engine_on_store_state(T.engine, true, "");
	struct store_master_open *o = AWAIT(store_master_open, STORE_MASTER_OPEN);
	o->ret_incarnation = 1;
	snprintf(o->ret_store_id, sizeof(o->ret_store_id), "the-store");
	answer(&o->op, STORE_OK);
	answer(await(STORE_QUEUES), STORE_OK);
	struct store_due *d = AWAIT(store_due, STORE_DUE);
	d->ret_next_in_ns = -1;
	answer(&d->op, STORE_OK);
}

static struct grpc_channel *connect_channel(void)
{
	static const struct stream_events none;
	struct grpc_channel_config cc = { .authority = "test", .user_agent = "test/1", .on_ready = on_ready, .on_closed = on_closed };
	struct grpc_channel *channel;
	struct stream *a, *b;
	grpc_limits_default(&cc.limits);
	assert_int_equal(stream_pair(T.loop, 65536, &none, NULL, &none, NULL, &a, &b), 0);
	assert_int_equal(grpc_server_adopt(T.server, a), 0);
	assert_int_equal(grpc_channel_adopt(T.loop, b, &cc, &channel), 0);
	T.ready = false;
	TURNS_UNTIL(T.loop, T.ready);
	return channel;
}

/* 0: the default lease. */
static int set_up_with(int64_t lease_ns)
{
	struct lease_memory_config mc = { .task_key_ttl_ns = NS_PER_S };
	memset(&T, 0, sizeof(T));
	T.w.stored = -1;
	list_init(&T.asked);
	T.store.ops = &store_ops;
	assert_int_equal(loop_new(&T.loop), 0);
	T.lease = lease_memory_new(T.loop, &mc, &lease_events, NULL);
	struct engine_config ec = {
		.loop = T.loop, .master_id = "m1", .lost_limit = 3, .store = &T.store, .lease = T.lease, .on_replaced = on_replaced,
	};
	core_config_default(&ec.core);
	if (lease_ns) {
		ec.core.lease_ttl_ns = lease_ns;
		ec.core.heartbeat_ns = lease_ns / 5;
	}
	assert_int_equal(engine_new(&ec, &T.engine), 0);
	T.rpc = (struct rpc){
		.engine = T.engine, .loop = T.loop,
		.limits = { .message_bytes = 4 << 20, .payload_bytes = 1 << 20, .result_bytes = 1 << 20, .error_bytes = 16 << 10,
			    .command_env_bytes = 256 << 10, .params_bytes = 64 << 10, .log_bytes = LOG_MAX, .tasks_per_submit = 100 },
	};
	rpc_init(&T.rpc);
	struct grpc_server_config sc = { .methods = rpc_methods, .n_methods = rpc_n_methods, .app = &T.rpc, .max_connections = 9 };
	grpc_limits_default(&sc.limits);
	assert_int_equal(grpc_server_new(T.loop, &sc, &T.server), 0);
	T.channel = connect_channel();
	open_master();
	return 0;
}

static int set_up(void **state) { return set_up_with(0); }
static int set_up_short(void **state) { return set_up_with(NS_PER_S); }

/* As reinsd does it. */
static int tear_down(void **state)
{
	grpc_channel_free(T.channel);
	grpc_channel_free(T.another);
	pb_free(T.w.last);
	grpc_server_free(T.server);
	struct list *n;
	while ((n = list_pop_front(&T.asked)))
		answer(container_of(n, struct store_op, node), STORE_UNAVAILABLE);
	lease_free(T.lease);
	engine_free(T.engine);
	rpc_done(&T.rpc);
	loop_turn(T.loop, false);
	loop_turn(T.loop, false);
	loop_free(T.loop);
	return 0;
}

/* ---- a worker ---- */

static void connect_worker(struct call *w)
{
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Hello h = REINS__V1__HELLO__INIT;
	h.protocol = 1;
	h.worker_id = (char *)"w1";
	h.instance = (char *)INSTANCE;
	h.slots = 2;
	h.runs_commands = true;
	h.last = true;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_HELLO;
	m.hello = &h;
	begin(w, "/reins.v1.WorkerService/Session", GRPC_CALL_STREAM);
	say(w, &m);
	struct store_session_open *o = AWAIT(store_session_open, STORE_SESSION_OPEN);
	o->ret_session = 1;
	answer(&o->op, STORE_OK);
	TURNS_UNTIL(T.loop, w->n_messages == 1);
	assert_int_equal(w->last->kind_case, REINS__V1__MASTER_MESSAGE__KIND_WELCOME);
}

static void say_log(struct call *w, int64_t offset, const char *text)
{
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Log l = REINS__V1__LOG__INIT;
	l.task_id = (char *)TASK_1;
	l.attempt = 1;
	l.stream = REINS__V1__LOG_STREAM__STDOUT;
	l.offset = offset;
	l.data = (ProtobufCBinaryData){ strlen(text), (uint8_t *)(uintptr_t)text };
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_LOG;
	m.log = &l;
	say(w, &m);
}

static void say_end(struct call *w, Reins__V1__Outcome__Kind kind, Reins__V1__Stop__Reason why)
{
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__OutcomeReport report = REINS__V1__OUTCOME_REPORT__INIT;
	Reins__V1__Outcome o = REINS__V1__OUTCOME__INIT, *os[] = { &o };
	o.task_id = (char *)TASK_1;
	o.attempt = 1;
	o.kind = kind;
	o.stop_reason = why;
	o.oom_killed = kind == REINS__V1__OUTCOME__KIND__FAILED;
	report.outcomes = os;
	report.n_outcomes = 1;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_OUTCOME;
	m.outcome = &report;
	say(w, &m);
}

static void say_outcome(struct call *w)
{
	say_end(w, REINS__V1__OUTCOME__KIND__SUCCEEDED, REINS__V1__STOP__REASON__REASON_UNSPECIFIED);
}

static void say_started(struct call *w, char **devices, size_t n)
{
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Started started = REINS__V1__STARTED__INIT;
	Reins__V1__StartedAttempt a = REINS__V1__STARTED_ATTEMPT__INIT, *as[] = { &a };
	Google__Protobuf__Timestamp at = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
	at.seconds = 1700000000;
	a.task_id = (char *)TASK_1;
	a.attempt = 1;
	a.started_at = &at;
	a.devices = devices;
	a.n_devices = n;
	started.attempts = as;
	started.n_attempts = 1;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_STARTED;
	m.started = &started;
	say(w, &m);
}

/* ---- logs and outcomes ---- */

static struct store_log_append *await_append(void)
{
	return AWAIT(store_log_append, STORE_LOG_APPEND);
}

static void expect_piece(const struct store_log_piece *p, int64_t offset, const char *text)
{
	assert_int_equal(p->offset, offset);
	assert_non_null(p->data);
	assert_int_equal(p->data->len, strlen(text));
	assert_memory_equal(p->data->data, text, p->data->len);
}

static void test_an_outcome_waits_for_its_log(void **state)
{
	connect_worker(&T.w);
	say_log(&T.w, 0, "hello");
	struct store_log_append *o = await_append();
	say_log(&T.w, 5, " you");
	say_log(&T.w, 9, " all");
	say_outcome(&T.w);
	settle();
	/* One at a time; what came meanwhile goes together. */
	assert_int_equal(n_asked(STORE_LOG_APPEND), 1);
	assert_int_equal(o->n, 1);
	expect_piece(&o->pieces[0], 0, "hello");
	assert_null(asked(STORE_RECORD));
	answer(&o->op, STORE_OK);
	o = await_append();
	settle();
	assert_int_equal(T.w.stored, 5);
	assert_int_equal(o->n, 1);
	expect_piece(&o->pieces[0], 5, " you all");
	assert_null(asked(STORE_RECORD));
	answer(&o->op, STORE_OK);
	struct store_record *r = AWAIT(store_record, STORE_RECORD);
	assert_int_equal(r->log_dropped, 0);
	settle();
	assert_int_equal(T.w.stored, 13);
	int before = T.w.n_messages;
	settle();
	assert_int_equal(T.w.n_messages, before); /* nothing is acknowledged before the store has it */
	r->ret_verdict = CORE_RECORD_RECORDED;
	r->ret_state = STORE_COMPLETED;
	answer(&r->op, STORE_OK);
	TURNS_UNTIL(T.loop, T.w.n_messages > before);
	assert_int_equal(T.w.last->kind_case, REINS__V1__MASTER_MESSAGE__KIND_OUTCOME_ACK);
	assert_int_equal(T.w.last->outcome_ack->verdicts[0]->verdict, REINS__V1__OUTCOME_VERDICT__VERDICT__RECORDED);
}

/* The store has no room in its queue: tried again, in order, and the outcome waits. */
static void test_a_log_is_tried_again(void **state)
{
	connect_worker(&T.w);
	say_log(&T.w, 0, "hello");
	answer(await(STORE_LOG_APPEND), STORE_UNAVAILABLE);
	say_log(&T.w, 5, " you");
	say_outcome(&T.w);
	struct store_log_append *o = await_append();
	settle();
	assert_int_equal(n_asked(STORE_LOG_APPEND), 1);
	expect_piece(&o->pieces[0], 0, "hello");
	assert_int_equal(T.w.stored, -1);
	assert_null(asked(STORE_RECORD));
	answer(&o->op, STORE_OK);
	o = await_append();
	expect_piece(&o->pieces[0], 5, " you");
	answer(&o->op, STORE_OK);
	await(STORE_RECORD);
}

/* Its content can't be stored, or there is no room for it at all: the gap is, and nothing is held back. */
static void test_a_log_that_is_refused_becomes_a_gap(void **state)
{
	connect_worker(&T.w);
	say_log(&T.w, 0, "hello");
	say_outcome(&T.w);
	answer(await(STORE_LOG_APPEND), STORE_REFUSED);
	struct store_log_append *o = await_append();
	assert_int_equal(o->n, 1);
	assert_null(o->pieces[0].data);
	assert_int_equal(o->pieces[0].dropped, 5);
	answer(&o->op, STORE_REFUSED);
	AWAIT(store_record, STORE_RECORD);
	settle();
	assert_int_equal(T.w.stored, 5);
	assert_int_equal(n_asked(STORE_LOG_APPEND), 0);
}

/* The stream ends while something is to be tried again: nothing waits for it. */
static void test_a_stream_that_ends_with_its_log_unstored(void **state)
{
	connect_worker(&T.w);
	say_log(&T.w, 0, "hello");
	answer(await(STORE_LOG_APPEND), STORE_UNAVAILABLE);
	say_outcome(&T.w);
	settle();
	grpc_client_cancel(T.w.c);
	TURNS_UNTIL(T.loop, T.w.done);
	settle();
	assert_int_equal(n_asked(STORE_LOG_APPEND), 0);
	assert_null(asked(STORE_RECORD));
}

static void say_gap(struct call *w, int64_t offset, int64_t dropped)
{
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Log l = REINS__V1__LOG__INIT;
	l.task_id = (char *)TASK_1;
	l.attempt = 1;
	l.offset = offset;
	l.dropped_bytes = dropped;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_LOG;
	m.log = &l;
	say(w, &m);
}

/* What the worker dropped, what it left out, and what is over the limit is stored as gaps, and counted. */
static void test_gaps(void **state)
{
	static char block[RPC_LOG_CHUNK_MAX + 1];
	memset(block, 'x', RPC_LOG_CHUNK_MAX);
	connect_worker(&T.w);
	say_log(&T.w, 0, "head");
	struct store_log_append *o = await_append();
	say_gap(&T.w, 4, 1000);
	say_log(&T.w, 1010, "tail");
	say_log(&T.w, 1010, "tail"); /* once more */
	say_log(&T.w, 1012, "iles");
	settle();
	answer(&o->op, STORE_OK);
	o = await_append();
	assert_int_equal(o->n, 2);
	assert_int_equal(o->pieces[0].offset, 4);
	assert_int_equal(o->pieces[0].dropped, 1006);
	expect_piece(&o->pieces[1], 1010, "tailes");
	answer(&o->op, STORE_OK);
	int64_t at = 1016;
	for (int i = 0; i < LOG_MAX / RPC_LOG_CHUNK_MAX + 3; i++, at += RPC_LOG_CHUNK_MAX) {
		say_log(&T.w, at, block);
		o = await_append();
		bool over = i > LOG_MAX / RPC_LOG_CHUNK_MAX - 1;
		assert_int_equal(o->pieces[0].dropped, over ? RPC_LOG_CHUNK_MAX : 0);
		answer(&o->op, STORE_OK);
	}
	say_outcome(&T.w);
	settle();
	assert_int_equal(T.w.stored, at);
	assert_false(T.w.done);
	say_log(&T.w, INT64_MAX, "farther than ends can be counted");
	TURNS_UNTIL(T.loop, T.w.done);
	assert_int_equal(T.w.code, STATUS_INVALID_ARGUMENT);
	assert_int_equal(n_asked(STORE_LOG_APPEND), 0);
}

static void test_a_gap_to_beyond_what_can_be_counted(void **state)
{
	connect_worker(&T.w);
	say_gap(&T.w, INT64_C(1) << 62, INT64_C(1) << 62);
	TURNS_UNTIL(T.loop, T.w.done);
	assert_int_equal(T.w.code, STATUS_INVALID_ARGUMENT);
	assert_int_equal(n_asked(STORE_LOG_APPEND), 0);
}

/* Whatever were answered, the worker would forget it. */
static void test_a_refused_outcome_stays_with_its_worker(void **state)
{
	connect_worker(&T.w);
	say_outcome(&T.w);
	answer(await(STORE_RECORD), STORE_REFUSED);
	int before = T.w.n_messages;
	settle();
	assert_int_equal(T.w.n_messages, before);
	assert_false(T.w.done);
	say_outcome(&T.w);
	struct store_record *r = AWAIT(store_record, STORE_RECORD);
	r->ret_verdict = CORE_RECORD_RECORDED;
	r->ret_state = STORE_COMPLETED;
	answer(&r->op, STORE_OK);
	TURNS_UNTIL(T.loop, T.w.n_messages > before);
	assert_int_equal(T.w.last->outcome_ack->verdicts[0]->verdict, REINS__V1__OUTCOME_VERDICT__VERDICT__RECORDED);
}

static struct store_record *ended(Reins__V1__Outcome__Kind kind, Reins__V1__Stop__Reason why)
{
	say_end(&T.w, kind, why);
	return AWAIT(store_record, STORE_RECORD);
}

/* A start is not stored by itself when the end comes at once; the end says then what was given to it. */
static void test_what_is_recorded_of_an_end(void **state)
{
	char *devices[] = { (char[]){ "0" }, (char[]){ "no name" }, (char[]){ "GPU-5f" }, (char[]){ "" } };
	connect_worker(&T.w);
	say_started(&T.w, devices, ARRAY_LEN(devices));
	struct store_record *r = ended(REINS__V1__OUTCOME__KIND__STOPPED, REINS__V1__STOP__REASON__DRAINED);
	assert_int_equal(r->outcome, STORE_STOPPED);
	assert_string_equal(r->words, "drained by worker");
	assert_string_equal(r->devices, "0 GPU-5f");
	assert_false(r->oom_killed);
	assert_int_equal(r->retry_in_ns, 0);
	r->ret_verdict = CORE_RECORD_FENCED;
	answer(&r->op, STORE_OK);
	settle();
	r = ended(REINS__V1__OUTCOME__KIND__LOST, REINS__V1__STOP__REASON__DRAINED);
	assert_int_equal(r->outcome, STORE_WORKER_LOST);
	assert_int_equal(r->lost_limit, 3);
	assert_null(r->words);
	assert_null(r->devices);
	r->ret_verdict = CORE_RECORD_FENCED;
	int before = T.w.n_messages;
	settle();
	assert_int_equal(T.w.n_messages, before); /* as any other: not before the store has it */
	answer(&r->op, STORE_OK);
	TURNS_UNTIL(T.loop, T.w.n_messages > before);
	r = ended(REINS__V1__OUTCOME__KIND__FAILED, REINS__V1__STOP__REASON__REASON_UNSPECIFIED);
	assert_true(r->oom_killed);
	assert_null(r->words);
}

/* ---- submits ---- */

static void submit(struct call *c, int64_t run_at_s)
{
	Reins__V1__SubmitTaskRequest req = REINS__V1__SUBMIT_TASK_REQUEST__INIT;
	Reins__V1__TaskSpec spec = REINS__V1__TASK_SPEC__INIT;
	Google__Protobuf__Timestamp at = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
	char *command[] = { (char[]){ "true" } };
	spec.command = command;
	spec.n_command = 1;
	at.seconds = run_at_s;
	if (run_at_s)
		spec.run_at = &at;
	req.spec = &spec;
	begin(c, "/reins.v1.TaskService/SubmitTask", GRPC_CALL_UNARY);
	say(c, &req);
}

static void test_ok_only_after_the_commit(void **state)
{
	submit(&T.c, 0);
	struct store_insert *i = AWAIT(store_insert, STORE_INSERT);
	settle();
	assert_false(T.c.done);
	i->ret_verdict = STORE_INSERT_CREATED;
	answer(&i->op, STORE_OK);
	TURNS_UNTIL(T.loop, T.c.done);
	assert_int_equal(T.c.code, STATUS_OK);
	assert_int_equal(T.c.n_messages, 1);
}

static void test_a_run_at_beyond_all_counting(void **state)
{
	static const int64_t at[] = { INT64_C(253402300799), -62135596800 };
	for (size_t n = 0; n < ARRAY_LEN(at); n++) {
		T.c = (struct call){ .n_messages = 0 };
		submit(&T.c, at[n]);
		struct store_insert *i = AWAIT(store_insert, STORE_INSERT);
		i->ret_verdict = STORE_INSERT_CREATED;
		answer(&i->op, STORE_OK);
		TURNS_UNTIL(T.loop, T.c.done);
		assert_int_equal(T.c.code, STATUS_OK);
	}
	settle();
	assert_null(asked(STORE_DUE)); /* not due for a while */
}

/* The program ends while one submit waits for the lease table and another, whose caller has gone, for the store: a checker
 * for leaks must find nothing. */
static void test_submits_outlive_their_calls(void **state)
{
	struct core_counts counts;
	submit(&T.gone, 0);
	await(STORE_INSERT);
	grpc_client_cancel(T.gone.c);
	TURNS_UNTIL(T.loop, T.gone.done);
	connect_worker(&T.w);
	T.no_lease_answers = true;
	submit(&T.c, 0);
	settle();
	core_counts(engine_core(T.engine), &counts);
	assert_int_equal(counts.in_flight, 1);
	assert_int_equal(n_asked(STORE_INSERT), 1);
	assert_false(T.c.done);
}

/* A store that never answers: the call ends, the operation is the store's. A call that waits for news waits on. */
static void test_a_call_without_a_deadline_does_not_wait_for_ever(void **state)
{
	T.rpc.store_wait_ns = 50 * NS_PER_MS;
	submit(&T.c, 0);
	struct store_insert *i = AWAIT(store_insert, STORE_INSERT);
	struct uuid id = i->task.id;
	TURNS_UNTIL(T.loop, T.c.done);
	assert_int_equal(T.c.code, STATUS_UNAVAILABLE);
	assert_non_null(asked(STORE_INSERT));
	i->ret_verdict = STORE_INSERT_CREATED;
	answer(&i->op, STORE_OK);
	settle();

	Reins__V1__GetTaskRequest m = REINS__V1__GET_TASK_REQUEST__INIT;
	Google__Protobuf__Duration hour = { .base = PROTOBUF_C_MESSAGE_INIT(&google__protobuf__duration__descriptor), .seconds = 3600 };
	m.task_id = (char *)TASK_1;
	m.wait = &hour;
	begin(&T.gone, "/reins.v1.TaskService/GetTask", GRPC_CALL_UNARY);
	say(&T.gone, &m);
	grpc_client_half_close(T.gone.c);
	struct store_get *g = AWAIT(store_get, STORE_GET);
	g->ret_found = true;
	g->ret_task.state = STORE_PENDING;
	assert_int_equal(uuid_parse(TASK_1, strlen(TASK_1), &id), 0);
	answer(&g->op, STORE_OK);
	turns_for(T.loop, 200 * NS_PER_MS);
	assert_false(T.gone.done);
	engine_news(T.engine, &id, false);
	await(STORE_GET);
	TURNS_UNTIL(T.loop, T.gone.done);
	assert_int_equal(T.gone.code, STATUS_UNAVAILABLE);
}

/* ---- large answers ---- */

#define READERS 100

static void ask_task(struct call *c)
{
	Reins__V1__GetTaskRequest m = REINS__V1__GET_TASK_REQUEST__INIT;
	m.task_id = (char *)TASK_1;
	begin(c, "/reins.v1.TaskService/GetTask", GRPC_CALL_UNARY);
	say(c, &m);
	grpc_client_half_close(c->c);
}

static void ask_page(struct call *c)
{
	Reins__V1__ListTasksRequest m = REINS__V1__LIST_TASKS_REQUEST__INIT;
	begin(c, "/reins.v1.TaskService/ListTasks", GRPC_CALL_UNARY);
	say(c, &m);
	grpc_client_half_close(c->c);
}

static int n_done(const struct call *c)
{
	int n = 0;
	for (int i = 0; i < READERS; i++)
		n += c[i].done;
	return n;
}

/* However many ask: so many answers at a time, each makes room for the next, and who has left is not asked for. */
static void test_large_answers_take_turns(void **state)
{
	static const struct {
		void (*ask)(struct call *c);
		enum store_kind kind;
		int at_a_time;
		enum status_code code;
	} kinds[] = {
		{ ask_task, STORE_GET, 32, STATUS_NOT_FOUND },
		{ ask_page, STORE_LIST, 8, STATUS_OK },
	};
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		static struct call c[READERS];
		int n = 0;
		memset(c, 0, sizeof(c));
		for (int i = 0; i < READERS; i++)
			kinds[k].ask(&c[i]);
		settle();
		assert_int_equal(n_asked(kinds[k].kind), kinds[k].at_a_time);
		answer(asked(kinds[k].kind), STORE_OK);
		n++;
		settle();
		assert_int_equal(n_asked(kinds[k].kind), kinds[k].at_a_time);
		assert_int_equal(n_done(c), 1);
		grpc_client_cancel(c[0].done ? c[1].c : c[0].c); /* its read is on its way */
		grpc_client_cancel(c[READERS - 1].c);            /* it waits */
		settle();
		for (; asked(kinds[k].kind); n++) {
			answer(asked(kinds[k].kind), STORE_OK);
			settle();
		}
		assert_int_equal(n, READERS - 1);
		assert_int_equal(n_done(c), READERS);
		for (int i = 2; i < READERS - 1; i++)
			assert_int_equal(c[i].code, kinds[k].code);
		for (size_t l = 0; l < RPC_READ_KINDS; l++)
			assert_int_equal(T.rpc.reads.lanes[l].n_begun, 0);
	}
}

static void ask_page_of(struct call *c, int32_t size)
{
	Reins__V1__ListTasksRequest m = REINS__V1__LIST_TASKS_REQUEST__INIT;
	m.page_size = size;
	begin(c, "/reins.v1.TaskService/ListTasks", GRPC_CALL_UNARY);
	say(c, &m);
	grpc_client_half_close(c->c);
}

static int32_t newest_page(void)
{
	int32_t size = 0;
	list_each(it, &T.asked)
		if (container_of(it, struct store_op, node)->kind == STORE_LIST)
			size = container_of(it, struct store_list, op.node)->limit;
	return size;
}

static void from_now_on_another(void)
{
	struct grpc_channel *one = T.channel;
	T.channel = T.another;
	T.another = one;
}

/* One connection's many pages hold up neither a task nor another connection's page. */
static void test_a_flood_of_pages_waits_by_itself(void **state)
{
	static struct call c[READERS], other[3], task[2];
	memset(c, 0, sizeof(c));
	memset(other, 0, sizeof(other));
	memset(task, 0, sizeof(task));
	T.another = connect_channel();
	for (int i = 0; i < READERS; i++)
		ask_page_of(&c[i], 11);
	settle();
	assert_int_equal(n_asked(STORE_LIST), 8);
	ask_task(&task[0]);
	from_now_on_another();
	ask_task(&task[1]);
	for (int i = 0; i < 3; i++)
		ask_page_of(&other[i], 21 + i);
	settle();
	assert_int_equal(n_asked(STORE_GET), 2);
	/* In turn. */
	static const int32_t then[] = { 11, 21, 11, 22, 11, 23, 11, 11 };
	for (size_t i = 0; i < ARRAY_LEN(then); i++) {
		answer(asked(STORE_LIST), STORE_OK);
		settle();
		assert_int_equal(n_asked(STORE_LIST), 8);
		assert_int_equal(newest_page(), then[i]);
	}
	/* Who was next leaves: the one behind it is. */
	for (int i = 0; i < 3; i++)
		grpc_client_cancel(other[i].c);
	ask_page_of(&task[1], 31);
	ask_page_of(&other[0], 32);
	settle();
	grpc_client_cancel(task[1].c);
	settle();
	from_now_on_another();
	while (newest_page() != 32) {
		assert_int_equal(newest_page(), 11);
		answer(asked(STORE_LIST), STORE_OK);
		settle();
	}
	while (asked(STORE_LIST) || asked(STORE_GET)) {
		answer(asked(STORE_LIST) ? asked(STORE_LIST) : asked(STORE_GET), STORE_OK);
		settle();
	}
	assert_int_equal(n_done(c), READERS);
	assert_int_equal(other[0].code, STATUS_OK);
	for (size_t l = 0; l < RPC_READ_KINDS; l++)
		assert_int_equal(T.rpc.reads.lanes[l].n_begun, 0);
}

/* ---- the master's row ---- */

static void test_a_replaced_master_does_not_come_back(void **state)
{
	connect_worker(&T.w);
	struct store_beat *b = AWAIT(store_beat, STORE_BEAT);
	b->ret_replaced = true;
	answer(&b->op, STORE_OK);
	assert_true(T.replaced);
	assert_false(engine_ready(T.engine));
	TURNS_UNTIL(T.loop, T.w.done);
	assert_int_equal(T.w.code, STATUS_UNAVAILABLE);
	engine_on_store_state(T.engine, false, "gone");
	engine_on_store_state(T.engine, true, "back");
	settle();
	assert_null(asked(STORE_MASTER_OPEN));
}

/* Its streams end, it opens its row again as the same process, and serves on; the workers come anew. */
static void test_a_master_that_was_taken_over_goes_on(void **state)
{
	connect_worker(&T.w);
	struct store_beat *b = AWAIT(store_beat, STORE_BEAT);
	struct uuid process = b->process;
	b->ret_taken_over = true;
	answer(&b->op, STORE_OK);
	assert_false(T.replaced);
	assert_false(engine_ready(T.engine));
	TURNS_UNTIL(T.loop, T.w.done);
	assert_int_equal(T.w.code, STATUS_UNAVAILABLE);
	struct store_master_open *o = AWAIT(store_master_open, STORE_MASTER_OPEN);
	assert_true(o->again && uuid_eq(&o->process, &process));
	answer(&o->op, STORE_UNAVAILABLE);
	o = AWAIT(store_master_open, STORE_MASTER_OPEN);
	assert_true(o->again);
	o->ret_incarnation = 3;
	answer(&o->op, STORE_OK);
	assert_true(engine_ready(T.engine));
	assert_int_equal(engine_incarnation(T.engine), 3);
	pb_free(T.w.last);
	T.w = (struct call){ .stored = -1 };
	connect_worker(&T.w);
	b = AWAIT(store_beat, STORE_BEAT);
	assert_int_equal(b->incarnation, 3);
	/* Another process was faster than its next opening. */
	b->ret_taken_over = true;
	answer(&b->op, STORE_OK);
	o = AWAIT(store_master_open, STORE_MASTER_OPEN);
	o->ret_replaced = true;
	answer(&o->op, STORE_OK);
	assert_true(T.replaced);
	assert_false(engine_ready(T.engine));
}

/* ---- a process that stands still ---- */

static bool stood;

/* Longer than a lease, between what the turn heard and what it decides. */
static void on_stand_still(struct loop_timer *t)
{
	static const struct timespec longer = { .tv_sec = 1, .tv_nsec = 300 * 1000 * 1000 };
	nanosleep(&longer, NULL);
	stood = true;
	engine_on_lease_state(T.engine, true, "");
}

static void test_a_stop_within_a_turn_judges_nobody(void **state)
{
	struct loop_timer t;
	stood = false;
	loop_timer_init(&t, T.loop, on_stand_still);
	connect_worker(&T.w);
	loop_timer_set(&t, 0);
	TURNS_UNTIL(T.loop, stood);
	settle();
	assert_false(T.w.done);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RUN(test_an_outcome_waits_for_its_log),
		RUN(test_a_log_is_tried_again),
		RUN(test_a_log_that_is_refused_becomes_a_gap),
		RUN(test_a_stream_that_ends_with_its_log_unstored),
		RUN(test_gaps),
		RUN(test_a_gap_to_beyond_what_can_be_counted),
		RUN(test_a_refused_outcome_stays_with_its_worker),
		RUN(test_what_is_recorded_of_an_end),
		RUN(test_ok_only_after_the_commit),
		RUN(test_a_run_at_beyond_all_counting),
		RUN(test_submits_outlive_their_calls),
		RUN(test_a_call_without_a_deadline_does_not_wait_for_ever),
		RUN(test_large_answers_take_turns),
		RUN(test_a_flood_of_pages_waits_by_itself),
		RUN(test_a_replaced_master_does_not_come_back),
		RUN(test_a_master_that_was_taken_over_goes_on),
		cmocka_unit_test_setup_teardown(test_a_stop_within_a_turn_judges_nobody, set_up_short, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
