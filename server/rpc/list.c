/* ListTasks: newest first, by keyset: a page token names the last id looked at, so that tasks which come and go
 * neither skip nor repeat others. */

#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"
#include "server/rpc/search.h"
#include "server/rpc/wire.h"

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000
#define PAGE_BYTES (3 * 1024 * 1024)
#define TOKEN_PREFIX "t2:" /* version of the token's form */

struct list_call {
	struct search search;
	Reins__V1__ListTasksRequest *request;
	uint64_t fingerprint;
	struct buf page;
	size_t n;
	bool searching, no_room;
};

static void list_free(struct list_call *l)
{
	if (l->search.call)
		grpc_call_set_user(l->search.call, NULL);
	search_done(&l->search);
	buf_done(&l->page);
	pb_free(l->request);
	free(l);
}

void list_on_end(struct grpc_call *call, bool finished)
{
	struct list_call *l = grpc_call_user(call);
	if (!l)
		return;
	l->search.call = NULL;
	if (!l->searching || search_cancel(&l->search))
		list_free(l);
}

static int add_task(struct list_call *l, const struct store_task *t, struct rpc_reasons *reasons, bool *ret_fits)
{
	struct buf one;
	buf_init(&one, 2 * PAGE_BYTES);
	int rc = rpc_task(l->search.rpc, t, l->search.full && rpc_may(l->search.call, t->owner, RPC_READ), reasons, &one);
	*ret_fits = rc == 0 && (l->n == 0 || buf_len(&l->page) + buf_len(&one) <= PAGE_BYTES);
	if (*ret_fits)
		rc = wire_put_len(&l->page, 1, buf_head(&one), buf_len(&one));
	buf_done(&one);
	return rc;
}

/* The tasks that fit a page; at least one. */
static size_t take(struct search *s, const struct store_task *rows, size_t n)
{
	struct list_call *l = container_of(s, struct list_call, search);
	_cleanup_free_ struct rpc_reasons *reasons = calloc(1, sizeof(*reasons));
	l->no_room = !reasons;
	if (!reasons)
		return 0;
	for (size_t i = 0; i < n; i++) {
		bool fits;
		l->no_room = add_task(l, &rows[i], reasons, &fits) != 0;
		if (l->no_room || !fits)
			return i;
		l->n++;
	}
	return n;
}

static void on_searched(struct search *s, const struct store_op *failed)
{
	struct list_call *l = container_of(s, struct list_call, search);
	char token[FILTER_TOKEN_MAX] = "";
	l->searching = false;
	if (s->more && !failed)
		filter_token(TOKEN_PREFIX, l->fingerprint, &s->last, token);
	if (!s->call)
		;
	else if (failed)
		rpc_refuse_store(s->call, failed);
	else if (l->no_room || wire_put_text(&l->page, 2, token))
		rpc_refuse_room(s->call, "no room for the page; ask for a smaller page_size");
	else
		rpc_reply(s->call, &l->page);
	list_free(l);
}

static int parse(struct list_call *l, struct refusal *r)
{
	const Reins__V1__ListTasksRequest *req = l->request;
	struct search *s = &l->search;
	if (req->page_size < 0 || req->page_size > PAGE_MAX)
		return refuse(r, STATUS_INVALID_ARGUMENT, "page_size", "page_size: %d; 1 to 1000 are allowed, 0 means 100",
			      req->page_size);
	if (filter_view(req->view, &s->full, r) || filter_parse(req->filter, &s->filter, r))
		return -1;
	s->want = req->page_size ? req->page_size : PAGE_DEFAULT;
	l->fingerprint = filter_fingerprint(&s->filter, 0);
	return filter_token_parse(req->page_token, TOKEN_PREFIX, l->fingerprint, &s->after, &s->last, r);
}

void list_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__ListTasksRequest *req = rpc_unpack(call, &reins__v1__list_tasks_request__descriptor, data, len);
	if (!req)
		return;
	struct list_call *l = rpc_calloc(call, sizeof(*l));
	if (!l) {
		pb_free(req);
		return;
	}
	l->search = (struct search){ .rpc = rpc_of(call), .call = call, .take = take, .done = on_searched };
	l->request = req;
	buf_init(&l->page, 4 * PAGE_BYTES);
	grpc_call_set_user(call, l);
	struct refusal r;
	if (parse(l, &r)) {
		grpc_call_finish(call, &r);
		list_free(l);
		return;
	}
	l->searching = true;
	search_begin(&l->search);
}
