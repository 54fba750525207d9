/* TaskSpec: from what a client sent to what the core and the store need. */
#ifndef REINS_RPC_SPEC_H
#define REINS_RPC_SPEC_H

#include "common/base/refusal.h"
#include "reins/v1/task.pb-c.h"
#include "server/rpc/rpc_limits.h"
#include "server/store/store.h"

/* Checks every field against its form and limit.  0, or -1 with INVALID_ARGUMENT or RESOURCE_EXHAUSTED that names the
 * field under `prefix` ("spec", "requests[3].spec"), the value's fault and what is allowed. */
int spec_check(const Reins__V1__TaskSpec *spec, const struct rpc_limits *limits, const char *prefix,
	       struct refusal *ret_refusal) MUST_CHECK;

/* Fills queue's default and sorts the maps (last value of a repeated key wins), so that equal specs encode equally. */
void spec_normalise(Reins__V1__TaskSpec *spec);

/* The fields of ins->task but id and seq, name, run_at and expiry; pointers go into `spec`, but for task.custom, which the
 * caller frees.  Only for a checked, normalised spec. */
int spec_to_insert(Reins__V1__TaskSpec *spec, struct store_insert *ins) MUST_CHECK; /* -ENOMEM */

/* As the store keeps them (server/store/labels.h), to be freed; none: no bytes. -ENOMEM. Only for a checked, normalised spec. */
int spec_labels(const Reins__V1__TaskSpec *spec, struct store_bytes *ret) MUST_CHECK;

/* What is wrong with `custom`, whose values are at least `least` (0 or 1), or NULL. */
const char *spec_custom_fault(const Reins__V1__Resources *r, int64_t least);
/* As core_task.custom, to be freed; NULL: none. Sorts the map. Only for one without fault. -ENOMEM. */
int spec_custom_text(Reins__V1__Resources *r, char **ret) MUST_CHECK;

/* SHA-256 of the normalised spec without origin: what an idempotency key stands for. -ENOMEM. */
int spec_hash(Reins__V1__TaskSpec *spec, uint8_t ret_hash[static 32]) MUST_CHECK;

/* A name of the API: 1 to RPC_NAME_MAX bytes of [A-Za-z0-9._/-]. */
bool spec_name_ok(const char *s);
/* A label: its key 1 to RPC_LABEL_KEY_MAX bytes of the same, its value at most RPC_LABEL_VALUE_MAX bytes. */
bool spec_label_ok(const char *key, const char *value);

#endif
