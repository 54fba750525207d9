/* One `follow` for each attempt with followers; it names the worker, whose session may change. */
#include "server/rpc/follow.h"

#include <stdio.h>
#include <string.h>

#include "server/rpc/session.h"
#include "server/store/store_logs.h"

#define QUEUE_BYTES (128 * 1024) /* of one follower */
#define PIECE_COST 64

struct follow {
	struct map_node by_ref;
	struct core_attempt ref;
	struct rpc *rpc;
	char worker[CORE_NAME_MAX + 1];
	struct list followers;
};

static struct follow *find(struct rpc *rpc, const struct core_attempt *at)
{
	struct map_node *n = map_get(&rpc->follows, at, sizeof(*at));
	return n ? container_of(n, struct follow, by_ref) : NULL;
}

static void ask(struct follow *w, bool on)
{
	list_each(it, &w->rpc->sessions) {
		struct session *s = container_of(it, struct session, at_rpc);
		if (s->greeted && !s->closing && strcmp(s->worker, w->worker) == 0)
			session_follow_log(s, &w->ref, on);
	}
}

void follower_init(struct follower *f, void (*on_pieces)(struct follower *f))
{
	*f = (struct follower){ .on_pieces = on_pieces };
	list_init(&f->pieces);
	list_init(&f->node);
}

void follow_begin(struct rpc *rpc, struct follower *f, const struct core_attempt *at, const char *worker)
{
	struct follow *w = find(rpc, at);
	bool first = !w;
	if (first) {
		w = xcalloc(1, sizeof(*w));
		w->ref = *at;
		w->rpc = rpc;
		snprintf(w->worker, sizeof(w->worker), "%s", worker);
		list_init(&w->followers);
		map_put(&rpc->follows, &w->by_ref, &w->ref, sizeof(w->ref));
	}
	f->of = w;
	list_push_back(&w->followers, &f->node);
	if (first)
		ask(w, true);
}

void follow_piece_free(struct follower *f, struct follow_piece *p)
{
	list_remove(&p->node);
	f->bytes -= PIECE_COST + p->data->len;
	blob_unref(p->data);
	free(p);
}

void follow_end(struct follower *f)
{
	struct follow *w = f->of;
	while (!list_empty(&f->pieces))
		follow_piece_free(f, container_of(f->pieces.next, struct follow_piece, node));
	if (!w)
		return;
	f->of = NULL;
	list_remove(&f->node);
	if (!list_empty(&w->followers))
		return;
	ask(w, false);
	map_remove(&w->rpc->follows, &w->by_ref);
	if (!w->rpc->follows.len) { /* its memory too */
		map_done(&w->rpc->follows);
		map_init(&w->rpc->follows);
	}
	free(w);
}

static void hand(struct follower *f, enum store_log_stream stream, int64_t offset, struct blob *data)
{
	struct follow_piece *p = f->bytes + PIECE_COST + data->len > QUEUE_BYTES ? NULL : calloc(1, sizeof(*p));
	if (!p)
		return;
	p->offset = offset;
	p->stream = stream;
	p->data = blob_ref(data);
	list_push_back(&f->pieces, &p->node);
	f->bytes += PIECE_COST + data->len;
	f->on_pieces(f);
}

void follow_piece(struct rpc *rpc, const struct core_attempt *at, enum store_log_stream stream, int64_t offset,
		  const uint8_t *data, size_t len)
{
	struct follow *w = find(rpc, at);
	struct blob *b = w && len ? blob_new(data, len) : NULL;
	if (!b)
		return;
	list_each(it, &w->followers)
		hand(container_of(it, struct follower, node), stream, offset, b);
	blob_unref(b);
}

void follow_session(struct session *s, const struct core_attempt *at)
{
	struct follow *w = find(s->rpc, at);
	if (!w)
		return;
	snprintf(w->worker, sizeof(w->worker), "%s", s->worker);
	session_follow_log(s, at, true);
}
