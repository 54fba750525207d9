/* Who calls, and whether they may: the tokens file and certificates against the table of access.h.
 *
 * Without a tokens file, who shows no verified certificate may everything, as nobody in particular: the listeners see to it that
 * such a peer is on this machine (server/config.c).  Of certificates, unless the file has `cert` lines: reins:client:NAME is an
 * admin called NAME, any other a worker.  Where both are wanted the token says who it is, and the certificate must stand for the
 * same name.
 *
 * Asked when a call's headers have come, before its body.  Secrets are compared by their SHA-256, in constant time, and are
 * never logged. */
#ifndef REINS_AUTH_H
#define REINS_AUTH_H

#include "common/auth/tokens.h"
#include "common/grpc/server.h"
#include "server/auth/access.h"
#include "server/auth/audit.h"

#define AUTH_TARGET_MAX 127
#define AUTH_REQUEST_ID_MAX 64

struct auth;

struct auth_config {
	struct loop *loop;
	const char *tokens_file;  /* NULL: none */
	bool certificates;        /* some listener asks for them */
	bool both;                /* a call takes a token and a certificate, of one name, and may what both may */
	bool open_reflection;     /* rows that are `shown` need nobody known */
	const char *const *hosts; /* names of this server beside its own, see host.h */
	size_t n_hosts;
	const char *audit_file;   /* NULL: audit lines go to the log, where anybody needs to be known at all */
};

/* -EINVAL with a text: the tokens file or the audit's. */
int auth_new(const struct auth_config *cfg, char *ret_err, size_t cap, struct auth **ret) MUST_CHECK;
void auth_free(struct auth *a); /* no call is left; NULL-safe */
/* Reads the tokens file again; then auth_check is due for each open call.  -EINVAL with a text: what was there stays in use. */
int auth_reload(struct auth *a, char *ret_err, size_t cap) MUST_CHECK;
/* Opens the audit's file anew; likewise. */
int auth_reopen_audit(struct auth *a, char *ret_err, size_t cap) MUST_CHECK;

/* A call, while it lives. */
struct auth_call {
	struct principal *who;  /* NULL: nobody in particular */
	struct principal *token, *cert; /* where both are wanted: whose rights together `who` has; else NULL */
	const struct access_row *row;
	int64_t ends_wall_us;   /* of what was shown; 0: never */
	int64_t cert_ends_wall_us;
	char peer[64];
	char request_id[AUTH_REQUEST_ID_MAX + 1];
	char target[AUTH_TARGET_MAX + 1]; /* what it is about, for the audit */
};

/* 0 with *ret_call (NULL: nobody in particular, and nothing to be noted), or -1 with UNAUTHENTICATED, PERMISSION_DENIED or
 * RESOURCE_EXHAUSTED. */
int auth_begin(struct auth *a, const struct grpc_request *rq, struct auth_call **ret_call, struct refusal *ret_r) MUST_CHECK;
/* Once, with the status that it ended with; NULL-safe. */
void auth_end(struct auth *a, struct auth_call *c, enum status_code code);
/* Whether an open call may go on; else *ret_r says why not. */
bool auth_check(struct auth *a, struct auth_call *c, int64_t wall_us, struct refusal *ret_r) MUST_CHECK;
/* For paths that are no rpc, such as /metrics: whether somebody with one of these roles (or an admin) asks.  As auth_begin. */
int auth_may(struct auth *a, const struct grpc_request *rq, unsigned roles, struct refusal *ret_r) MUST_CHECK;

enum auth_failure {
	AUTH_NOTHING_SHOWN,
	AUTH_SHOWN_TWICE,
	AUTH_MALFORMED,
	AUTH_UNKNOWN,
	AUTH_EXPIRED,
	AUTH_CERT_UNKNOWN,
	AUTH_CERT_AMBIGUOUS,
	AUTH_NOT_BOTH,
	AUTH_TWO_NAMES,
	AUTH_NOT_PERMITTED,
	AUTH_FAILURES
};
/* "nothing_shown" …: words for a metric's label. */
extern const char *const auth_failure_names[AUTH_FAILURES];

struct auth_stats {
	int64_t failures[AUTH_FAILURES];
	int64_t too_many;      /* of these, those answered RESOURCE_EXHAUSTED */
	int64_t ended_streams; /* calls whose right ended while they were open */
	int64_t entries;       /* of the tokens file */
	int64_t reloads, reloads_failed;
	struct audit_stats audit;
};
void auth_stats(const struct auth *a, struct auth_stats *ret);

#endif
