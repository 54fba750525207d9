/* The services that reinsd answers, on the engine and the store. */
#ifndef REINS_RPC_H
#define REINS_RPC_H

#include <protobuf-c/protobuf-c.h>

#include "common/grpc/server.h"
#include "server/auth/auth.h"
#include "server/engine/engine.h"
#include "server/rpc/descriptors.h"
#include "server/rpc/health.h"
#include "server/rpc/progress.h"
#include "server/rpc/reads.h"
#include "server/rpc/rpc_limits.h"

struct rpc {
	struct engine *engine;
	struct loop *loop;
	struct rpc_limits limits;
	/* Longest that a call without a deadline waits for an answer of the store; then it ends with UNAVAILABLE. 0: for ever. */
	int64_t store_wait_ns;
	struct refusal no_answer, no_answer_to_change; /* what it ends with */
	int64_t started_wall_us;
	const char *store_kind, *lease_kind;
	struct auth *auth;         /* NULL: everybody may everything */
	struct grpc_server *grpc;  /* whose calls rpc_check_rights visits; set when there is one */
	struct loop_timer rights_timer; /* rights.c, as the next */
	int64_t rights_mono_ns;
	struct list sessions;  /* struct session */
	int64_t held_bytes;    /* of logs, metrics and outcomes of all sessions, that wait for the store */
	int64_t windows;       /* what sessions were told that they may have on the way */
	struct list parked;    /* struct rpc_parked */
	struct rpc_reads reads;
	struct map follows;    /* follow.c */
	struct watch *watch;   /* watch.c; NULL: nobody has watched yet */
	struct watch_news *news; /* watch_news.c; NULL: there were none yet */
	struct progress left;  /* of streams that have ended */
	struct health health;
	struct descriptors protos; /* what reflection tells */
	int64_t reflections;       /* streams */
	bool draining;         /* health says NOT_SERVING, nothing is parked any longer */
};

/* A call that waits for news, not for the store: it is ended when the master stops. */
struct rpc_parked {
	struct list node;
	/* Refuses the call with rpc_refuse_stopping. */
	void (*end)(struct rpc_parked *p);
};

/* After the fields before `sessions` were set. */
void rpc_init(struct rpc *rpc);
void rpc_done(struct rpc *rpc); /* all calls are over */
/* The master stops: sessions and parked calls end with UNAVAILABLE, later ones at once. Other calls go on. */
void rpc_drain(struct rpc *rpc);

/* The method table: all that is not in it answers UNIMPLEMENTED. */
extern const struct grpc_method rpc_methods[];
extern const size_t rpc_n_methods;
/* The services of the table. */
extern const ProtobufCServiceDescriptor *const rpc_services[];
extern const size_t rpc_n_services;

/* The service of a method of the table, without a NUL; false: an earlier method has it too. */
bool rpc_service_of(size_t method, const char **ret_name, size_t *ret_len);

/* ---- who may what (rights.c) ---- */

/* For grpc_server_config; app is the rpc. */
int rpc_authorize(void *app, const struct grpc_request *rq, void **ret_caller, struct refusal *ret_r);
void rpc_over(void *app, void *caller, enum status_code code);
/* Ends open calls whose right has ended: after a reload. What expires by itself is seen to. */
void rpc_check_rights(struct rpc *rpc);

/* Who may call a method at all is decided before its handler runs (server/auth/access.txt).  The handler asks what of others'
 * the caller may touch: READ is all of a task (payload, env, result, log, metrics; lists without these are for all who may
 * list), CHANGE is to cancel or retry it.  Somebody who is no more than a submitter: only tasks of their own. */
enum rpc_right { RPC_READ, RPC_CHANGE };
/* NULL: everybody's tasks; else only those with this owner, which is never "". Valid while the call lives. */
const char *rpc_only_owner(const struct grpc_call *call, enum rpc_right right);
/* Whether that includes a task of this owner (NULL and "": nobody's). */
bool rpc_may(const struct grpc_call *call, const char *owner, enum rpc_right right);
/* As rpc_may; false: the call was ended with PERMISSION_DENIED. */
bool rpc_must(struct grpc_call *call, const char *owner, enum rpc_right right) MUST_CHECK;
/* "": nobody in particular. Owner of what the call makes. Valid while the call lives. */
const char *rpc_principal(const struct grpc_call *call);
bool rpc_may_queue(const struct grpc_call *call, const char *queue);
/* What the call is about, for its line in the audit log: "task=…". The last one counts. */
void rpc_target(struct grpc_call *call, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* ---- for the handlers ---- */

/* What a handler keeps of its call, zeroed; without memory the call has been ended and NULL is returned. */
void *rpc_calloc(struct grpc_call *call, size_t size) MUST_CHECK;
/* Ends the call with a refusal. */
void rpc_refuse(struct grpc_call *call, enum status_code code, const char *field, const char *fmt, ...) PRINTF_LIKE(4, 5);
/* The same with more to say: the task or worker, and for a task that is in the wrong state, that. */
void rpc_no_memory(struct grpc_call *call);
void rpc_refuse_no_task(struct grpc_call *call, const struct uuid *id);
void rpc_refuse_no_attempt(struct grpc_call *call, const struct uuid *id, int attempts);
void rpc_refuse_state(struct grpc_call *call, const struct uuid *id, const char *state, const char *field, const char *fmt, ...)
	PRINTF_LIKE(5, 6);
void rpc_refuse_no_worker(struct grpc_call *call, const char *id, const char *text);
/* A reply that can't be made or sent: RESOURCE_EXHAUSTED. */
void rpc_refuse_room(struct grpc_call *call, const char *text);
/* The refusal of an operation that was not STORE_OK: UNAVAILABLE with RetryInfo, or INVALID_ARGUMENT. */
void rpc_refuse_store(struct grpc_call *call, const struct store_op *op);
/* From here on the call waits for the store (see store_wait_ns), which may change something for it; and no longer.  What the
 * store does for a call that has ended is its own affair: the operation is answered in the end. NULL-safe. */
void rpc_store_begin(struct grpc_call *call, bool changes);
void rpc_store_end(struct grpc_call *call);
/* UNAVAILABLE with RetryInfo: another master, or this one after its restart, can be asked. */
void rpc_refuse_stopping(struct grpc_call *call);
/* Sends an encoded reply and ends the call OK. */
void rpc_reply(struct grpc_call *call, const struct buf *b);
/* A task id of a request; on failure the call has been ended and -1 is returned. */
int rpc_parse_id(struct grpc_call *call, const char *text, struct uuid *ret) MUST_CHECK;
/* pb_unpack; on failure the call has been ended and NULL is returned. */
void *rpc_unpack(struct grpc_call *call, const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len) MUST_CHECK;
struct rpc *rpc_of(struct grpc_call *call);
/* Why tasks of one reply wait: each kind is looked into once, and at most so many kinds, so that a page of a list costs
 * little.  Tasks must live as long. */
#define RPC_REASONS_MAX 32
struct rpc_reasons {
	const struct core_task *of[RPC_REASONS_MAX];
	char text[RPC_REASONS_MAX][513];
	size_t n;
};
/* Appends the Task, with pending_reason where it waits. `reasons`: NULL: it is the reply's only one. */
int rpc_task(struct rpc *rpc, const struct store_task *t, bool full, struct rpc_reasons *reasons, struct buf *b) MUST_CHECK;

/* handlers, by file */
void submit_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void submit_many_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void submit_on_end(struct grpc_call *call, bool finished);
void get_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void get_on_end(struct grpc_call *call, bool finished);
void cancel_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void cancel_on_end(struct grpc_call *call, bool finished);
void retry_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void retry_on_end(struct grpc_call *call, bool finished);
void cancel_many_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void retry_many_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void bulk_on_end(struct grpc_call *call, bool finished);
void list_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void list_on_end(struct grpc_call *call, bool finished);
void logs_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void logs_on_writable(struct grpc_call *call);
void logs_on_end(struct grpc_call *call, bool finished);
void watch_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void watch_on_writable(struct grpc_call *call);
void watch_on_end(struct grpc_call *call, bool finished);
/* Streams of WatchTasks now. */
int watch_count(const struct watch *watch);
/* After all of them have ended. NULL-safe. */
void watch_free(struct watch *watch);
/* The attempt has new points in the store: those who watch are told, within a second or so. */
void watch_news(struct rpc *rpc, const struct core_attempt *at);
/* The store is gone, and nothing of it on its way. NULL-safe. */
void watch_news_free(struct watch_news *w);
void metrics_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void metrics_on_end(struct grpc_call *call, bool finished);
void health_on_check(struct grpc_call *call, const uint8_t *data, size_t len);
void health_on_watch(struct grpc_call *call, const uint8_t *data, size_t len);
void health_on_writable(struct grpc_call *call);
void health_on_end(struct grpc_call *call, bool finished);
void reflection_on_start(struct grpc_call *call);
void reflection_on_message(struct grpc_call *call, const uint8_t *data, size_t len);
void reflection_on_writable(struct grpc_call *call);
void reflection_on_half_close(struct grpc_call *call);
void reflection_on_end(struct grpc_call *call, bool finished);
void worker_on_start(struct grpc_call *call);
void worker_on_message(struct grpc_call *call, const uint8_t *data, size_t len);
void worker_on_half_close(struct grpc_call *call);
void worker_on_writable(struct grpc_call *call);
void worker_on_end(struct grpc_call *call, bool finished);
void info_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void workers_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void drain_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void queues_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void queues_on_end(struct grpc_call *call, bool finished);
void pause_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void resume_on_request(struct grpc_call *call, const uint8_t *data, size_t len);
void workers_on_end(struct grpc_call *call, bool finished);

#endif
