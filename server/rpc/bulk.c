/* CancelTasks and RetryTasks: what matches is found as for a list, then each is done as the single call does it, all at once
 * on their way to the store.  What became of each is counted. */
#include <stdio.h>
#include <string.h>

#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"
#include "server/rpc/search.h"
#include "server/rpc/wire.h"

#define LIMIT_MAX 1000
#define REASON_MAX 255
#define REPLY_MAX (256 * 1024)
#define CANCEL_PREFIX "c1:" /* versions of the tokens' forms */
#define RETRY_PREFIX "r1:"

/* What became of a task: numbers of the fields in CancelTasksResponse and RetryTasksResponse. */
enum fate {
	DONE = 2,
	STOPPING = 3, ENDED = 4,                    /* of a cancel */
	NOT_ENDED = 3, COMPLETED = 4, CHANGED = 5,  /* of a retry */
	GONE = 6,
	FATES
};

struct bulk_call;
struct bulk_op {
	struct bulk_call *bulk;
	enum store_state state; /* as listed */
	union {
		struct store_op op;
		struct store_cancel cancel;
		struct store_retry retry;
	};
};

struct bulk_call {
	struct search search;
	void *request;
	bool retries, dry;
	const char *prefix;
	uint64_t fingerprint;
	char words[320]; /* of the cancel */
	char *owner;     /* search.only_owner: the call may end before a step does */
	struct bulk_op *ops;
	size_t n, waiting;
	bool searching;
	struct store_op failed; /* kind and result of one that could not be done */
	bool has_failed, no_room;
	int64_t counts[FATES];
	struct buf ids;         /* of those that were changed, as they stand in the reply */
};

static void bulk_free(struct bulk_call *b)
{
	if (b->search.call)
		grpc_call_set_user(b->search.call, NULL);
	search_done(&b->search);
	pb_free(b->request);
	buf_done(&b->ids);
	free(b->owner);
	free(b->ops);
	free(b);
}

void bulk_on_end(struct grpc_call *call, bool finished)
{
	struct bulk_call *b = grpc_call_user(call);
	if (!b)
		return;
	b->search.call = NULL;
	if (b->searching && search_cancel(&b->search))
		b->searching = false;
	if (!b->searching && !b->waiting)
		bulk_free(b);
}

static void reply(struct bulk_call *b)
{
	struct grpc_call *call = b->search.call;
	char token[FILTER_TOKEN_MAX] = "";
	struct buf out;
	buf_init(&out, REPLY_MAX);
	if (b->search.more)
		filter_token(b->prefix, b->fingerprint, &b->search.last, token);
	int rc = wire_put_int(&out, 1, (int64_t)b->n);
	for (uint32_t field = DONE; field < FATES && rc == 0; field++)
		rc = wire_put_int(&out, field, b->counts[field]);
	if (rc == 0)
		rc = wire_put_text(&out, 7, token);
	if (rc == 0)
		rc = buf_add(&out, buf_head(&b->ids), buf_len(&b->ids));
	rpc_target(call, "tasks=%lld%s", (long long)b->n, b->dry ? " dry_run" : "");
	if (rc || b->no_room)
		rpc_refuse_room(call, b->dry ? "no room for the reply" : "no room for the reply; what was asked for was done");
	else
		rpc_reply(call, &out);
	buf_done(&out);
}

/* Some of the page may be done, which is no reason not to do it again: what is done is not done twice. */
static void refuse_rest(struct bulk_call *b)
{
	struct refusal r;
	long long done = (long long)(b->counts[DONE] + (b->retries ? 0 : b->counts[STOPPING]));
	if (b->failed.no_memory) {
		(void)refuse_no_memory(&r, "out of memory; %lld of %zu tasks are known to be done: make the call again", done, b->n);
		grpc_call_finish(b->search.call, &r);
		return;
	}
	(void)refuse(&r, STATUS_UNAVAILABLE, NULL, "%s: %s; %lld of %zu tasks are known to be done: make the call again",
		     b->failed.queue_full ? "too much waits for the store" : "the store is away", b->failed.text, done, b->n);
	(void)refuse_reason(&r, b->failed.queue_full ? REASON_STORE_BUSY : REASON_STORE_AWAY);
	r.retry_after_ms = 1000;
	grpc_call_finish(b->search.call, &r);
}

static void finish(struct bulk_call *b)
{
	if (b->search.call && b->has_failed)
		refuse_rest(b);
	else if (b->search.call)
		reply(b);
	bulk_free(b);
}

static void note(struct bulk_call *b, const struct uuid *id, enum fate fate)
{
	char text[UUID_TEXT_LEN + 1];
	b->counts[fate]++;
	if (fate != DONE && (b->retries || fate != STOPPING))
		return;
	uuid_format(id, text);
	b->no_room |= wire_put_text(&b->ids, 8, text) != 0;
}

static enum fate cancelled(const struct store_cancel *o)
{
	switch (o->ret_verdict) {
	case STORE_CANCEL_DONE: return DONE;
	case STORE_CANCEL_WISH: return STOPPING;
	case STORE_CANCEL_TERMINAL: return ENDED;
	case STORE_CANCEL_NOT_FOUND: break;
	}
	return GONE;
}

static enum fate retried(const struct store_retry *o)
{
	switch (o->ret_verdict) {
	case STORE_RETRY_DONE: return DONE;
	case STORE_RETRY_NOT_ENDED: return o->ret_attempt == o->attempt ? NOT_ENDED : CHANGED;
	case STORE_RETRY_COMPLETED: return COMPLETED;
	case STORE_RETRY_ANOTHER: return CHANGED;
	case STORE_RETRY_NOT_FOUND: break;
	}
	return GONE;
}

static void on_done(struct store_op *op)
{
	struct bulk_op *o = container_of(op, struct bulk_op, op);
	struct bulk_call *b = o->bulk;
	if (b->retries)
		engine_retried(b->search.rpc->engine, &o->retry);
	else
		engine_cancelled(b->search.rpc->engine, &o->cancel);
	if (op->result != STORE_OK) {
		b->has_failed = true;
		b->failed = *op;
	} else {
		note(b, b->retries ? &o->retry.id : &o->cancel.id, b->retries ? retried(&o->retry) : cancelled(&o->cancel));
	}
	if (b->retries)
		store_op_done_fields(op);
	if (--b->waiting == 0)
		finish(b);
}

/* What would become of it, as it was listed. */
static enum fate guess(const struct bulk_call *b, enum store_state state)
{
	if (!b->retries)
		return state == STORE_PENDING ? DONE : state == STORE_RUNNING ? STOPPING : ENDED;
	if (state == STORE_PENDING || state == STORE_RUNNING)
		return NOT_ENDED;
	return state == STORE_COMPLETED ? COMPLETED : DONE;
}

static size_t take(struct search *s, const struct store_task *rows, size_t n)
{
	struct bulk_call *b = container_of(s, struct bulk_call, search);
	for (size_t i = 0; i < n; i++) {
		struct bulk_op *o = &b->ops[b->n++];
		o->bulk = b;
		o->state = rows[i].state;
		if (b->retries)
			o->retry = (struct store_retry){ .op = { .kind = STORE_RETRY, .done = on_done }, .id = rows[i].core.id,
							 .attempt = rows[i].core.attempt };
		else
			o->cancel = (struct store_cancel){ .op = { .kind = STORE_CANCEL, .done = on_done }, .id = rows[i].core.id,
							   .words = b->words };
	}
	return n;
}

static void on_searched(struct search *s, const struct store_op *failed)
{
	struct bulk_call *b = container_of(s, struct bulk_call, search);
	b->searching = false;
	if (failed) {
		b->has_failed = true;
		b->failed = *failed;
	}
	/* Who has gone wants nothing any more. */
	if (failed || !s->call || b->n == 0) {
		finish(b);
		return;
	}
	if (b->dry) {
		for (size_t i = 0; i < b->n; i++)
			note(b, b->retries ? &b->ops[i].retry.id : &b->ops[i].cancel.id, guess(b, b->ops[i].state));
		finish(b);
		return;
	}
	rpc_store_begin(s->call, true);
	b->waiting = b->n;
	for (size_t i = 0; i < b->n; i++)
		store_submit(engine_store(s->rpc->engine), &b->ops[i].op);
}

/* ---- requests ---- */

struct asked {
	const Reins__V1__TaskFilter *filter;
	bool all, dry_run;
	int32_t limit;
	const char *page_token;
	uint32_t states; /* where the filter names none */
};

static int parse(struct bulk_call *b, const struct asked *a, struct refusal *r)
{
	struct search *s = &b->search;
	const char *only = rpc_only_owner(s->call, RPC_CHANGE);
	if (filter_parse(a->filter, &s->filter, r))
		return -1;
	if (filter_is_empty(&s->filter) && !a->all)
		return refuse(r, STATUS_INVALID_ARGUMENT, "filter", "filter: it says nothing, and so all tasks match; set all to mean that");
	if (only && s->filter.of && *s->filter.of->owner && strcmp(s->filter.of->owner, only) != 0)
		return refuse(r, STATUS_PERMISSION_DENIED, "filter.owner", "filter.owner: \"%.100s\" may only change tasks of their own", only);
	if (a->limit < 0 || a->limit > LIMIT_MAX)
		return refuse(r, STATUS_INVALID_ARGUMENT, "limit", "limit: %d; 1 to 1000 are allowed, 0 means 1000", (int)a->limit);
	s->only_owner = b->owner = only ? xstrdup(only) : NULL;
	s->want = a->limit ? a->limit : LIMIT_MAX;
	if (!s->filter.states)
		s->filter.states = a->states;
	b->dry = a->dry_run;
	b->fingerprint = filter_fingerprint(&s->filter, 0);
	if (filter_token_parse(a->page_token, b->prefix, b->fingerprint, &s->after, &s->last, r))
		return -1;
	b->ops = calloc((size_t)s->want, sizeof(*b->ops));
	return b->ops ? 0 : refuse_no_memory(r, "out of memory");
}

static void begin(struct grpc_call *call, struct bulk_call *b, void *request, const struct asked *a)
{
	struct refusal r;
	b->search.rpc = rpc_of(call);
	b->search.call = call;
	b->search.bare = true;
	b->search.take = take;
	b->search.done = on_searched;
	b->request = request;
	buf_init(&b->ids, REPLY_MAX);
	grpc_call_set_user(call, b);
	if (parse(b, a, &r)) {
		grpc_call_finish(call, &r);
		bulk_free(b);
		return;
	}
	b->searching = true;
	search_begin(&b->search);
}

void cancel_many_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__CancelTasksRequest *req = rpc_unpack(call, &reins__v1__cancel_tasks_request__descriptor, data, len);
	if (!req)
		return;
	if (strlen(req->reason) > REASON_MAX) {
		rpc_refuse(call, STATUS_INVALID_ARGUMENT, "reason", "reason: longer than 255 bytes");
		pb_free(req);
		return;
	}
	struct bulk_call *b = rpc_calloc(call, sizeof(*b));
	if (!b) {
		pb_free(req);
		return;
	}
	b->prefix = CANCEL_PREFIX;
	snprintf(b->words, sizeof(b->words), "cancelled%s%.255s", *req->reason ? ": " : "", req->reason);
	begin(call, b, req, &(struct asked){ req->filter, req->all, req->dry_run, req->limit, req->page_token,
					     1u << STORE_PENDING | 1u << STORE_RUNNING });
}

void retry_many_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__RetryTasksRequest *req = rpc_unpack(call, &reins__v1__retry_tasks_request__descriptor, data, len);
	if (!req)
		return;
	struct bulk_call *b = rpc_calloc(call, sizeof(*b));
	if (!b) {
		pb_free(req);
		return;
	}
	b->prefix = RETRY_PREFIX;
	b->retries = true;
	begin(call, b, req, &(struct asked){ req->filter, req->all, req->dry_run, req->limit, req->page_token,
					     1u << STORE_FAILED | 1u << STORE_CANCELLED });
}
