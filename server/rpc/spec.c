/* Validation of TaskSpec, and its narrow form for the core and the store. */
#include "server/rpc/spec.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "common/base/name.h"
#include "common/pb/pb.h"
#include "server/store/labels.h"

#define DAY_NS (86400 * NS_PER_S)
#define FOREVER_NS (100 * 365 * DAY_NS)
#define CUSTOM_MAX (INT64_C(1) << 62)
#define MEMORY_MAX (INT64_C(1) << 48) /* of one task: what 10,000 of them ask for together can be counted */

bool spec_name_ok(const char *s)
{
	return name_is(s, strlen(s), RPC_NAME_MAX);
}

bool spec_label_ok(const char *key, const char *value)
{
	return name_is(key, strlen(key), RPC_LABEL_KEY_MAX) && strlen(value) <= RPC_LABEL_VALUE_MAX;
}

const char *spec_custom_fault(const Reins__V1__Resources *r, int64_t least)
{
	if (r->n_custom > CORE_CUSTOM_ENTRIES)
		return "more than 16 entries";
	for (size_t i = 0; i < r->n_custom; i++) {
		if (!spec_name_ok(r->custom[i]->key))
			return "a key is not of 1 to 255 bytes of [A-Za-z0-9._/-]";
		if (r->custom[i]->value < least || r->custom[i]->value > CUSTOM_MAX)
			return least ? "a value is not from 1 to 2^62" : "a value is not from 0 to 2^62";
	}
	return NULL;
}

int spec_custom_text(Reins__V1__Resources *r, char **ret)
{
	struct buf text;
	char number[24];
	*ret = NULL;
	if (!r || !r->n_custom)
		return 0;
	r->n_custom = pb_map_unique((void *)r->custom, r->n_custom);
	buf_init(&text, CORE_CUSTOM_MAX + 1);
	int rc = 0;
	for (size_t i = 0; i < r->n_custom && rc == 0; i++) {
		if (!r->custom[i]->value)
			continue; /* none of it */
		snprintf(number, sizeof(number), "=%" PRId64, r->custom[i]->value);
		rc = buf_len(&text) ? buf_add(&text, " ", 1) : 0;
		rc = rc ? rc : buf_add(&text, r->custom[i]->key, strlen(r->custom[i]->key));
		rc = rc ? rc : buf_add(&text, number, strlen(number));
	}
	char *copy = rc ? NULL : calloc(1, buf_len(&text) + 1);
	if (copy && buf_len(&text))
		memcpy(copy, buf_head(&text), buf_len(&text));
	buf_done(&text);
	*ret = copy;
	return copy ? 0 : -ENOMEM;
}

struct checker {
	const Reins__V1__TaskSpec *spec;
	const struct rpc_limits *limits;
	const char *prefix;
	struct refusal *refusal;
};

static int bad(struct checker *c, enum status_code code, const char *field, const char *why)
{
	char path[sizeof(c->refusal->field)];
	snprintf(path, sizeof(path), "%s.%s", c->prefix, field);
	return refuse(c->refusal, code, path, "%s: %s", path, why);
}

static int invalid(struct checker *c, const char *field, const char *why)
{
	return bad(c, STATUS_INVALID_ARGUMENT, field, why);
}

static int over(struct checker *c, const char *field, size_t size, int64_t limit)
{
	char why[160];
	snprintf(why, sizeof(why), "%zu bytes; at most %" PRId64 " are allowed", size, limit);
	return bad(c, STATUS_RESOURCE_EXHAUSTED, field, why);
}

static int check_name(struct checker *c, const char *field, const char *s)
{
	if (!*s || spec_name_ok(s))
		return 0;
	return invalid(c, field, strlen(s) > RPC_NAME_MAX
					 ? "longer than 255 bytes; allowed are 1 to 255 bytes of [A-Za-z0-9._/-]"
					 : "has a character that is not allowed; allowed are 1 to 255 bytes of [A-Za-z0-9._/-]");
}

static int check_duration(struct checker *c, const char *field, const Google__Protobuf__Duration *d, int64_t max_ns,
			  int64_t *ret_ns)
{
	int64_t ns;
	if (pb_duration_ns(d, &ns) || ns < 0 || ns > max_ns) {
		char why[128];
		snprintf(why, sizeof(why), "not a duration from 0 to %" PRId64 " s", max_ns / NS_PER_S);
		return invalid(c, field, why);
	}
	*ret_ns = ns;
	return 0;
}

static int check_program(struct checker *c)
{
	const Reins__V1__TaskSpec *s = c->spec;
	bool command = s->n_command > 0, handler = *s->handler != '\0';
	if (command == handler)
		return invalid(c, "command", command ? "set together with handler; exactly one of the two is allowed"
						      : "empty, and so is handler; exactly one of the two must be set");
	if (handler && check_name(c, "handler", s->handler))
		return -1;
	if (command && !*s->command[0])
		return invalid(c, "command[0]", "empty; it must name a program");

	size_t total = 0;
	for (size_t i = 0; i < s->n_command; i++)
		total += strlen(s->command[i]) + 1;
	for (size_t i = 0; i < s->n_env; i++) {
		const char *key = s->env[i]->key;
		size_t len = strlen(key);
		if (!name_is(key, len, SIZE_MAX) || strcspn(key, "./-") < len || (key[0] >= '0' && key[0] <= '9'))
			return invalid(c, "env", "a key is not of the form [A-Za-z_][A-Za-z0-9_]*");
		if (strncmp(key, "REINS_", 6) == 0)
			return invalid(c, "env", "a key begins with REINS_, which is kept for Reins itself");
		total += len + strlen(s->env[i]->value) + 2;
	}
	if (total > (size_t)c->limits->command_env_bytes)
		return over(c, "command", total, c->limits->command_env_bytes);

	if (*s->working_dir && (*s->working_dir != '/' || strlen(s->working_dir) > 4096))
		return invalid(c, "working_dir", "not an absolute path of at most 4096 bytes");
	if (s->payload.len > (size_t)c->limits->payload_bytes)
		return over(c, "payload", s->payload.len, c->limits->payload_bytes);
	return 0;
}

static int check_maps(struct checker *c)
{
	const Reins__V1__TaskSpec *s = c->spec;
	if (s->n_labels > RPC_LABELS_MAX)
		return invalid(c, "labels", "more than 64 entries");
	for (size_t i = 0; i < s->n_labels; i++) {
		if (!name_is(s->labels[i]->key, strlen(s->labels[i]->key), RPC_LABEL_KEY_MAX))
			return invalid(c, "labels", "a key is not of 1 to 63 bytes of [A-Za-z0-9._/-]");
		if (strlen(s->labels[i]->value) > RPC_LABEL_VALUE_MAX)
			return invalid(c, "labels", "a value is longer than 255 bytes");
	}
	size_t total = 0;
	for (size_t i = 0; i < s->n_params; i++) {
		if (!*s->params[i]->key)
			return invalid(c, "params", "a key is empty");
		total += strlen(s->params[i]->key) + strlen(s->params[i]->value);
	}
	if (total > (size_t)c->limits->params_bytes)
		return over(c, "params", total, c->limits->params_bytes);
	return 0;
}

static int check_retry(struct checker *c)
{
	const Reins__V1__RetryPolicy *r = c->spec->retry;
	if (!r)
		return 0;
	int64_t initial = NS_PER_S, max = 300 * NS_PER_S;
	if (r->max_attempts < 0 || r->max_attempts > 1000)
		return invalid(c, "retry.max_attempts", "not from 0 to 1000 (0 means 1)");
	if (r->initial_backoff && check_duration(c, "retry.initial_backoff", r->initial_backoff, 7 * DAY_NS, &initial))
		return -1;
	if (r->max_backoff && check_duration(c, "retry.max_backoff", r->max_backoff, 7 * DAY_NS, &max))
		return -1;
	if (r->max_backoff && max < initial)
		return invalid(c, "retry.max_backoff", "smaller than initial_backoff");
	if (!isfinite(r->multiplier) || (r->multiplier != 0 && (r->multiplier < 1 || r->multiplier > 100)))
		return invalid(c, "retry.multiplier", "not from 1 to 100 (0 means 2)");
	return 0;
}

static int check_placement(struct checker *c)
{
	const Reins__V1__TaskSpec *s = c->spec;
	int64_t ns;
	if (s->priority < -1000 || s->priority > 1000)
		return invalid(c, "priority", "not from -1000 to 1000");
	const Reins__V1__Resources *r = s->resources;
	if (r) {
		if (r->cpu_millis < 0 || r->cpu_millis > 1000000000)
			return invalid(c, "resources.cpu_millis", "not from 0 to 1000000000");
		if (r->memory_bytes < 0 || r->memory_bytes > MEMORY_MAX)
			return invalid(c, "resources.memory_bytes", "not from 0 to 2^48");
		if (r->gpus < 0 || r->gpus > 1024)
			return invalid(c, "resources.gpus", "not from 0 to 1024");
		const char *fault = spec_custom_fault(r, 1);
		if (fault)
			return invalid(c, "resources.custom", fault);
	}
	if (check_duration(c, "timeout", s->timeout, FOREVER_NS, &ns) || check_duration(c, "expiry", s->expiry, FOREVER_NS, &ns) ||
	    check_duration(c, "lease_ttl", s->lease_ttl, DAY_NS, &ns))
		return -1;
	if (pb_timestamp_us(s->run_at, &ns))
		return invalid(c, "run_at", "not a time of the years 1 to 9999");
	return 0;
}

static int check_origin(struct checker *c)
{
	const Reins__V1__Origin *o = c->spec->origin;
	if (!o)
		return 0;
	if (strlen(o->user) > 255 || strlen(o->host) > 255 || strlen(o->git_commit) > 255 || strlen(o->client) > 255)
		return invalid(c, "origin", "a field is longer than 255 bytes");
	if (strlen(o->directory) > 4096)
		return invalid(c, "origin.directory", "longer than 4096 bytes");
	if (*o->traceparent && !traceparent_ok(o->traceparent))
		return invalid(c, "origin.traceparent", "not of the form 00-<32 hex digits>-<16>-<2>, in lower case");
	return 0;
}

int spec_check(const Reins__V1__TaskSpec *spec, const struct rpc_limits *limits, const char *prefix,
	       struct refusal *ret_refusal)
{
	struct checker c = { spec, limits, prefix, ret_refusal };
	if (!spec)
		return refuse(ret_refusal, STATUS_INVALID_ARGUMENT, prefix, "%s: missing", prefix);
	if (check_name(&c, "name", spec->name) || check_name(&c, "queue", spec->queue) || check_program(&c) ||
	    check_maps(&c) || check_retry(&c) || check_placement(&c) || check_origin(&c))
		return -1;
	return 0;
}

void spec_normalise(Reins__V1__TaskSpec *spec)
{
	static char default_queue[] = "default";
	if (!*spec->queue)
		spec->queue = default_queue;
	spec->n_env = pb_map_unique((void *)spec->env, spec->n_env);
	spec->n_labels = pb_map_unique((void *)spec->labels, spec->n_labels);
	spec->n_params = pb_map_unique((void *)spec->params, spec->n_params);
	if (spec->resources)
		spec->resources->n_custom = pb_map_unique((void *)spec->resources->custom, spec->resources->n_custom);
}

static int64_t duration_or(const Google__Protobuf__Duration *d, int64_t otherwise)
{
	int64_t ns;
	return d && pb_duration_ns(d, &ns) == 0 ? ns : otherwise;
}

int spec_to_insert(Reins__V1__TaskSpec *spec, struct store_insert *ins)
{
	const Reins__V1__RetryPolicy *r = spec->retry;
	struct core_task *t = &ins->task;
	t->queue = spec->queue;
	t->priority = spec->priority;
	if (spec->resources)
		t->need = (struct core_need){
			.memory_bytes = spec->resources->memory_bytes,
			.cpu_millis = (int32_t)spec->resources->cpu_millis,
			.gpus = spec->resources->gpus,
		};
	t->handler = spec->handler;
	t->exclusive = spec->exclusive;
	t->lease_ttl_ns = duration_or(spec->lease_ttl, 0);
	t->max_attempts = r && r->max_attempts > 0 ? r->max_attempts : 1;
	t->backoff_initial_ns = duration_or(r ? r->initial_backoff : NULL, NS_PER_S);
	t->backoff_max_ns = duration_or(r ? r->max_backoff : NULL, max_i64(300 * NS_PER_S, t->backoff_initial_ns));
	t->backoff_multiplier = r && r->multiplier > 0 ? r->multiplier : 2;
	ins->name = spec->name;
	ins->expiry_ns = duration_or(spec->expiry, 0);
	ins->run_at_wall_us = 0;
	if (spec->run_at && pb_timestamp_us(spec->run_at, &ins->run_at_wall_us))
		ins->run_at_wall_us = 0;
	char *custom;
	int rc = spec_custom_text(spec->resources, &custom);
	t->custom = custom;
	return rc;
}

int spec_labels(const Reins__V1__TaskSpec *spec, struct store_bytes *ret)
{
	struct buf b;
	int rc = 0;
	buf_init(&b, RPC_LABELS_MAX * (RPC_LABEL_KEY_MAX + RPC_LABEL_VALUE_MAX + 2) + 1);
	for (size_t i = 0; i < spec->n_labels && rc == 0; i++)
		rc = labels_add(&b, spec->labels[i]->key, spec->labels[i]->value);
	if (rc == 0)
		rc = labels_end(&b);
	uint8_t *data = rc == 0 && buf_len(&b) ? malloc(buf_len(&b)) : NULL;
	if (rc == 0 && buf_len(&b) && !data)
		rc = -ENOMEM;
	if (data)
		*ret = (struct store_bytes){ memcpy(data, buf_head(&b), buf_len(&b)), buf_len(&b) };
	buf_done(&b);
	return rc;
}

int spec_hash(Reins__V1__TaskSpec *spec, uint8_t ret_hash[static 32])
{
	Reins__V1__Origin *origin = spec->origin;
	spec->origin = NULL;
	struct blob *bytes = pb_pack_blob(spec);
	spec->origin = origin;
	if (!bytes)
		return -ENOMEM;
	unsigned len = 32;
	int ok = EVP_Digest(bytes->data, bytes->len, ret_hash, &len, EVP_sha256(), NULL);
	blob_unref(bytes);
	return ok ? 0 : -ENOMEM;
}
