/* The parts of the services that need no server: validation of specs, hand-placed fields, the view of a task. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/pb/pb.h"
#include "reins/v1/task.pb-c.h"
#include "server/rpc/spec.h"
#include "server/rpc/view.h"
#include "server/rpc/wire.h"

static const struct rpc_limits limits = {
	.message_bytes = 4 << 20, .payload_bytes = 1 << 20, .result_bytes = 1 << 20, .error_bytes = 16 << 10,
	.command_env_bytes = 256 << 10, .params_bytes = 64 << 10, .log_bytes = 64 << 20, .tasks_per_submit = 10000,
};

/* A spec that is good, to be spoilt in one field. */
static Reins__V1__TaskSpec spec;
static Reins__V1__RetryPolicy retry;
static Reins__V1__Resources resources;
static Reins__V1__Origin origin;
static Google__Protobuf__Duration duration;
static Google__Protobuf__Timestamp when;
static Reins__V1__TaskSpec__EnvEntry env;
static Reins__V1__TaskSpec__EnvEntry *envs[] = { &env };
static Reins__V1__TaskSpec__LabelsEntry label;
static Reins__V1__TaskSpec__LabelsEntry *labels[65];
static Reins__V1__TaskSpec__ParamsEntry param;
static Reins__V1__TaskSpec__ParamsEntry *params[] = { &param };
static char *command[] = { (char[]){ "true" }, (char[]){ "x" } };
static char big[2 << 20];

static void good(void)
{
	reins__v1__task_spec__init(&spec);
	reins__v1__retry_policy__init(&retry);
	reins__v1__resources__init(&resources);
	reins__v1__origin__init(&origin);
	google__protobuf__duration__init(&duration);
	google__protobuf__timestamp__init(&when);
	reins__v1__task_spec__env_entry__init(&env);
	reins__v1__task_spec__labels_entry__init(&label);
	reins__v1__task_spec__params_entry__init(&param);
	env.key = (char *)"PATH", env.value = (char *)"/bin";
	label.key = (char *)"team", label.value = (char *)"rl";
	param.key = (char *)"lr", param.value = (char *)"0.1";
	for (size_t i = 0; i < ARRAY_LEN(labels); i++)
		labels[i] = &label;
	spec.command = command, spec.n_command = 1;
	spec.env = envs, spec.n_env = 1;
	spec.labels = labels, spec.n_labels = 1;
	spec.params = params, spec.n_params = 1;
	spec.retry = &retry;
	spec.resources = &resources;
	spec.origin = &origin;
	memset(big, 'x', sizeof(big) - 1);
}

static void spoil_both(void) { spec.handler = (char *)"h"; }
static void spoil_neither(void) { spec.n_command = 0; }
static void spoil_handler(void) { spec.n_command = 0, spec.handler = (char *)"a b"; }
static char *no_program[] = { (char[]){ "" } };
static void spoil_argv0(void) { spec.command = no_program; }
static char *long_command[1];
static void spoil_command_size(void) { long_command[0] = big, spec.command = long_command; }
static void spoil_name(void) { spec.name = (char *)"no blanks"; }
static void spoil_name_long(void) { big[256] = '\0', spec.name = big; }
static void spoil_queue(void) { spec.queue = (char *)"q\xc3\xa4"; }
static void spoil_env_key(void) { env.key = (char *)"1A"; }
static void spoil_env_empty(void) { env.key = (char *)""; }
static void spoil_env_reins(void) { env.key = (char *)"REINS_TASK_ID"; }
static void spoil_dir(void) { spec.working_dir = (char *)"relative"; }
static void spoil_payload(void) { spec.payload = (ProtobufCBinaryData){ (1 << 20) + 1, (uint8_t *)big }; }
static void spoil_labels(void) { spec.n_labels = 65; }
static void spoil_label_key(void) { label.key = (char *)""; }
static void spoil_label_value(void) { big[256] = '\0', label.value = big; }
static void spoil_param_key(void) { param.key = (char *)""; }
static void spoil_params(void) { big[64 << 10] = '\0', param.value = big; }
static void spoil_priority(void) { spec.priority = 1001; }
static void spoil_priority_low(void) { spec.priority = -1001; }
static void spoil_cpu(void) { resources.cpu_millis = -1; }
static void spoil_memory(void) { resources.memory_bytes = -1; }
static void spoil_memory_high(void) { resources.memory_bytes = (INT64_C(1) << 48) + 1; }
static void spoil_gpus(void) { resources.gpus = 1025; }
static void spoil_attempts(void) { retry.max_attempts = 1001; }
static void spoil_multiplier(void) { retry.multiplier = 0.5; }
static void spoil_multiplier_nan(void) { retry.multiplier = __builtin_nan(""); }
static void spoil_backoff(void) { duration.seconds = 8 * 86400, retry.initial_backoff = &duration; }
static void spoil_max_backoff(void) { duration.nanos = 1, retry.max_backoff = &duration; }
static void spoil_timeout(void) { duration.seconds = -1, spec.timeout = &duration; }
static void spoil_timeout_form(void) { duration.nanos = 2000000000, spec.timeout = &duration; }
static void spoil_lease(void) { duration.seconds = 86401, spec.lease_ttl = &duration; }
static void spoil_run_at(void) { when.nanos = -1, spec.run_at = &when; }
static void spoil_origin(void) { big[256] = '\0', origin.user = big; }

static const struct {
	void (*spoil)(void);
	const char *field;
	enum status_code code;
} bad[] = {
	{ spoil_both, "spec.command", STATUS_INVALID_ARGUMENT },
	{ spoil_neither, "spec.command", STATUS_INVALID_ARGUMENT },
	{ spoil_handler, "spec.handler", STATUS_INVALID_ARGUMENT },
	{ spoil_argv0, "spec.command[0]", STATUS_INVALID_ARGUMENT },
	{ spoil_command_size, "spec.command", STATUS_RESOURCE_EXHAUSTED },
	{ spoil_name, "spec.name", STATUS_INVALID_ARGUMENT },
	{ spoil_name_long, "spec.name", STATUS_INVALID_ARGUMENT },
	{ spoil_queue, "spec.queue", STATUS_INVALID_ARGUMENT },
	{ spoil_env_key, "spec.env", STATUS_INVALID_ARGUMENT },
	{ spoil_env_empty, "spec.env", STATUS_INVALID_ARGUMENT },
	{ spoil_env_reins, "spec.env", STATUS_INVALID_ARGUMENT },
	{ spoil_dir, "spec.working_dir", STATUS_INVALID_ARGUMENT },
	{ spoil_payload, "spec.payload", STATUS_RESOURCE_EXHAUSTED },
	{ spoil_labels, "spec.labels", STATUS_INVALID_ARGUMENT },
	{ spoil_label_key, "spec.labels", STATUS_INVALID_ARGUMENT },
	{ spoil_label_value, "spec.labels", STATUS_INVALID_ARGUMENT },
	{ spoil_param_key, "spec.params", STATUS_INVALID_ARGUMENT },
	{ spoil_params, "spec.params", STATUS_RESOURCE_EXHAUSTED },
	{ spoil_priority, "spec.priority", STATUS_INVALID_ARGUMENT },
	{ spoil_priority_low, "spec.priority", STATUS_INVALID_ARGUMENT },
	{ spoil_cpu, "spec.resources.cpu_millis", STATUS_INVALID_ARGUMENT },
	{ spoil_memory, "spec.resources.memory_bytes", STATUS_INVALID_ARGUMENT },
	{ spoil_memory_high, "spec.resources.memory_bytes", STATUS_INVALID_ARGUMENT },
	{ spoil_gpus, "spec.resources.gpus", STATUS_INVALID_ARGUMENT },
	{ spoil_attempts, "spec.retry.max_attempts", STATUS_INVALID_ARGUMENT },
	{ spoil_multiplier, "spec.retry.multiplier", STATUS_INVALID_ARGUMENT },
	{ spoil_multiplier_nan, "spec.retry.multiplier", STATUS_INVALID_ARGUMENT },
	{ spoil_backoff, "spec.retry.initial_backoff", STATUS_INVALID_ARGUMENT },
	{ spoil_max_backoff, "spec.retry.max_backoff", STATUS_INVALID_ARGUMENT },
	{ spoil_timeout, "spec.timeout", STATUS_INVALID_ARGUMENT },
	{ spoil_timeout_form, "spec.timeout", STATUS_INVALID_ARGUMENT },
	{ spoil_lease, "spec.lease_ttl", STATUS_INVALID_ARGUMENT },
	{ spoil_run_at, "spec.run_at", STATUS_INVALID_ARGUMENT },
	{ spoil_origin, "spec.origin", STATUS_INVALID_ARGUMENT },
};

static void test_spec_refused(void **state)
{
	struct refusal r;
	good();
	assert_int_equal(spec_check(&spec, &limits, "spec", &r), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		good();
		bad[i].spoil();
		if (spec_check(&spec, &limits, "spec", &r) == 0)
			fail_msg("row %zu (%s) was let through", i, bad[i].field);
		assert_string_equal(r.field, bad[i].field);
		assert_int_equal(r.code, bad[i].code);
		assert_true(strncmp(r.message, bad[i].field, strlen(bad[i].field)) == 0);
	}
	assert_int_equal(spec_check(NULL, &limits, "requests[3].spec", &r), -1);
	assert_string_equal(r.field, "requests[3].spec");
}

static void test_hash_ignores_map_order_and_origin(void **state)
{
	Reins__V1__TaskSpec__ParamsEntry a = REINS__V1__TASK_SPEC__PARAMS_ENTRY__INIT, b = a;
	Reins__V1__TaskSpec__ParamsEntry *ab[] = { &a, &b }, *ba[] = { &b, &a };
	uint8_t first[32], second[32];
	a.key = (char *)"a", a.value = (char *)"1";
	b.key = (char *)"b", b.value = (char *)"2";
	good();
	spec.params = ab, spec.n_params = 2;
	spec_normalise(&spec);
	assert_string_equal(spec.queue, "default");
	assert_int_equal(spec_hash(&spec, first), 0);
	spec.params = ba;
	origin.user = (char *)"somebody";
	spec_normalise(&spec);
	assert_int_equal(spec_hash(&spec, second), 0);
	assert_memory_equal(first, second, 32);
	a.value = (char *)"3";
	assert_int_equal(spec_hash(&spec, second), 0);
	assert_memory_not_equal(first, second, 32);
}

static void test_defaults_of_retry(void **state)
{
	struct store_insert ins = { .task = { .priority = 0 } };
	good();
	spec.retry = NULL;
	assert_int_equal(spec_to_insert(&spec, &ins), 0);
	assert_int_equal(ins.task.max_attempts, 1);
	assert_true(ins.task.backoff_initial_ns == NS_PER_S && ins.task.backoff_max_ns == 300 * NS_PER_S);
	good();
	duration.seconds = 3600;
	retry.initial_backoff = &duration; /* beyond the default of max_backoff, which then follows it */
	assert_int_equal(spec_to_insert(&spec, &ins), 0);
	assert_true(ins.task.backoff_max_ns == 3600 * NS_PER_S);
}

static void test_custom_text(void **state)
{
	Reins__V1__Resources__CustomEntry entries[17], *at[17];
	char names[17][8];
	good();
	for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
		reins__v1__resources__custom_entry__init(&entries[i]);
		snprintf(names[i], sizeof(names[i]), "n%c", (char)('z' - (int)i));
		entries[i].key = names[i];
		entries[i].value = (int64_t)i;
		at[i] = &entries[i];
	}
	resources.custom = at;
	resources.n_custom = 17;
	assert_non_null(spec_custom_fault(&resources, 0));
	resources.n_custom = 4;
	assert_non_null(spec_custom_fault(&resources, 1)); /* nz=0 */
	assert_null(spec_custom_fault(&resources, 0));
	entries[3].key = (char *)"ny"; /* given twice: the last counts */
	char *text;
	assert_int_equal(spec_custom_text(&resources, &text), 0);
	assert_string_equal(text, "nx=2 ny=3");
	free(text);
	entries[0].value = INT64_MAX;
	assert_non_null(spec_custom_fault(&resources, 0));
	resources.n_custom = 0;
	assert_int_equal(spec_custom_text(&resources, &text), 0);
	assert_null(text);
}

static void test_wire(void **state)
{
	struct buf b;
	buf_init(&b, 1024);
	assert_int_equal(wire_put_int(&b, 1, -1), 0);
	assert_int_equal(wire_put_int(&b, 2, 0), 0); /* left out */
	assert_int_equal(wire_put_text(&b, 3, "hello"), 0);
	const uint8_t *data;
	size_t len;
	assert_true(wire_find_len(buf_head(&b), buf_len(&b), 3, &data, &len));
	assert_int_equal(len, 5);
	assert_memory_equal(data, "hello", 5);
	assert_false(wire_find_len(buf_head(&b), buf_len(&b), 2, &data, &len));
	/* cut off anywhere: never found beyond the end */
	for (size_t cut = 0; cut < buf_len(&b); cut++)
		assert_false(wire_find_len(buf_head(&b), cut, 3, &data, &len));
	buf_done(&b);
}

static void test_view(void **state)
{
	good();
	spec.payload = (ProtobufCBinaryData){ 3, (uint8_t *)big };
	spec_normalise(&spec);
	struct store_attempt_row row = { .attempt = 1, .worker = (char *)"w1", .outcome = STORE_WORKER_LOST, .dispatched_wall_us = 5 };
	struct store_task t = {
		.core = { .attempt = 2 },
		.state = STORE_FAILED,
		.spec = pb_pack_blob(&spec),
		.worker = (char *)"w2",
		.created_wall_us = 1764500000123456,
		.has_exit_code = true,
		.exit_code = 0,
		.error = { (const uint8_t *)"bad \xff byte", 10 },
		.result = { (const uint8_t *)"\0r", 2 },
		.result_len = 2,
		.attempts = &row,
		.n_attempts = 1,
	};
	for (int full = 0; full <= 1; full++) {
		struct buf b;
		struct refusal r;
		buf_init(&b, 1 << 20);
		assert_int_equal(view_task(&t, full, "", &b), 0);
		Reins__V1__Task *m = pb_unpack(&reins__v1__task__descriptor, buf_head(&b), buf_len(&b), NULL, &r);
		assert_non_null(m);
		assert_int_equal(m->state, REINS__V1__TASK__STATE__FAILED);
		assert_int_equal(m->has_exit_code_case, REINS__V1__TASK__HAS_EXIT_CODE_EXIT_CODE);
		assert_string_equal(m->error, "bad \xef\xbf\xbd byte");
		assert_int_equal(m->error_raw.len, 10);
		assert_int_equal(m->created_at->nanos, 123456000);
		assert_null(m->finished_at);
		assert_int_equal(m->result_bytes, 2);
		assert_int_equal(m->result.len, full ? 2 : 0);
		assert_int_equal(m->spec->payload.len, full ? 3 : 0);
		assert_int_equal(m->spec->n_env, full ? 1 : 0);
		assert_int_equal(m->n_attempts, full ? 1 : 0);
		if (full) {
			assert_int_equal(m->attempts[0]->end, REINS__V1__ATTEMPT__END__LOST);
			assert_string_equal(m->attempts[0]->cause, "worker lost");
		}
		pb_free(m);
		buf_done(&b);
	}
	blob_unref(t.spec);
}

/* As many attempts as a store tells of, each with the longest error: the reply must still fit a message, and the newest
 * errors are those that are wanted. */
static void test_view_of_many_long_errors(void **state)
{
	static struct store_attempt_row rows[200];
	good();
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		rows[i] = (struct store_attempt_row){ .attempt = (int32_t)i + 1, .error = { (const uint8_t *)big, 16 << 10 } };
	memset(big, 0xff, 16 << 10); /* not text: the raw bytes go out too */
	struct store_task t = { .state = STORE_FAILED, .spec = pb_pack_blob(&spec), .attempts = rows, .n_attempts = ARRAY_LEN(rows) };
	struct buf b;
	struct refusal r;
	buf_init(&b, 512 << 10);
	assert_int_equal(view_task(&t, true, "", &b), 0);
	Reins__V1__Task *m = pb_unpack(&reins__v1__task__descriptor, buf_head(&b), buf_len(&b), NULL, &r);
	assert_non_null(m);
	assert_int_equal(m->n_attempts, 200);
	assert_int_equal(m->attempts[199]->error_raw.len, 16 << 10);
	assert_int_equal(m->attempts[0]->error_raw.len, 0);
	assert_string_equal(m->attempts[0]->error, "");
	pb_free(m);
	buf_done(&b);
	blob_unref(t.spec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spec_refused), cmocka_unit_test(test_hash_ignores_map_order_and_origin),
		cmocka_unit_test(test_defaults_of_retry), cmocka_unit_test(test_custom_text), cmocka_unit_test(test_wire), cmocka_unit_test(test_view),
		cmocka_unit_test(test_view_of_many_long_errors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
