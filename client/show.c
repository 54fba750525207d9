#include "client/show.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "client/cli.h"
#include "common/base/num.h"
#include "common/pb/pb.h"
#include "common/pb/utf8.h"

enum { RESULT_LINE_MAX = 400, WAITS_COLUMNS = 80, ENDED_COLUMNS = 40 };

static const char *enum_name(const ProtobufCEnumDescriptor *type, int value)
{
	const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, value);
	return v ? v->name : "UNKNOWN";
}

const char *show_state_name(Reins__V1__Task__State state)
{
	return enum_name(&reins__v1__task__state__descriptor, (int)state);
}

const char *show_end_name(Reins__V1__Attempt__End end)
{
	return end == REINS__V1__ATTEMPT__END__END_UNSPECIFIED ? "RUNNING" :
								 enum_name(&reins__v1__attempt__end__descriptor, (int)end);
}

int show_parse_state(const char *text, Reins__V1__Task__State *ret)
{
	const ProtobufCEnumDescriptor *type = &reins__v1__task__state__descriptor;
	for (unsigned i = 0; i < type->n_values; i++) {
		if (type->values[i].value == REINS__V1__TASK__STATE__STATE_UNSPECIFIED ||
		    strcasecmp(type->values[i].name, text))
			continue;
		*ret = (Reins__V1__Task__State)type->values[i].value;
		return 0;
	}
	return -EINVAL;
}

bool show_is_terminal(const Reins__V1__Task *t)
{
	return t->state == REINS__V1__TASK__STATE__COMPLETED || t->state == REINS__V1__TASK__STATE__FAILED ||
	       t->state == REINS__V1__TASK__STATE__CANCELLED;
}

static void join_command(const Reins__V1__TaskSpec *spec, char *text, size_t cap)
{
	size_t n = 0;
	text[0] = 0;
	for (size_t i = 0; i < spec->n_command && n + 1 < cap; i++) {
		const char *word = spec->command[i];
		bool quote = !*word || strpbrk(word, " \t\n'\"\\$`*?[]{}()<>|&;#~!");
		int w = snprintf(text + n, cap - n, "%s%s%s%s", i ? " " : "", quote ? "'" : "", word, quote ? "'" : "");
		n = min_sz(n + (size_t)(w > 0 ? w : 0), cap - 1);
	}
}

void show_what(const Reins__V1__Task *t, size_t columns, char *ret_text, size_t cap)
{
	char text[4096] = "";
	if (t->spec && t->spec->name[0])
		snprintf(text, sizeof text, "%s", t->spec->name);
	else if (t->spec && t->spec->n_command)
		join_command(t->spec, text, sizeof text);
	else if (t->spec && t->spec->handler[0])
		snprintf(text, sizeof text, "handler %s", t->spec->handler);
	out_clean(text, columns, ret_text, cap);
}

/* The attempt that decided: the last that ended. */
static const Reins__V1__Attempt *last_attempt(const Reins__V1__Task *t)
{
	return t->n_attempts ? t->attempts[t->n_attempts - 1] : NULL;
}

static bool timed_out(const Reins__V1__Task *t)
{
	const Reins__V1__Attempt *a = last_attempt(t);
	return a && a->end == REINS__V1__ATTEMPT__END__TIMED_OUT && t->state == REINS__V1__TASK__STATE__FAILED;
}

static void ending(bool has_code, int32_t code, int32_t signal, char *text, size_t cap)
{
	if (signal > 0)
		snprintf(text, cap, "signal %d (%s)", signal, strsignal(signal));
	else if (has_code)
		snprintf(text, cap, "exit code %d", code);
	else
		text[0] = 0;
}

void show_ending(const Reins__V1__Task *t, char *ret_text, size_t cap)
{
	ret_text[0] = 0;
	if (!show_is_terminal(t))
		return;
	const Reins__V1__Attempt *a = last_attempt(t);
	bool failed = t->state == REINS__V1__TASK__STATE__FAILED;
	if (timed_out(t))
		snprintf(ret_text, cap, "timed out");
	else if (failed && a && a->oom_killed)
		snprintf(ret_text, cap, "out of memory");
	else if (failed && !t->started_at && !t->signal && t->has_exit_code_case != REINS__V1__TASK__HAS_EXIT_CODE_EXIT_CODE)
		snprintf(ret_text, cap, "not started");
	else
		ending(t->has_exit_code_case == REINS__V1__TASK__HAS_EXIT_CODE_EXIT_CODE, t->exit_code, t->signal, ret_text,
		       cap);
}

int show_exit_code(const Reins__V1__Task *t)
{
	if (t->state == REINS__V1__TASK__STATE__COMPLETED)
		return EXIT_OK;
	if (timed_out(t))
		return EXIT_TIMED_OUT;
	if (t->signal > 0 && t->signal < 128)
		return EXIT_SIGNAL + t->signal;
	if (t->has_exit_code_case == REINS__V1__TASK__HAS_EXIT_CODE_EXIT_CODE && (t->exit_code & 0xff))
		return t->exit_code & 0xff;
	return EXIT_OTHER;
}

/* ---- one task ---- */

static void fact(const char *name, const char *text)
{
	char clean[4096];
	if (!text || !*text)
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

static void show_resources(const Reins__V1__Resources *r)
{
	char text[2048] = "", memory[32];
	size_t n = 0;
	if (!r)
		return;
	if (r->gpus)
		n += (size_t)snprintf(text + n, sizeof text - n, "gpus=%d", r->gpus);
	if (r->cpu_millis)
		n += (size_t)snprintf(text + n, sizeof text - n, "%scpus=%g", n ? " " : "", (double)r->cpu_millis / 1000);
	if (r->memory_bytes) {
		num_format_size(r->memory_bytes, memory, sizeof memory);
		n += (size_t)snprintf(text + n, sizeof text - n, "%smemory=%s", n ? " " : "", memory);
	}
	for (size_t i = 0; i < r->n_custom && n < sizeof text; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%s=%" PRId64, n ? " " : "", r->custom[i]->key, r->custom[i]->value);
	fact("needs", text);
}

static void show_pairs(const char *name, const void *entries, size_t n)
{
	/* As generated for any map<string, string>. */
	struct {
		ProtobufCMessage base;
		char *key, *value;
	} *const *at = entries;
	for (size_t i = 0; i < n; i++) {
		char text[1024];
		snprintf(text, sizeof text, "%s=%s", at[i]->key, at[i]->value);
		fact(i ? "" : name, text);
	}
}

static void show_spec(const Reins__V1__TaskSpec *s)
{
	char text[4096];
	fact("name", s->name);
	fact("queue", s->queue[0] ? s->queue : "default");
	join_command(s, text, sizeof text);
	fact("command", text);
	fact("handler", s->handler);
	fact("directory", s->working_dir);
	if (s->priority) {
		snprintf(text, sizeof text, "%d", s->priority);
		fact("priority", text);
	}
	if (s->exclusive)
		fact("exclusive", "yes");
	int64_t expiry_ns;
	if (s->expiry && pb_duration_ns(s->expiry, &expiry_ns) == 0 && expiry_ns > 0) {
		num_format_duration(expiry_ns, text, sizeof text);
		fact("expiry", text);
	}
	show_resources(s->resources);
	show_pairs("params", (const void *)s->params, s->n_params);
	show_pairs("labels", (const void *)s->labels, s->n_labels);
	if (s->origin) {
		const Reins__V1__Origin *o = s->origin;
		snprintf(text, sizeof text, "%s@%s:%s%s%.12s%s", o->user, o->host, o->directory,
			 o->git_commit[0] ? " git " : "", o->git_commit, o->git_dirty ? " (dirty)" : "");
		fact("from", text);
	}
}

static void join_words(char *const *words, size_t n_words, char *text, size_t cap)
{
	size_t n = 0;
	text[0] = 0;
	for (size_t i = 0; i < n_words && n + 1 < cap; i++)
		n += min_sz((size_t)max_i64(snprintf(text + n, cap - n, "%s%s", i ? " " : "", words[i]), 0), cap - 1 - n);
}

static void show_attempt(const Reins__V1__Attempt *a, int64_t now)
{
	char text[1400], end[96], from[96], span[32] = "";
	int64_t start_us, end_us;
	ending(a->has_exit_code_case == REINS__V1__ATTEMPT__HAS_EXIT_CODE_EXIT_CODE, a->exit_code, a->signal, end, sizeof end);
	out_format_time(a->started_at ? a->started_at : a->dispatched_at, now, from, sizeof from);
	if (a->started_at && a->finished_at && !pb_timestamp_us(a->started_at, &start_us) &&
	    !pb_timestamp_us(a->finished_at, &end_us))
		out_format_span(end_us - start_us, span, sizeof span);
	/* "exit code 3" stands there already, "cancelled" too. */
	bool told = !strcmp(a->error, end) || !strncmp(a->cause, a->error, strlen(a->error));
	bool oom = a->oom_killed && !strstr(a->error, "out of memory");
	snprintf(text, sizeof text, "%d %s%s%s on %s, %s%s%s%s%s%.512s%s%.512s", a->number, show_end_name(a->end),
		 end[0] ? ", " : "", end, a->worker_id, from, span[0] ? ", ran " : "", span, oom ? ", out of memory" : "",
		 a->cause[0] ? ", " : "", a->cause, a->error[0] && !told ? ": " : "", told ? "" : a->error);
	fact("attempt", text);
	join_words(a->devices, a->n_devices, text, sizeof text);
	fact("  devices", text);
	if (a->log_dropped_bytes) {
		snprintf(text, sizeof text, "%" PRId64 " of %" PRId64 " bytes were not kept", a->log_dropped_bytes, a->log_bytes);
		fact("  log", text);
	}
}

/* A result of one line that people can read is shown, the end of the line apart. */
static bool is_line(const ProtobufCBinaryData *b, size_t max, size_t *ret_len)
{
	size_t n = b->len, used;
	if (n && b->data[n - 1] == '\n')
		n--;
	for (size_t i = 0; i < n; i += used) {
		used = n > max || b->data[i] < 0x20 || b->data[i] == 0x7f ? 0 : utf8_char_len(b->data + i, n - i);
		if (!used)
			return false;
	}
	*ret_len = n;
	return n > 0;
}

static void show_result(const Reins__V1__Task *t)
{
	char text[RESULT_LINE_MAX + 64];
	size_t len;
	if (!t->result_bytes && !t->result.len)
		return;
	if (t->result_dropped)
		snprintf(text, sizeof text, "%" PRId64 " bytes, not kept (over the limit)", t->result_bytes);
	else if (is_line(&t->result, RESULT_LINE_MAX, &len))
		snprintf(text, sizeof text, "%.*s", (int)len, (const char *)t->result.data);
	else
		snprintf(text, sizeof text, "%" PRId64 " bytes; -o json has them, as base64", t->result_bytes);
	fact("result", text);
}

void show_metrics(const Reins__V1__MetricPoint *p, char *ret_text, size_t cap)
{
	size_t n = (size_t)snprintf(ret_text, cap, "step %" PRId64 " ", p->step);
	for (size_t i = 0; i < p->n_values && n < cap; i++)
		n += (size_t)snprintf(ret_text + n, cap - n, " %.63s=%.6g", p->values[i]->key, p->values[i]->value);
}

/* "cancelled: wrong data" says more than "cancelled". */
static const char *what_went_wrong(const Reins__V1__Task *t)
{
	const Reins__V1__Attempt *a = last_attempt(t);
	bool longer = a && t->error[0] && !strncmp(a->cause, t->error, strlen(t->error));
	return longer ? a->cause : t->error;
}

void show_task(const Reins__V1__Task *t, int64_t now)
{
	char text[256], end[96];
	show_ending(t, end, sizeof end);
	snprintf(text, sizeof text, "%s%s%s%s", show_state_name(t->state), end[0] ? ", " : "", end,
		 t->cancel_requested_at && t->state == REINS__V1__TASK__STATE__RUNNING ? ", being stopped" : "");
	fact("id", t->id);
	fact("state", text);
	if (t->state == REINS__V1__TASK__STATE__PENDING)
		fact("waits", t->pending_reason);
	if (strcmp(t->error, end))
		fact("error", what_went_wrong(t));
	if (t->spec)
		show_spec(t->spec);
	fact("owner", t->owner);
	fact("trace", t->trace_id);
	fact("worker", t->worker_id);
	fact_time("created", t->created_at, now);
	if (t->state == REINS__V1__TASK__STATE__PENDING)
		fact_time("not before", t->run_at, now);
	fact_time("started", t->started_at, now);
	fact_time("finished", t->finished_at, now);
	show_result(t);
	if (t->metrics) {
		char values[4000];
		show_metrics(t->metrics, values, sizeof values);
		fact("metrics", values);
	}
	for (size_t i = 0; i < t->n_attempts; i++)
		show_attempt(t->attempts[i], now);
}

/* ---- many ---- */

struct table *show_task_table(void)
{
	static const char *const heads[] = { "ID", "STATE", "QUEUE", "WHAT", "AGE", "RAN", "ENDED", "WORKER, OR WHY IT WAITS" };
	return table_new(heads, ARRAY_LEN(heads));
}

void show_task_row(struct table *t, const Reins__V1__Task *task, int64_t now)
{
	char what[256], age[32], ran[32] = "", end[400];
	int64_t from_us, to_us = now;
	show_what(task, 32, what, sizeof what);
	out_format_age(task->created_at, now, age, sizeof age);
	/* A list has no attempts; why it failed stands in its error. */
	if (task->state == REINS__V1__TASK__STATE__FAILED && task->error[0])
		out_clean(task->error, ENDED_COLUMNS, end, sizeof end);
	else
		show_ending(task, end, sizeof end);
	bool ends = !task->finished_at || !pb_timestamp_us(task->finished_at, &to_us);
	if (task->started_at && ends && !pb_timestamp_us(task->started_at, &from_us) &&
	    task->state != REINS__V1__TASK__STATE__PENDING)
		out_format_span(to_us - from_us, ran, sizeof ran);
	table_cell(t, task->id);
	table_cell(t, show_state_name(task->state));
	table_cell(t, task->spec && task->spec->queue[0] ? task->spec->queue : "default");
	table_cell(t, what);
	table_cell(t, age);
	table_cell(t, ran);
	table_cell(t, end);
	out_clean(task->state == REINS__V1__TASK__STATE__PENDING ? task->pending_reason : task->worker_id, WAITS_COLUMNS, end,
		  sizeof end);
	table_cell(t, end);
}
