/* What a call's caller may, and the end of it while the call is open. */
#include "server/rpc/rights.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/log/log.h"
#include "server/rpc/worker_cert.h"

#define LOOK_US (60 * INT64_C(1000000)) /* at the latest, since the wall clock can be set */
#define READS_ALL (ROLE_READER | ROLE_OPERATOR | ROLE_ADMIN)
#define CHANGES_ALL (ROLE_OPERATOR | ROLE_ADMIN)

static const struct principal *who_of(const struct grpc_call *call)
{
	const struct auth_call *c = grpc_call_caller(call);
	return c ? c->who : NULL;
}

/* ---- the end of a right ---- */

static void look_at(struct rpc *rpc, int64_t ends_wall_us)
{
	int64_t left_us = min_i64(max_i64(ends_wall_us - clock_wall_us(), 0), LOOK_US);
	int64_t due = loop_now_mono_ns(rpc->loop) + left_us * 1000 + NS_PER_MS;
	if (!loop_timer_active(&rpc->rights_timer) || due < rpc->rights_mono_ns) {
		rpc->rights_mono_ns = due;
		loop_timer_set(&rpc->rights_timer, due);
	}
}

static void check(void *arg, struct grpc_call *call, void *caller)
{
	struct rpc *rpc = arg;
	struct auth_call *c = caller;
	struct refusal r;
	if (!auth_check(rpc->auth, c, clock_wall_us(), &r))
		grpc_call_finish(call, &r);
	else if (c->ends_wall_us)
		look_at(rpc, c->ends_wall_us);
}

void rpc_check_rights(struct rpc *rpc)
{
	loop_timer_stop(&rpc->rights_timer);
	if (rpc->auth && rpc->grpc)
		grpc_server_each_call(rpc->grpc, check, rpc);
}

static void on_timer(struct loop_timer *t)
{
	rpc_check_rights(container_of(t, struct rpc, rights_timer));
}

void rights_init(struct rpc *rpc)
{
	loop_timer_init(&rpc->rights_timer, rpc->loop, on_timer);
}

void rights_done(struct rpc *rpc)
{
	loop_timer_stop(&rpc->rights_timer);
}

/* ---- calls ---- */

int rpc_authorize(void *app, const struct grpc_request *rq, void **ret_caller, struct refusal *ret_r)
{
	struct rpc *rpc = app;
	struct auth_call *c = NULL;
	int rc = rpc->auth ? auth_begin(rpc->auth, rq, &c, ret_r) : 0;
	if (c && c->ends_wall_us)
		look_at(rpc, c->ends_wall_us);
	if (rc == 0 && log_enabled(LOG_DEBUG))
		log_debug("rpc", NULL, "%s from %s agent=\"%.100s\" attempts before=%.10s", rq->method->path, rq->peer->address,
			  rq->user_agent ? rq->user_agent : "", rq->previous_attempts ? rq->previous_attempts : "0");
	*ret_caller = c;
	return rc;
}

void rpc_over(void *app, void *caller, enum status_code code)
{
	struct rpc *rpc = app;
	if (caller)
		auth_end(rpc->auth, caller, code);
}

const char *rpc_principal(const struct grpc_call *call)
{
	const struct principal *p = who_of(call);
	return p ? p->name : "";
}

const char *rpc_only_owner(const struct grpc_call *call, enum rpc_right right)
{
	const struct principal *p = who_of(call);
	return !p || (p->roles & (right == RPC_READ ? READS_ALL : CHANGES_ALL)) ? NULL : p->name;
}

bool rpc_may(const struct grpc_call *call, const char *owner, enum rpc_right right)
{
	const char *only = rpc_only_owner(call, right);
	return !only || (owner && strcmp(owner, only) == 0);
}

bool rpc_must(struct grpc_call *call, const char *owner, enum rpc_right right)
{
	if (rpc_may(call, owner, right))
		return true;
	rpc_refuse(call, STATUS_PERMISSION_DENIED, NULL, "the task is not yours (\"%.100s\"): it takes the role %s", rpc_principal(call),
		   right == RPC_READ ? "reader, operator or admin" : "operator or admin");
	return false;
}

bool rpc_may_queue(const struct grpc_call *call, const char *queue)
{
	const struct principal *p = who_of(call);
	return !p || principal_has_queue(p, queue);
}

void rpc_target(struct grpc_call *call, const char *fmt, ...)
{
	struct auth_call *c = grpc_call_caller(call);
	va_list ap;
	if (!c)
		return;
	va_start(ap, fmt);
	vsnprintf(c->target, sizeof(c->target), fmt, ap);
	va_end(ap);
}

/* ---- workers ---- */

static bool says_id(const struct principal *p, const char *worker, char *ret_text, size_t cap)
{
	if (principal_is_worker(p, worker))
		return true;
	snprintf(ret_text, cap, "\"%.100s\" may work as %.100s, not as \"%.100s\"", p->name, p->worker, worker);
	return false;
}

static bool has_id(const struct grpc_call *call, const char *worker, char *ret_text, size_t cap)
{
	const struct stream_peer *peer = grpc_call_peer(call);
	const struct auth_call *c = grpc_call_caller(call);
	const struct principal *p = c ? c->who : NULL, *cert = c ? c->cert : NULL;
	char named[128];
	if (p && p->worker && !says_id(p, worker, ret_text, cap))
		return false;
	if (p && p->worker && !cert)
		return true;
	/* Where both are wanted both must say so. */
	if (cert && cert->worker)
		return says_id(cert, worker, ret_text, cap);
	/* An admin's token says nothing of workers: with a certificate it is that which counts. */
	if (worker_cert_allows(peer, worker))
		return true;
	worker_cert_names(peer, named, sizeof(named));
	snprintf(ret_text, cap, "the certificate names %s, not worker \"%s\": a worker needs its own (deploy/tls worker %s)", named, worker, worker);
	return false;
}

bool rights_to_work(const struct grpc_call *call, const char *worker, char *const *queues, size_t n_queues, char *ret_text, size_t cap)
{
	const struct principal *p = who_of(call);
	if (!has_id(call, worker, ret_text, cap))
		return false;
	if (!p || !p->queues)
		return true;
	for (size_t i = 0; i < n_queues; i++) {
		if (!principal_has_queue(p, queues[i])) {
			snprintf(ret_text, cap, "\"%.100s\" may not work for queue \"%.100s\"", p->name, queues[i]);
			return false;
		}
	}
	if (!n_queues)
		snprintf(ret_text, cap, "\"%.100s\" may not work for every queue: give --queues", p->name);
	return n_queues > 0;
}
