/* Builds texts; owns nothing. */
#include "client/show_worker.h"

#include <stdio.h>
#include <string.h>

#include "common/base/num.h"
#include "common/pb/pb.h"

#define COLUMNS_MAX 48 /* of a text in the table that may be long */
#define LISTED_MAX 20  /* attempts shown one by one */

const char *show_worker_state(Reins__V1__WorkerInfo__State state)
{
	const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(&reins__v1__worker_info__state__descriptor, (int)state);
	return v ? v->name : "UNKNOWN";
}

const char *show_drain_mode(Reins__V1__DrainMode mode)
{
	switch (mode) {
	case REINS__V1__DRAIN_MODE__DRAIN_WAIT: return "wait";
	case REINS__V1__DRAIN_MODE__DRAIN_DETACH: return "detach";
	case REINS__V1__DRAIN_MODE__DRAIN_REQUEUE: return "requeue";
	default: return "unknown";
	}
}

/* "a,b"; where it does not fit the last is "…". */
static void join(char **at, size_t n, char *ret, size_t cap)
{
	size_t used = 0;
	ret[0] = 0;
	for (size_t i = 0; i < n; i++) {
		int wrote = snprintf(ret + used, cap - used, "%s%s", i ? "," : "", at[i]);
		if (wrote < 0 || (size_t)wrote >= cap - used) {
			snprintf(ret + (used > cap - 5 ? cap - 5 : used), 5, ",…");
			return;
		}
		used += (size_t)wrote;
	}
}

/* ---- many ---- */

struct table *show_worker_table(void)
{
	static const char *const heads[] = { "WORKER", "STATE", "SLOTS", "GPUS", "QUEUES", "HOST", "VERSION", "HEARD", "WHY" };
	return table_new(heads, ARRAY_LEN(heads));
}

static void short_cell(struct table *t, const char *text)
{
	char clean[4 * COLUMNS_MAX + 8];
	out_clean(text, COLUMNS_MAX, clean, sizeof clean);
	table_cell(t, clean);
}

void show_worker_row(struct table *t, const Reins__V1__WorkerInfo *w, int64_t now)
{
	char text[512], age[32];
	int gpus = w->resources ? w->resources->gpus : 0, used = w->resources_used ? w->resources_used->gpus : 0;
	out_format_age(w->last_heartbeat_at, now, age, sizeof age);
	table_cell(t, w->worker_id);
	table_cell(t, show_worker_state(w->state));
	table_cellf(t, "%d/%d", w->slots_used, w->slots);
	if (gpus)
		table_cellf(t, "%d/%d", used, gpus);
	else
		table_cell(t, "");
	join(w->queues, w->n_queues, text, sizeof text);
	short_cell(t, w->n_queues ? text : "all");
	short_cell(t, w->hostname);
	short_cell(t, w->version);
	table_cell(t, age);
	table_cell(t, w->paused_reason);
}

/* ---- one ---- */

static void fact(const char *name, const char *text)
{
	char clean[4096];
	if (!*text)
		return;
	out_clean(text, 0, clean, sizeof clean);
	out_line("%-10s %s", name, clean);
}

static void fact_time(const char *name, const Google__Protobuf__Timestamp *t, int64_t now)
{
	char text[96];
	out_format_time(t, now, text, sizeof text);
	fact(name, text);
}

static void format_resources(const Reins__V1__Resources *r, char *text, size_t cap)
{
	char memory[32];
	size_t n = 0;
	text[0] = 0;
	if (!r)
		return;
	if (r->gpus)
		n += (size_t)snprintf(text + n, cap - n, "gpus=%d ", r->gpus);
	if (r->cpu_millis)
		n += (size_t)snprintf(text + n, cap - n, "cpus=%g ", (double)r->cpu_millis / 1000);
	if (r->memory_bytes) {
		num_format_size(r->memory_bytes, memory, sizeof memory);
		n += (size_t)snprintf(text + n, cap - n, "memory=%s ", memory);
	}
	for (size_t i = 0; i < r->n_custom && n + 1 < cap; i++) {
		int wrote = snprintf(text + n, cap - n, "%s=%lld ", r->custom[i]->key, (long long)r->custom[i]->value);
		n = min_sz(n + (size_t)(wrote > 0 ? wrote : 0), cap - 1);
	}
	if (n)
		text[n - 1] = 0;
}

static void show_what_it_holds(const Reins__V1__WorkerInfo *w)
{
	char text[512];
	for (size_t i = 0; i < w->n_attempts && i < LISTED_MAX; i++) {
		snprintf(text, sizeof text, "%s/%d", w->attempts[i]->task_id, w->attempts[i]->attempt);
		fact(i ? "" : "holds", text);
	}
	if (w->n_attempts > LISTED_MAX) {
		snprintf(text, sizeof text, "and %zu more; -o json has them", w->n_attempts - LISTED_MAX);
		fact("", text);
	}
	for (size_t i = 0; i < w->n_stuck; i++) {
		snprintf(text, sizeof text, "%s/%d: %s", w->stuck[i]->task_id, w->stuck[i]->attempt, w->stuck[i]->reason);
		fact("stuck", text);
	}
}

void show_worker(const Reins__V1__WorkerInfo *w, int64_t now)
{
	char text[4096];
	fact("id", w->worker_id);
	fact("state", show_worker_state(w->state));
	fact("why", w->paused_reason);
	snprintf(text, sizeof text, "%d of %d taken", w->slots_used, w->slots);
	fact("slots", text);
	format_resources(w->resources, text, sizeof text);
	fact("resources", text);
	format_resources(w->resources_used, text, sizeof text);
	fact("taken", text);
	join(w->queues, w->n_queues, text, sizeof text);
	fact("queues", w->n_queues ? text : "all");
	join(w->handlers, w->n_handlers, text, sizeof text);
	fact("handlers", text);
	snprintf(text, sizeof text, "%s%s%s", w->runs_commands ? "commands" : "handlers only",
		 w->enforces_exclusive_lease ? ", exclusive tasks" : "",
		 w->tasks_die_with_process ? "; its tasks end with its process" : "");
	fact("runs", text);
	for (size_t i = 0; i < w->n_labels; i++) {
		snprintf(text, sizeof text, "%s=%s", w->labels[i]->key, w->labels[i]->value);
		fact(i ? "" : "labels", text);
	}
	fact("host", w->hostname);
	fact("version", w->version);
	fact("instance", w->instance);
	snprintf(text, sizeof text, "%lld at master %s", (long long)w->session, w->master_id);
	fact("session", text);
	fact_time("connected", w->connected_at, now);
	fact_time("heard", w->last_heartbeat_at, now);
	show_what_it_holds(w);
}

/* ---- drains ---- */

void show_drain(const Reins__V1__WorkerInfo *w)
{
	char within[32] = "", then[160] = "";
	int64_t ns;
	if (w->state == REINS__V1__WORKER_INFO__STATE__GONE) {
		out_line("%s is gone; should it come back, it %s", w->worker_id,
			 w->drain_mode ? "is told to drain, and gets no tasks" : "takes tasks");
		return;
	}
	bool away = w->state == REINS__V1__WORKER_INFO__STATE__DISCONNECTED;
	if (away && w->drain_mode && !w->slots_used) {
		out_line("%s takes no more tasks; it has no connection now: its process has ended, or hears of it when it is back",
			 w->worker_id);
		return;
	}
	if (w->drain_within && !pb_duration_ns(w->drain_within, &ns))
		out_format_span(ns / NS_PER_US, within, sizeof within);
	if (w->drain_mode && !w->slots_used)
		snprintf(then, sizeof then, "; its process ends");
	switch (w->slots_used ? w->drain_mode : REINS__V1__DRAIN_MODE__DRAIN_MODE_UNSPECIFIED) {
	case REINS__V1__DRAIN_MODE__DRAIN_WAIT:
		snprintf(then, sizeof then, "; what runs goes on until it has ended");
		break;
	case REINS__V1__DRAIN_MODE__DRAIN_DETACH:
		snprintf(then, sizeof then, "; its process ends, and what runs waits %s for the next one",
			 within[0] ? within : "as long as its --detach-for says");
		break;
	case REINS__V1__DRAIN_MODE__DRAIN_REQUEUE:
		snprintf(then, sizeof then, "; what still runs after %s is stopped and given back", within[0] ? within : "its --drain-timeout");
		break;
	default: break;
	}
	out_line("%s %s, %d of %d slots are taken%s%s", w->worker_id, w->drain_mode ? "takes no more tasks" : "takes tasks again",
		 w->slots_used, w->slots, then,
		 away ? " (it has no connection now, and hears of it with the next one)" : "");
}
