#include "client/show_queue.h"

#include <inttypes.h>

#include "common/base/clock.h"

struct table *show_queue_table(void)
{
	static const char *const heads[] = { "QUEUE", "PENDING", "SCHEDULED", "RUNNING", "OLDEST", "PAUSED" };
	return table_new(heads, ARRAY_LEN(heads));
}

/* "10000+": there are more. */
static void cell(struct table *t, int64_t n, bool more) { table_cellf(t, "%" PRId64 "%s", n, more ? "+" : ""); }

void show_queue_row(struct table *t, const Reins__V1__QueueInfo *q)
{
	char age[32];
	out_format_age(q->oldest_pending_at, clock_wall_us(), age, sizeof age);
	table_cell(t, q->name);
	cell(t, q->pending, q->pending_more);
	cell(t, q->scheduled, q->scheduled_more);
	cell(t, q->running, q->running_more);
	table_cell(t, age);
	table_cellf(t, "%s%s%s", q->paused ? "yes" : "no", q->paused_reason[0] ? ": " : "", q->paused_reason);
}
