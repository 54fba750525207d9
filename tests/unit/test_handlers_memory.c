/* Each allocation on the way of a call to the real services, on a SQLite store, fails once, and then from there on all of them:
 * from an accepted connection to the answer, over gRPC on HTTP/2 and Connect with JSON on HTTP/1.1, in the store's threads too.
 * What may come of it is the whole answer, RESOURCE_EXHAUSTED, or a lost connection.  A read's answer is the same to the last byte;
 * what changes tasks has done so if it says so, and only once.  With memory again the next call is as ever.
 *
 * Left out is what ends the process by design (common/base/base.h), and what SQLite takes for itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <malloc.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/grpc/server.h"
#include "common/h2/h2.h"
#include "common/http1/http1.h"
#include "common/pb/json_in.h"
#include "reins/v1/admin_service.pb-c.h"
#include "reins/v1/task_service.pb-c.h"
#include "server/lease/memory/memory.h"
#include "server/rpc/rpc.h"
#include "server/store/sqlite/sqlite_store.h"
#include "server/store/store_logs.h"
#include "tests/unit/failing_memory.h"
#include "tests/unit/h2_raw.h"
#include "tests/unit/turns.h"

#define LISTED 40
#define LOG_BYTES 20000
#define ROUNDS_MAX 2000 /* far more than any call has allocations */

static struct {
	char dir[40];
	struct loop *loop;
	struct store *store;
	struct lease *lease;
	struct engine *engine;
	struct rpc rpc;
	struct http1_server *http1;
	struct grpc_server *server;
	struct stream *s;
	struct buf got, text; /* from the server; of an answer without frames */
	bool ended, op_done;
	int code; /* grpc-status */
	int64_t round;
	char done_id[UUID_TEXT_LEN + 1], target_id[UUID_TEXT_LEN + 1]; /* a task that has ended, with a log; one to be changed */
} T;

/* ---- calls ---- */

/* In requests $K is a number of this round, $D and $T are the two tasks. */
struct method {
	const char *path;
	const ProtobufCMessageDescriptor *request;
	const char *json;
	bool stream, endless; /* endless: over with the first message */
	bool same;            /* the answer is */
	const struct method *before; /* called with memory, whatever it says */
	const char *state;    /* of the target once OK was said */
	bool once;            /* said again it has been done already */
};

#define TASKS "/reins.v1.TaskService/"
#define ADMIN "/reins.v1.AdminService/"
#define REQUEST(name) &reins__v1__##name##_request__descriptor
#define SPEC                                                                                                             \
	"{\"name\":\"n\",\"queue\":\"q\",\"command\":[\"true\"],\"payload\":\"aGVsbG8=\",\"labels\":{\"a\":\"b\",\"c\":\"\"},\"params\":" \
	"{\"lr\":\"0.1\"},\"env\":{\"E\":\"1\"},\"resources\":{\"custom\":{\"licenses\":\"2\",\"seats\":\"1\"}}}"

static const struct method get_task = { TASKS "GetTask", REQUEST(get_task), "{\"taskId\":\"$D\"}", .same = true };
static const struct method get_target = { TASKS "GetTask", REQUEST(get_task), "{\"taskId\":\"$T\"}" };
static const struct method list_tasks = { TASKS "ListTasks", REQUEST(list_tasks),
	"{\"filter\":{\"queue\":\"listed\",\"labelSelector\":\"team in (x,y),!z\",\"labels\":{\"team\":\"x\"}},\"pageSize\":50,\"view\":\"TASK_VIEW_FULL\"}",
	.same = true };
static const struct method read_logs = { TASKS "ReadLogs", REQUEST(read_logs), "{\"taskId\":\"$D\"}", .stream = true, .same = true };
static const struct method read_metrics = { TASKS "ReadMetrics", REQUEST(read_metrics), "{\"taskId\":\"$D\"}", .same = true };
static const struct method watch_tasks = { TASKS "WatchTasks", REQUEST(watch_tasks), "{\"filter\":{\"queue\":\"q\"}}", .stream = true,
	.endless = true };
static const struct method list_queues = { ADMIN "ListQueues", REQUEST(list_queues), "{}", .same = true };
static const struct method list_workers = { ADMIN "ListWorkers", REQUEST(list_workers), "{}" };
static const struct method submit = { TASKS "SubmitTask", REQUEST(submit_task), "{\"idempotencyKey\":\"k$K\",\"spec\":" SPEC "}", .once = true };
static const struct method submit_many = { TASKS "SubmitTasks", REQUEST(submit_tasks),
	"{\"requests\":[{\"idempotencyKey\":\"m$K\",\"spec\":" SPEC "},{\"idempotencyKey\":\"n$K\",\"spec\":" SPEC "},{\"idempotencyKey\":\"o$K\",\"spec\":" SPEC
	"}]}", .once = true };
static const struct method cancel_again = { TASKS "CancelTask", REQUEST(cancel_task), "{\"taskId\":\"$T\"}" };
static const struct method retry_again = { TASKS "RetryTask", REQUEST(retry_task), "{\"taskId\":\"$T\"}" };
static const struct method cancel = { TASKS "CancelTask", REQUEST(cancel_task), "{\"taskId\":\"$T\",\"reason\":\"no more\"}", .before = &retry_again,
	.state = "CANCELLED" };
static const struct method retry = { TASKS "RetryTask", REQUEST(retry_task), "{\"taskId\":\"$T\"}", .before = &cancel_again, .state = "PENDING" };
static const struct method cancel_many = { TASKS "CancelTasks", REQUEST(cancel_tasks), "{\"filter\":{\"queue\":\"target\"}}", .before = &retry_again,
	.state = "CANCELLED" };
static const struct method retry_many = { TASKS "RetryTasks", REQUEST(retry_tasks), "{\"filter\":{\"queue\":\"target\"}}", .before = &cancel_again,
	.state = "PENDING" };
static const struct method pause_queue = { ADMIN "PauseQueue", REQUEST(pause_queue), "{\"queue\":\"other\",\"reason\":\"new disks\"}" };
static const struct method resume = { ADMIN "ResumeQueue", REQUEST(resume_queue), "{\"queue\":\"other\"}" };
static const struct method cancel_rest = { TASKS "CancelTasks", REQUEST(cancel_tasks), "{\"filter\":{\"queue\":\"q\"}}" };

static const struct method *const swept[] = { &get_task, &list_tasks, &read_logs, &read_metrics, &watch_tasks, &list_queues, &list_workers, &submit,
					      &submit_many, &cancel, &retry, &cancel_many, &retry_many, &pause_queue, &resume };

static void request_of(const struct method *m, struct buf *b)
{
	for (const char *p = m->json; *p; p++) {
		char number[24];
		snprintf(number, sizeof(number), "%lld", (long long)T.round);
		const char *put = *p != '$' ? NULL : p[1] == 'K' ? number : p[1] == 'D' ? T.done_id : T.target_id;
		assert_int_equal(buf_add(b, put ? put : p, put ? strlen(put) : 1), 0);
		p += put != NULL;
	}
}

static void envelope(struct buf *b, const struct buf *of)
{
	uint8_t head[5] = { 0, 0, (uint8_t)(buf_len(of) >> 16), (uint8_t)(buf_len(of) >> 8), (uint8_t)buf_len(of) };
	assert_int_equal(buf_add(b, head, 5), 0);
	assert_int_equal(buf_add(b, buf_head(of), buf_len(of)), 0);
}

static void say_grpc(const struct method *m, const struct buf *json, struct buf *out)
{
	struct raw r;
	struct refusal why;
	struct buf wire, framed;
	buf_init(&wire, 1 << 20);
	buf_init(&framed, 1 << 20);
	if (pb_json_read(m->request, (const char *)buf_head(json), buf_len(json), NULL, &wire, &why))
		fail_msg("%s: %s", m->path, why.message);
	envelope(&framed, &wire);
	raw_init(&r, true);
	raw_headers(&r, 1, 0, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", m->path, "content-type", "application/grpc",
		    "te", "trailers", NULL);
	raw_frame(&r, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, buf_head(&framed), buf_len(&framed));
	assert_int_equal(buf_add(out, buf_head(&r.out), buf_len(&r.out)), 0);
	raw_done(&r);
	buf_done(&wire);
	buf_done(&framed);
}

static void say_json(const struct method *m, const struct buf *json, struct buf *out)
{
	struct buf framed;
	buf_init(&framed, 1 << 20);
	if (m->stream)
		envelope(&framed, json);
	const struct buf *body = m->stream ? &framed : json;
	assert_int_equal(buf_addf(out, "POST %s HTTP/1.1\r\nhost: a\r\ncontent-type: application/%sjson\r\ncontent-length: %zu\r\nconnection: close\r\n\r\n",
				  m->path, m->stream ? "connect+" : "", buf_len(body)), 0);
	assert_int_equal(buf_add(out, buf_head(body), buf_len(body)), 0);
	buf_done(&framed);
}

/* ---- answers ---- */

/* Reasons of a google.rpc.ErrorInfo, in base64. */
#define OUT_OF_MEMORY "Cg1PVVRfT0ZfTUVNT1JZ"
#define REPLY_TOO_LARGE "Cg9SRVBMWV9UT09fTEFSR0U"

enum said { OPEN, OK, EXHAUSTED, CUT, WRONG };

static int grpc_status(nghttp2_hd_inflater *hd, const struct raw_seen *f)
{
	const uint8_t *in = f->payload;
	size_t len = f->len;
	int code = -1, flags = 0;
	while (len && !(flags & NGHTTP2_HD_INFLATE_FINAL)) {
		nghttp2_nv nv;
		ssize_t n = nghttp2_hd_inflate_hd2(hd, &nv, &flags, in, len, 1);
		if (n < 0)
			return -1;
		in += n;
		len -= (size_t)n;
		if ((flags & NGHTTP2_HD_INFLATE_EMIT) && nv.namelen == 11 && memcmp(nv.name, "grpc-status", 11) == 0)
			code = (int)strtol((const char *)nv.value, NULL, 10);
	}
	nghttp2_hd_inflate_end_headers(hd);
	return code;
}

static enum said look_grpc(void)
{
	nghttp2_hd_inflater *hd;
	struct raw_seen f = { 0 };
	enum said said = T.ended ? CUT : OPEN;
	int code = -1;
	assert_int_equal(nghttp2_hd_inflate_new(&hd), 0);
	buf_clear(&T.text);
	while (raw_next(&T.got, &f)) {
		if (f.type == NGHTTP2_DATA && f.id == 1)
			assert_int_equal(buf_add(&T.text, f.payload, f.len), 0);
		if (f.type == NGHTTP2_HEADERS)
			code = grpc_status(hd, &f);
		if (f.type == NGHTTP2_RST_STREAM && said != OK && said != EXHAUSTED)
			said = CUT;
		if (f.type == NGHTTP2_HEADERS && (f.flags & NGHTTP2_FLAG_END_STREAM))
			said = code == 0 ? OK : code == STATUS_RESOURCE_EXHAUSTED ? EXHAUSTED : WRONG;
	}
	nghttp2_hd_inflate_del(hd);
	T.code = code;
	return said;
}

static bool has(const char *text) { return buf_len(&T.got) && memmem(buf_head(&T.got), buf_len(&T.got), text, strlen(text)); }

static enum said look_json(const struct method *m)
{
	buf_clear(&T.text);
	if (!T.ended)
		return OPEN;
	if (!has("\r\n\r\n"))
		return CUT;
	const char *at = memmem(buf_head(&T.got), buf_len(&T.got), "\r\n\r\n", 4), *end = (const char *)buf_head(&T.got) + buf_len(&T.got);
	assert_int_equal(buf_add(&T.text, at + 4, (size_t)(end - at) - 4), 0);
	const char *length = memmem(buf_head(&T.got), (size_t)(at - (const char *)buf_head(&T.got)), "content-length: ", 16);
	if (length && strtoul(length + 16, NULL, 10) != buf_len(&T.text))
		return CUT;
	if (has("\"code\":\"resource_exhausted\"")) /* the details may be what there was no memory for */
		return has("google.rpc.ErrorInfo") && !has(OUT_OF_MEMORY) && !has(REPLY_TOO_LARGE) ? WRONG : EXHAUSTED;
	if (has("HTTP/1.1 503 ") && has("\r\nout of memory\n")) /* before there was a call */
		return CUT;
	if (has("\"code\":"))
		return WRONG;
	if (m->stream) /* "{}" in a frame that says that it is the last, and the last chunk */
		return buf_len(&T.text) > 5 && memmem(buf_head(&T.text), buf_len(&T.text), "\2\0\0\0\2{}", 7) &&
				       memcmp(end - 5, "0\r\n\r\n", 5) == 0
			       ? OK : CUT;
	return has("HTTP/1.1 200 ") ? OK : WRONG;
}

static enum said look(const struct method *m, bool json)
{
	memory_exempt++;
	enum said said = json ? look_json(m) : look_grpc();
	/* The first message of a stream without an end is all that is waited for. */
	if (said == OPEN && m->endless && (json ? has("{\"cursor\":") : buf_len(&T.text) > 0))
		said = OK;
	memory_exempt--;
	return said;
}

static void on_ready(void *arg, int events)
{
	T.ended = memory_apart_read(T.s, &T.got);
}

static int64_t n_connections(void)
{
	struct grpc_server_stats stats;
	struct http1_stats http1;
	grpc_server_stats(T.server, &stats);
	http1_server_stats(T.http1, &http1);
	return stats.connections + stats.calls_open + http1.connections;
}

static void hang_up(void)
{
	stream_close(T.s);
	T.s = NULL;
	TURNS_UNTIL(T.loop, n_connections() == 0);
	/* The store may be at it still, and what it gives back comes after. */
	TURNS_UNTIL(T.loop, T.store->queued == 0);
	for (int i = 0; i < 3; i++)
		loop_turn(T.loop, false);
}

static void write_some(struct buf *out)
{
	struct iovec iov = { (void *)(uintptr_t)buf_head(out), buf_len(out) };
	if (!iov.iov_len)
		return;
	memory_exempt++;
	ssize_t n = stream_writev(T.s, &iov, 1);
	if (n != -EAGAIN)
		buf_consume(out, n > 0 ? (size_t)n : buf_len(out));
	memory_exempt--;
}

/* A call on a connection of its own. The allocation with the number `at` fails (0: none does). */
static enum said call(const struct method *m, bool json, int64_t at)
{
	static const struct stream_events events = { .on_ready = on_ready }, none;
	struct stream *server_end;
	struct buf body, out;
	struct turns_guard guard;
	enum said said;
	buf_init(&body, 1 << 20);
	buf_init(&out, 1 << 20);
	request_of(m, &body);
	(json ? say_json : say_grpc)(m, &body, &out);
	buf_clear(&T.got);
	T.ended = false;
	assert_int_equal(stream_pair(T.loop, 1 << 20, &events, &T, &none, NULL, &T.s, &server_end), 0);
	stream_want(T.s, LOOP_READ);
	M.n = 0;
	M.at = at ? at : INT64_MAX;
	M.armed = true;
	if (grpc_server_adopt(T.server, server_end) < 0) {
		memory_exempt++;
		stream_close(server_end);
		memory_exempt--;
	}
	memory_exempt++;
	turns_guard_start(&guard, T.loop);
	memory_exempt--;
	int64_t patience = clock_mono_ns() + NS_PER_S / 10;
	while ((said = look(m, json)) == OPEN && !guard.expired) {
		write_some(&out);
		loop_turn(T.loop, !buf_len(&out) && (!m->endless || !M.armed));
		if (m->endless && clock_mono_ns() > patience) /* it waits for memory, as for the store's return */
			M.armed = false;
	}
	M.armed = false;
	turns_guard_stop(&guard);
	if (guard.expired)
		fail_msg("%s %s, number %lld%s: no end; %zu bytes were not taken; %.*s", m->path, json ? "json" : "grpc", (long long)at,
			 M.for_good ? " and on" : "", buf_len(&out), (int)buf_len(&T.got), (const char *)buf_head(&T.got));
	buf_done(&body);
	buf_done(&out);
	hang_up();
	return said;
}

static void must(const struct method *m, bool json)
{
	enum said said = call(m, json, 0);
	if (said != OK)
		fail_msg("%s: %d, %.*s", m->path, said, (int)buf_len(&T.got), (const char *)buf_head(&T.got));
}

/* ---- the sweep ---- */

static void check_done(const struct method *m, enum said said)
{
	if (m->once) {
		must(m, true);
		assert_true(said != OK || !has("\"created\":true"));
	}
	if (m->state && said == OK) {
		char want[40];
		must(&get_target, true);
		snprintf(want, sizeof(want), "\"state\":\"%s\"", m->state);
		assert_true(has(want));
	}
}

/* What stays once may be a thread's of the store, which has its own pace; a leak grows with each time. */
static bool leaks(const struct method *m, bool json, int64_t at)
{
	enum { TIMES = 8 };
	int64_t live = M.live, abandoned = h2_abandoned();
	for (int i = 0; i < TIMES; i++) {
		(void)call(m, json, at);
		must(m, json);
	}
	return h2_abandoned() == abandoned && M.live - live >= TIMES / 2;
}

static int64_t sweep_one(const struct method *m, bool json, bool for_good)
{
	struct buf first;
	int64_t at = 0, live = 0, abandoned = h2_abandoned();
	buf_init(&first, 1 << 20);
	M.for_good = for_good;
	for (int i = 0; i < 2; i++) { /* what is made once is there after this */
		T.round++;
		if (m->before)
			(void)call(m->before, true, 0);
		must(m, json);
	}
	assert_int_equal(buf_add(&first, buf_head(&T.text), buf_len(&T.text)), 0);
	live = M.live;
	do {
		T.round++;
		at++;
		if (m->before)
			(void)call(m->before, true, 0);
		enum said said = call(m, json, at);
		int64_t n = M.n;
		if (said == WRONG || said == OPEN)
			fail_msg("%s %s, number %lld%s: %d, status %d, %.*s", m->path, json ? "json" : "grpc", (long long)at, for_good ? " and on" : "",
				 said, T.code, (int)buf_len(&T.got), (const char *)buf_head(&T.got));
		if (said == OK && m->same && !(json && m->stream)) {
			assert_int_equal(buf_len(&T.text), buf_len(&first));
			assert_memory_equal(buf_head(&T.text), buf_head(&first), buf_len(&first));
		}
		check_done(m, said);
		if (m->same)
			must(m, json);
		if (h2_abandoned() > abandoned) { /* with what it holds; h2_free says why */
			abandoned = h2_abandoned();
			live = M.live;
		}
		if (memory_is_counted && m->same && M.live > live && leaks(m, json, at))
			fail_msg("%s %s: %lld allocations stay when number %lld%s fails", m->path, json ? "json" : "grpc", (long long)(M.live - live),
				 (long long)at, for_good ? " and on" : "");
		if (n < at)
			break;
	} while (at < ROUNDS_MAX);
	assert_true(at < ROUNDS_MAX);
	assert_true(at > 10);
	must(m->before ? m->before : m, json);
	buf_done(&first);
	return at;
}

static void sweep(bool json, bool for_good)
{
	int64_t total = 0;
	for (size_t i = 0; i < ARRAY_LEN(swept); i++) {
		int64_t began = clock_mono_ns(), n = sweep_one(swept[i], json, for_good);
		print_message("# %s: %lld allocations, %lld ms\n", swept[i]->path, (long long)n, (long long)((clock_mono_ns() - began) / NS_PER_MS));
		total += n;
	}
	must(&cancel_rest, true);
	assert_true(total > 500);
}

static void grpc_each_fails_once(void **state) { sweep(false, false); }
static void grpc_from_each_on(void **state) { sweep(false, true); }
static void json_each_fails_once(void **state) { sweep(true, false); }
static void json_from_each_on(void **state) { sweep(true, true); }

/* ---- set up ---- */

static void on_store_state(void *arg, bool up, const char *text) { engine_on_store_state(T.engine, up, text); }
static void on_preempted(void *arg, const struct lease_answer *a, size_t n) { engine_lease_events.on_preempted(T.engine, a, n); }
static void on_hb(void *arg, const struct lease_hb *hb) { engine_lease_events.on_hb(T.engine, hb); }
static void on_lease_state(void *arg, bool up, const char *text) {}
static void on_page(void *arg, const struct lease_page *page) { engine_lease_events.on_page(T.engine, page); }
static void on_replaced(void *arg) { abort(); }

static void on_op(struct store_op *op) { T.op_done = true; }

static void run_op(struct store_op *op, enum store_kind kind)
{
	op->kind = kind;
	op->done = on_op;
	T.op_done = false;
	store_submit(T.store, op);
	TURNS_UNTIL(T.loop, T.op_done);
	assert_int_equal(op->result, STORE_OK);
}

/* With a log, an error and a result of some size. */
static void make_done_task(void)
{
	static struct uuid7_maker ids;
	struct store_session_open so = { .worker = "w", .master = "m1", .instance = { 1 }, .lease_ns = NS_PER_S };
	run_op(&so.op, STORE_SESSION_OPEN);
	struct store_insert in = { .task = { .id = uuid7_make(&ids, clock_wall_us()), .queue = "done", .max_attempts = 1 }, .name = "n", .owner = "",
				   .spec = blob_new("\x1a\4true", 6),
				   .eager = { .worker = "w", .instance = { 1 }, .session = so.ret_session, .lease_ns = NS_PER_S } };
	run_op(&in.op, STORE_INSERT);
	struct core_attempt at = { in.task.id, 1 };
	struct store_log_piece piece = { 0, STORE_STDOUT, blob_new(NULL, LOG_BYTES), 0 };
	memset(piece.data->data, 'x', LOG_BYTES);
	struct store_log_append la = { .at = at, .worker = "w", .pieces = &piece, .n = 1 };
	run_op(&la.op, STORE_LOG_APPEND);
	struct store_record rec = { .at = at, .worker = "w", .outcome = STORE_PROGRAM_FAILED, .has_exit_code = true, .exit_code = 3,
				    .error = { piece.data->data, 10000 }, .result = piece.data, .log_end = LOG_BYTES, .lost_limit = 3 };
	run_op(&rec.op, STORE_RECORD);
	uuid_format(&in.task.id, T.done_id);
	store_op_done_fields(&rec.op);
	store_op_done_fields(&so.op);
	blob_unref(piece.data);
	blob_unref(in.spec);
}

static void make_tasks(void)
{
	static const struct method listed = { TASKS "SubmitTask", REQUEST(submit_task),
		"{\"spec\":{\"queue\":\"listed\",\"command\":[\"true\"],\"labels\":{\"team\":\"x\"},\"payload\":\"aGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8=\"}}" };
	static const struct method target = { TASKS "SubmitTask", REQUEST(submit_task), "{\"spec\":{\"queue\":\"target\",\"command\":[\"true\"]}}" };
	make_done_task();
	for (int i = 0; i < LISTED; i++)
		must(&listed, true);
	must(&target, true);
	const char *id = memmem(buf_head(&T.text), buf_len(&T.text), "\"id\":\"", 6);
	assert_non_null(id);
	memcpy(T.target_id, id + 6, UUID_TEXT_LEN);
	must(&pause_queue, true);
}

static void open_engine(void)
{
	static const struct lease_events lease_events = { .on_preempted = on_preempted, .on_hb = on_hb, .on_state = on_lease_state, .on_page = on_page };
	struct lease_memory_config mc = { .task_key_ttl_ns = NS_PER_S };
	struct sqlite_store_config sc;
	char path[60], err[200];
	sqlite_store_config_default(&sc);
	snprintf(path, sizeof(path), "%s/reins.db", T.dir);
	sc.path = path;
	sc.on_state = on_store_state;
	assert_int_equal(sqlite_store_new(T.loop, &sc, err, sizeof(err), &T.store), 0);
	T.lease = lease_memory_new(T.loop, &mc, &lease_events, NULL);
	struct engine_config ec = { .loop = T.loop, .master_id = "m1", .lost_limit = 3, .store = T.store, .lease = T.lease, .on_replaced = on_replaced };
	core_config_default(&ec.core);
	/* Nothing comes by itself while this runs. */
	ec.core.lease_ttl_ns = 3600 * NS_PER_S;
	ec.core.heartbeat_ns = ec.core.reconcile_ns = ec.core.recovery_ns = 600 * NS_PER_S;
	assert_int_equal(engine_new(&ec, &T.engine), 0);
}

static int set_up(void **state)
{
	/* No disk, where there is a place without: thousands of commits. */
	snprintf(T.dir, sizeof(T.dir), "%s/reins-test-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(T.dir))
		return -1;
	assert_int_equal(loop_new(&T.loop), 0);
	open_engine();
	T.rpc = (struct rpc){
		.engine = T.engine, .loop = T.loop,
		.limits = { .message_bytes = 4 << 20, .payload_bytes = 1 << 20, .result_bytes = 1 << 20, .error_bytes = 16 << 10,
			    .command_env_bytes = 256 << 10, .params_bytes = 64 << 10, .log_bytes = 1 << 20, .tasks_per_submit = 100, .max_watchers = 9,
			    .watch_patience_ns = 600 * NS_PER_S },
	};
	rpc_init(&T.rpc);
	struct http1_server_config hc = { .about = "" };
	http1_limits_default(&hc.limits);
	assert_int_equal(http1_server_new(T.loop, &hc, &T.http1), 0);
	struct grpc_server_config gc = { .methods = rpc_methods, .n_methods = rpc_n_methods, .services = rpc_services, .n_services = rpc_n_services,
					 .app = &T.rpc, .max_connections = 9, .http1 = T.http1 };
	grpc_limits_default(&gc.limits);
	assert_int_equal(grpc_server_new(T.loop, &gc, &T.server), 0);
	buf_init(&T.got, 1 << 24);
	buf_init(&T.text, 1 << 24);
	TURNS_UNTIL(T.loop, engine_ready(T.engine));
	make_tasks();
	return 0;
}

static int tear_down(void **state)
{
	grpc_server_free(T.server);
	http1_server_free(T.http1);
	store_free(T.store);
	lease_free(T.lease);
	engine_free(T.engine);
	rpc_done(&T.rpc);
	buf_done(&T.got);
	buf_done(&T.text);
	for (int i = 0; i < 3; i++)
		loop_turn(T.loop, false);
	loop_free(T.loop);
	static const char *const files[] = { "", "-wal", "-shm", "-lock", "-logs", "-logs-wal", "-logs-shm" };
	char path[80];
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		snprintf(path, sizeof(path), "%s/reins.db%s", T.dir, files[i]);
		unlink(path);
	}
	return rmdir(T.dir);
}

/* What SQLite takes is its own matter. */
static void *sqlite_get(int size) { return memory_apart((size_t)size); }
static void *sqlite_resize(void *p, int size) { return memory_apart_resized(p, (size_t)size); }
static int sqlite_size(void *p) { return p ? (int)malloc_usable_size(p) : 0; }
static int sqlite_round(int size) { return (size + 7) & ~7; }
static int sqlite_begin(void *arg) { return SQLITE_OK; }
static void sqlite_end(void *arg) {}

static void leave_sqlite_alone(void)
{
	static const sqlite3_mem_methods methods = { sqlite_get, memory_apart_free, sqlite_resize, sqlite_size, sqlite_round, sqlite_begin, sqlite_end, NULL };
	if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK)
		abort();
}

/* One of the tests, if it is named. */
int main(int argc, char **argv)
{
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	leave_sqlite_alone();
	const struct CMUnitTest tests[] = { cmocka_unit_test(grpc_each_fails_once), cmocka_unit_test(grpc_from_each_on),
					    cmocka_unit_test(json_each_fails_once), cmocka_unit_test(json_from_each_on) };
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
