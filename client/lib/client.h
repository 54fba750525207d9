/* A client of reinsd for programs that do one thing at a time, such as the command line: each call runs the
 * loop until it is answered, so it looks like an ordinary function.
 * Internal to this repository: no promise to other programs.
 *
 * One connection at most, made by the first call that needs it.  The addresses of the server's name are
 * tried one after another.  A call that ended UNAVAILABLE is repeated once over a new connection, if the
 * server cannot have seen it or the method may be repeated.
 *
 * None of these may be called from inside a callback of this module. */
#ifndef REINS_CLIENT_H
#define REINS_CLIENT_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/base.h"
#include "common/base/refusal.h"
#include "common/loop/loop.h"

#define CLIENT_DEFAULT_PORT 7346
#define CLIENT_NO_DEADLINE INT64_MAX

struct client;

struct client_config {
	const char *server;    /* as endpoint_parse reads it; copied, like all of these */
	const char *token;     /* NULL: none */
	bool insecure;         /* the token may go over a network in clear text */
	const char *ca_file;   /* trust for the server; NULL: the system's. Only with a TLS address, like the next two */
	const char *cert_file; /* the client's own certificate and key, both or none */
	const char *key_file;
	const char *user_agent;
	int64_t keepalive_ns; /* see grpc_limits_set_keepalive; 0: 30 s */
	int64_t connect_timeout_ns; /* look-up and all addresses together; 0: 10 s */
};

/* Why a call failed. */
struct client_error {
	enum status_code code;  /* STATUS_OK: it did not */
	char message[2048];     /* for a person: the server's text with the fields at fault; valid UTF-8, no control characters */
	char reason[48];        /* of google.rpc.ErrorInfo (docs/errors.md), when it says more than the code; else "" */
	int64_t retry_after_ms; /* > 0: the server says when to try again */
	bool connection;        /* there was no answer: the text is about the connection */
	bool interrupted;       /* by client_interrupt; code is STATUS_CANCELLED */
	bool awaited;           /* the server answers well; what was waited for has not come in time */
};

struct client_method {
	const char *path; /* "/reins.v1.TaskService/GetTask" */
	const ProtobufCMessageDescriptor *request, *reply;
	bool repeatable;  /* a second call does no harm */
};

/* The methods of reins.v1 that have one request, and health. */
extern const struct client_method client_submit_task, client_submit_tasks, client_get_task, client_list_tasks,
	client_cancel_task, client_retry_task, client_cancel_tasks, client_retry_tasks, client_watch_tasks, client_read_logs, client_read_metrics, client_list_workers,
	client_drain_worker, client_list_queues, client_pause_queue, client_resume_queue, client_get_server_info,
	client_health_check;

/* -1 with *ret_err filled (INVALID_ARGUMENT: the address or the TLS files). Connects nothing yet. */
int client_new(struct loop *loop, const struct client_config *cfg, struct client_error *ret_err,
	       struct client **ret) MUST_CHECK;
/* NULL-safe; ends the connection. */
void client_free(struct client *c);
/* The address as it is used, for messages. Valid until client_free. */
const char *client_server(const struct client *c);

/* One request, one reply, which the caller gives to pb_free.  0, or -1 with *ret_err filled. */
int client_call(struct client *c, const struct client_method *m, const void *request, int64_t deadline_mono_ns,
		void **ret_reply, struct client_error *ret_err) MUST_CHECK;

/* One request, any number of replies: on_message gets each, valid in the call only, and returns false to
 * end the stream (the result is then 0).  While it runs nothing else is read: a slow callback slows
 * the server down.  Repeated only if no message had come. */
int client_stream(struct client *c, const struct client_method *m, const void *request, int64_t deadline_mono_ns,
		  bool (*on_message)(void *arg, const void *message), void *arg,
		  struct client_error *ret_err) MUST_CHECK;

/* Runs the loop for this long (a pause between tries); -1 when interrupted. */
int client_sleep(struct client *c, int64_t ns) MUST_CHECK;

/* From a callback of the loop (a signal): the call in progress ends with `interrupted`, and so does every
 * later one. */
void client_interrupt(struct client *c);

#endif
