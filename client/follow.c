/* Owns the place in the log at which to go on.
 *
 * The log is read as a stream that the server keeps open; when that ends (the task ended, the server went, the
 * server does not keep it open) GetTask says whether there is more to come, and waits on the server. */
#include "client/follow.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "client/output.h"
#include "client/show.h"
#include "common/pb/pb.h"

#define NOT_IN_TIME "the task has not ended in the time that --deadline gives"
#define WAIT_NS (30 * NS_PER_S)          /* one GetTask; idle connections through NAT live longer */
#define WAIT_WITH_LOG_NS (1 * NS_PER_S)  /* between looks at a log that is not streamed */
#define FIRST_LOOK_NS (1500 * NS_PER_MS) /* whether it has started */
#define ANSWER_NS (30 * NS_PER_S)
#define RETRY_NS (500 * NS_PER_MS)
#define PATIENCE_NS (300 * NS_PER_S)     /* a server that is gone this long is given up */
#define EARLY_NS (100 * NS_PER_MS)       /* a server may count our deadline out before we do: the wire rounds it */

static int64_t now_ns(const struct follow *f)
{
	return loop_now_mono_ns(f->cli->loop);
}

static bool on_chunk(void *arg, const void *message)
{
	struct follow *f = arg;
	const Reins__V1__LogChunk *c = message;
	if (c->attempt != f->shown && f->shown && f->log == FOLLOW_BYTES)
		cli_note(f->cli, "attempt %d ended; this is attempt %d", f->shown, c->attempt);
	f->attempt = f->shown = c->attempt;
	f->offset = c->offset + (int64_t)c->data.len + c->dropped_bytes;
	f->lost_since_mono_ns = 0;
	if (f->log == FOLLOW_JSON) {
		out_json(c, true);
		return true;
	}
	if (c->dropped_bytes)
		cli_note(f->cli, "%" PRId64 " bytes of the log were not kept here", c->dropped_bytes);
	out_write(c->stream == REINS__V1__LOG_STREAM__STDERR ? STDERR_FILENO : STDOUT_FILENO, c->data.data, c->data.len);
	return true;
}

static int read_log(struct follow *f, bool wait, int64_t tail_bytes, int64_t deadline_mono_ns, struct client_error *ret_err)
{
	Reins__V1__ReadLogsRequest req = REINS__V1__READ_LOGS_REQUEST__INIT;
	req.task_id = (char *)(uintptr_t)f->task_id;
	req.attempt = f->attempt;
	req.follow = wait;
	req.tail_bytes = tail_bytes;
	req.offset = tail_bytes ? 0 : f->offset;
	req.stream = f->stream;
	return client_stream(f->cli->client, &client_read_logs, &req, deadline_mono_ns, on_chunk, f, ret_err);
}

/* After a failure that may pass: 0 after a pause, -1 when it is one to give up at. */
static int try_again(struct follow *f, struct client_error *err)
{
	bool cut_off = err->code == STATUS_RESOURCE_EXHAUSTED; /* we were too slow a reader */
	int64_t pause = max_i64(RETRY_NS, min_i64(err->retry_after_ms, 10000) * NS_PER_MS);
	if (err->interrupted || (err->code != STATUS_UNAVAILABLE && !cut_off))
		return -1;
	if (!f->lost_since_mono_ns)
		f->lost_since_mono_ns = now_ns(f);
	if (now_ns(f) - f->lost_since_mono_ns > PATIENCE_NS)
		return -1;
	if (f->cli->deadline_mono_ns != CLIENT_NO_DEADLINE && now_ns(f) >= f->cli->deadline_mono_ns) {
		err->code = STATUS_DEADLINE_EXCEEDED;
		return -1;
	}
	if (!f->told && !cut_off)
		cli_note(f->cli, "%s; trying again", err->message);
	f->told = true;
	if (client_sleep(f->cli->client, pause) < 0) {
		err->interrupted = true;
		return -1;
	}
	return 0;
}

int follow_attempt(struct follow *f, bool wait, int64_t tail_bytes, struct client_error *ret_err)
{
	for (;;) {
		if (read_log(f, wait, tail_bytes, f->cli->deadline_mono_ns, ret_err) == 0)
			return 0;
		if (try_again(f, ret_err) < 0)
			return -1;
		if (f->offset)
			tail_bytes = 0;
	}
}

static int get_task(struct follow *f, int64_t wait_ns, Reins__V1__Task **ret, struct client_error *ret_err)
{
	Reins__V1__GetTaskRequest req = REINS__V1__GET_TASK_REQUEST__INIT;
	Google__Protobuf__Duration wait;
	for (;;) {
		void *reply;
		int64_t now = now_ns(f), left = wait_ns;
		if (f->cli->deadline_mono_ns != CLIENT_NO_DEADLINE)
			left = max_i64(0, min_i64(wait_ns, f->cli->deadline_mono_ns - now));
		pb_duration_set(&wait, left);
		req.task_id = (char *)(uintptr_t)f->task_id;
		req.wait = &wait;
		if (client_call(f->cli->client, &client_get_task, &req, now + left + ANSWER_NS, &reply, ret_err) == 0) {
			f->lost_since_mono_ns = 0;
			*ret = reply;
			return 0;
		}
		if (try_again(f, ret_err) < 0)
			return -1;
	}
}

/* What is left of the attempts up to the newest, none of which goes on. */
static int drain(struct follow *f, int32_t newest, struct client_error *ret_err)
{
	if (!f->attempt && newest)
		f->attempt = 1;
	while (f->attempt && f->attempt <= newest) {
		int32_t attempt = f->attempt;
		if (follow_attempt(f, false, 0, ret_err) < 0 && ret_err->code != STATUS_NOT_FOUND)
			return -1;
		if (attempt == newest)
			break;
		f->attempt = attempt + 1;
		f->offset = 0;
	}
	return 0;
}

/* Until something is printed we look now and then whether it has started. */
static int64_t look_ns(const struct follow *f)
{
	return f->looked ? WAIT_NS : FIRST_LOOK_NS;
}

/* One stream until it ends, 0, or until it is time to look, 1. */
static int follow_log(struct follow *f, struct client_error *ret_err)
{
	int64_t deadline = f->cli->deadline_mono_ns;
	if (!f->shown)
		deadline = min_i64(deadline, now_ns(f) + look_ns(f));
	if (f->log == FOLLOW_NO_LOG || f->no_logs || read_log(f, true, 0, deadline, ret_err) == 0)
		return 0;
	if (ret_err->code == STATUS_DEADLINE_EXCEEDED && deadline < f->cli->deadline_mono_ns)
		return 1;
	if (ret_err->code == STATUS_NOT_FOUND) /* no attempt yet; if it is the task, GetTask says so */
		return 0;
	if (ret_err->code == STATUS_UNIMPLEMENTED) {
		cli_note(f->cli, "the server does not offer logs; waiting for the end only");
		f->no_logs = true;
		return 0;
	}
	return try_again(f, ret_err);
}

static void tell_what_it_waits_for(struct follow *f, const Reins__V1__Task *t)
{
	char reason[sizeof f->waits];
	f->looked = true;
	if (t->state != REINS__V1__TASK__STATE__PENDING || !t->pending_reason[0])
		return;
	out_clean(t->pending_reason, 0, reason, sizeof reason);
	if (!strcmp(reason, f->waits))
		return;
	cli_note(f->cli, "task %s waits: %s", f->task_id, reason);
	memcpy(f->waits, reason, sizeof reason);
}

/* Our own time is over, and the server has been answering. */
static bool out_of_time(const struct follow *f, const struct client_error *e)
{
	return e->code == STATUS_DEADLINE_EXCEEDED && !f->lost_since_mono_ns && f->cli->deadline_mono_ns != CLIENT_NO_DEADLINE &&
	       now_ns(f) >= f->cli->deadline_mono_ns - EARLY_NS;
}

int follow_to_end(struct follow *f, Reins__V1__Task **ret_task, struct client_error *ret_err)
{
	for (;;) {
		int64_t began = now_ns(f);
		bool with_log = f->log != FOLLOW_NO_LOG && !f->no_logs;
		Reins__V1__Task *t = NULL;
		int cut = follow_log(f, ret_err);
		if (cut < 0 && out_of_time(f, ret_err))
			*ret_err = (struct client_error){ .code = STATUS_DEADLINE_EXCEEDED, .message = NOT_IN_TIME, .awaited = true };
		if (cut < 0 || get_task(f, cut ? 0 : with_log ? WAIT_WITH_LOG_NS : look_ns(f), &t, ret_err) < 0)
			return -1;
		tell_what_it_waits_for(f, t);
		with_log = with_log && !f->no_logs;
		bool ended = show_is_terminal(t);
		int32_t newest = t->attempt;
		if (with_log && (ended || (f->attempt && newest > f->attempt)) &&
		    drain(f, ended ? newest : newest - 1, ret_err) < 0) {
			pb_free(t);
			return -1;
		}
		if (ended) {
			*ret_task = t;
			return 0;
		}
		pb_free(t);
		if (with_log && f->attempt && newest > f->attempt) {
			f->attempt = newest;
			f->offset = 0;
		}
		if (f->cli->deadline_mono_ns != CLIENT_NO_DEADLINE && now_ns(f) >= f->cli->deadline_mono_ns) {
			*ret_err = (struct client_error){ .code = STATUS_DEADLINE_EXCEEDED, .message = NOT_IN_TIME, .awaited = true };
			return -1;
		}
		/* A server that neither streams nor waits must not be asked in a circle. */
		if (now_ns(f) - began < RETRY_NS / 2 && client_sleep(f->cli->client, RETRY_NS / 2) < 0) {
			*ret_err = (struct client_error){ .code = STATUS_CANCELLED, .interrupted = true, .message = "interrupted" };
			return -1;
		}
	}
}
