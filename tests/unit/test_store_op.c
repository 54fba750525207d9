/* What an operation was answered is given up without a touch on what lies behind it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "server/store/queues.h"
#include "server/store/store.h"
#include "server/store/store_events.h"
#include "server/store/store_logs.h"
#include "server/store/store_metrics.h"
#include "server/store/workers.h"

#define BEHIND 256

static const size_t sizes[STORE_KINDS] = {
	[STORE_INSERT] = sizeof(struct store_insert),
	[STORE_CLAIM] = sizeof(struct store_claim),
	[STORE_RECORD] = sizeof(struct store_record),
	[STORE_TAKE_BACK] = sizeof(struct store_take_back),
	[STORE_CANCEL] = sizeof(struct store_cancel),
	[STORE_RETRY] = sizeof(struct store_retry),
	[STORE_SESSION_OPEN] = sizeof(struct store_session_open),
	[STORE_STARTED] = sizeof(struct store_started),
	[STORE_FILL] = sizeof(struct store_fill),
	[STORE_QUEUES] = sizeof(struct store_queues),
	[STORE_DUE] = sizeof(struct store_due),
	[STORE_EXPIRE] = sizeof(struct store_expire),
	[STORE_STRAYS] = sizeof(struct store_strays),
	[STORE_RUNS] = sizeof(struct store_runs),
	[STORE_LOG_APPEND] = sizeof(struct store_log_append),
	[STORE_LOG_READ] = sizeof(struct store_log_read),
	[STORE_METRICS] = sizeof(struct store_metrics),
	[STORE_METRICS_READ] = sizeof(struct store_metrics_read),
	[STORE_GET] = sizeof(struct store_get),
	[STORE_LIST] = sizeof(struct store_list),
	[STORE_EVENTS] = sizeof(struct store_events),
	[STORE_NEWS] = sizeof(struct store_news),
	[STORE_WORKERS] = sizeof(struct store_workers),
	[STORE_WORKER_GONE] = sizeof(struct store_worker_gone),
	[STORE_DETACHED] = sizeof(struct store_detached),
	[STORE_DRAIN] = sizeof(struct store_drain),
	[STORE_QUEUE_LIST] = sizeof(struct store_queue_list),
	[STORE_PAUSE] = sizeof(struct store_pause),
	[STORE_MASTER_OPEN] = sizeof(struct store_master_open),
	[STORE_BEAT] = sizeof(struct store_beat),
	[STORE_TAKE_OVER] = sizeof(struct store_take_over),
};

static void fields_end_with_the_operation(void **state)
{
	uint8_t behind[BEHIND];
	memset(behind, 0xa5, sizeof(behind));
	for (int kind = 0; kind < STORE_KINDS; kind++) {
		assert_true(sizes[kind] >= sizeof(struct store_op));
		uint8_t *memory = xcalloc(1, sizes[kind] + BEHIND);
		memcpy(memory + sizes[kind], behind, BEHIND);
		struct store_op *op = (struct store_op *)memory;
		op->kind = (enum store_kind)kind;
		store_op_done_fields(op);
		store_op_done_fields(op);
		if (memcmp(memory + sizes[kind], behind, BEHIND) != 0)
			fail_msg("%s", store_kind_name((enum store_kind)kind));
		free(memory);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(fields_end_with_the_operation) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
