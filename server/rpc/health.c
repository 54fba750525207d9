/* Health.  What a name stands for:
 *
 *   "" and reins.v1.*       SERVING while the store is up, this master has its row there, and nothing drains;
 *   the other services      SERVING until the master drains: they need no store;
 *   "liveness"              SERVING whenever there is an answer;
 *   anything else           NOT_FOUND from Check; SERVICE_UNKNOWN from Watch, whose stream stays open.
 *
 * A watcher gets one message at once and one per change. One that does not read is told the state of the day when
 * it reads again, not all that it missed. */
#include "server/rpc/health.h"

#include <string.h>

#include "common/pb/pb.h"
#include "grpc/health/v1/health.pb-c.h"
#include "server/rpc/rpc.h"

#define WATCHES_MAX 10000
#define REPLY_MAX 64
#define STATUS(s) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##s

enum name_kind { NAME_STORE, NAME_OWN, NAME_LIVENESS, NAME_UNKNOWN };

struct health_watch {
	struct list node;
	struct rpc *rpc;
	struct grpc_call *call;
	enum name_kind kind;
	int sent; /* -1: nothing yet */
};

static enum name_kind kind_of(const char *service)
{
	if (!*service)
		return NAME_STORE;
	if (strcmp(service, "liveness") == 0)
		return NAME_LIVENESS;
	for (size_t i = 0; i < rpc_n_methods; i++) {
		const char *name;
		size_t len;
		if (rpc_service_of(i, &name, &len) && strlen(service) == len && memcmp(service, name, len) == 0)
			return strncmp(service, "reins.", 6) == 0 ? NAME_STORE : NAME_OWN;
	}
	return NAME_UNKNOWN;
}

static int status_of(const struct rpc *rpc, enum name_kind kind)
{
	switch (kind) {
	case NAME_STORE:
		return !rpc->draining && engine_ready(rpc->engine) ? STATUS(SERVING) : STATUS(NOT_SERVING);
	case NAME_OWN:
		return rpc->draining ? STATUS(NOT_SERVING) : STATUS(SERVING);
	case NAME_LIVENESS:
		return STATUS(SERVING);
	default:
		return STATUS(SERVICE_UNKNOWN);
	}
}

static int encode(int status, struct buf *b)
{
	Grpc__Health__V1__HealthCheckResponse m = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
	m.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status;
	return pb_pack(&m, b);
}

void health_on_check(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Grpc__Health__V1__HealthCheckRequest *req =
		rpc_unpack(call, &grpc__health__v1__health_check_request__descriptor, data, len);
	if (!req)
		return;
	enum name_kind kind = kind_of(req->service);
	struct buf b;
	buf_init(&b, REPLY_MAX);
	if (kind == NAME_UNKNOWN) {
		struct refusal r;
		(void)refuse(&r, STATUS_NOT_FOUND, "service", "service: no such service");
		(void)refuse_reason(&r, REASON_SERVICE_NOT_FOUND);
		(void)refuse_resource(&r, "service", req->service);
		grpc_call_finish(call, &r);
	} else if (encode(status_of(rpc_of(call), kind), &b)) {
		rpc_refuse_room(call, "no room for the reply");
	} else {
		rpc_reply(call, &b);
	}
	buf_done(&b);
	pb_free(req);
}

/* ---- Watch ---- */

static void tell(struct health_watch *w)
{
	int status = status_of(w->rpc, w->kind);
	struct buf b;
	if (status == w->sent)
		return;
	buf_init(&b, REPLY_MAX);
	/* A full queue: on_writable tries again; no memory: the next change does. */
	if (encode(status, &b) == 0 && grpc_call_send(w->call, buf_head(&b), buf_len(&b)) == 0)
		w->sent = status;
	buf_done(&b);
}

static void on_changed(struct loop_dirty *d)
{
	struct health *h = container_of(d, struct health, dirty);
	list_each(it, &h->watches)
		tell(container_of(it, struct health_watch, node));
}

static void on_readiness(void *arg)
{
	struct rpc *rpc = arg;
	loop_mark(rpc->loop, &rpc->health.dirty);
}

void health_on_watch(struct grpc_call *call, const uint8_t *data, size_t len)
{
	struct rpc *rpc = rpc_of(call);
	Grpc__Health__V1__HealthCheckRequest *req =
		rpc_unpack(call, &grpc__health__v1__health_check_request__descriptor, data, len);
	if (!req)
		return;
	enum name_kind kind = kind_of(req->service);
	pb_free(req);
	struct health_watch *w = rpc->health.n < WATCHES_MAX ? calloc(1, sizeof(*w)) : NULL;
	if (!w) {
		struct refusal r;
		(void)refuse(&r, STATUS_RESOURCE_EXHAUSTED, NULL, "too many watch the health of this server; %d may", WATCHES_MAX);
		(void)refuse_reason(&r, REASON_TOO_MANY_STREAMS);
		(void)refuse_more(&r, "limit", "%d", WATCHES_MAX);
		grpc_call_finish(call, &r);
		return;
	}
	*w = (struct health_watch){ .rpc = rpc, .call = call, .kind = kind, .sent = -1 };
	list_push_back(&rpc->health.watches, &w->node);
	rpc->health.n++;
	grpc_call_set_user(call, w);
	tell(w);
	if (rpc->draining)
		rpc_refuse_stopping(call);
}

void health_on_writable(struct grpc_call *call)
{
	struct health_watch *w = grpc_call_user(call);
	if (w)
		tell(w);
}

void health_on_end(struct grpc_call *call, bool finished)
{
	struct health_watch *w = grpc_call_user(call);
	if (!w)
		return;
	list_remove(&w->node);
	w->rpc->health.n--;
	free(w);
}

/* ---- all of it ---- */

void health_init(struct rpc *rpc)
{
	rpc->health.rpc = rpc;
	rpc->health.n = 0;
	list_init(&rpc->health.watches);
	loop_dirty_init(&rpc->health.dirty, LOOP_WORK, on_changed);
	if (rpc->engine)
		engine_on_readiness(rpc->engine, on_readiness, rpc);
}

void health_done(struct rpc *rpc)
{
	loop_unmark(&rpc->health.dirty);
}

void health_drain(struct rpc *rpc)
{
	list_each(it, &rpc->health.watches) {
		struct health_watch *w = container_of(it, struct health_watch, node);
		tell(w);
		rpc_refuse_stopping(w->call);
	}
}
