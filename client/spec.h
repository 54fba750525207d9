/* The flags of `submit` as a SubmitTaskRequest. What the server checks is left to the server; here is what
 * only the command can know: the form of K=V, files, numbers as people write them. */
#ifndef REINS_CLIENT_SPEC_H
#define REINS_CLIENT_SPEC_H

#include "client/origin.h"
#include "common/settings/settings.h"
#include "reins/v1/task_service.pb-c.h"

/* As given; NULL and 0 mean "not given". */
struct spec_flags {
	char *name, *queue, *handler, *working_dir, *payload, *cpus, *idempotency_key, *run_at;
	struct setting_list env, params, labels, custom;
	int64_t priority, gpus, memory, max_attempts;
	int64_t timeout, expiry, backoff; /* ns */
	bool exclusive;
};

#define SPEC_PAYLOAD_MAX ((size_t)4 << 20) /* no message is larger; the server's own limit is lower */

/* Everything that the request points at. */
struct spec {
	Reins__V1__SubmitTaskRequest request;
	Reins__V1__TaskSpec task;
	Reins__V1__Resources resources;
	Reins__V1__RetryPolicy retry;
	Reins__V1__Origin origin;
	Google__Protobuf__Duration timeout, expiry, backoff;
	Google__Protobuf__Timestamp run_at;
	char idempotency_key[37];
	char *working_dir; /* owned */
	uint8_t *payload;  /* owned */
};

/* `flags`, `command` and `origin` must outlive *ret.  -EINVAL (or another -errno of reading the payload) with a sentence
 * in ret_err.  Without an idempotency key a random one is made, so that a submit whose answer was lost may be
 * repeated. */
int spec_build(const struct spec_flags *flags, char **command, size_t n_command, const struct origin *origin,
	       struct spec *ret, char *ret_err, size_t err_cap) MUST_CHECK;
void spec_done(struct spec *s);

/* "90m": so long after `now`; "2026-12-01T08:00Z", "2026-12-01 08:00:30Z". -EINVAL. */
int spec_parse_time(const char *s, int64_t now_wall_us, int64_t *ret_wall_us) MUST_CHECK;

/* "1.5" → 1500; at most three digits after the point. -EINVAL. */
int spec_parse_cpus(const char *s, int64_t *ret_millis) MUST_CHECK;

#endif
