/* reins metrics: the points that a task's program reported, page by page, and with --follow as they come. */
#include <inttypes.h>
#include <string.h>

#include "client/cli.h"
#include "client/output.h"
#include "client/show.h"
#include "common/pb/json_out.h"
#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"

#define LOOK_NS NS_PER_S
#define PAGE 1000
#define PATIENCE_NS (300 * NS_PER_S) /* a server that is gone this long is given up */

struct conf {
	struct common_conf common;
	bool follow;
	int64_t attempt;
	struct setting_list names;
};

static const struct setting table[] = {
	{ "follow", SETTING_BOOL, offsetof(struct conf, follow), .help = "Stay until the task has ended. Also -f.", .group = "What" },
	{ "attempt", SETTING_INT, offsetof(struct conf, attempt), NULL, NULL, 0, INT32_MAX,
	  .help = "Of this attempt. Not given: the newest, with --follow also those after it." },
	{ "name", SETTING_LIST, offsetof(struct conf, names), "NAME[,NAME…]", .split = true, .help = "Only these values." },
	COMMON_SETTINGS_OUTPUT("text|json|csv"),
};

static const struct settings_program program = {
	.name = "reins metrics",
	.summary = "Prints what a task's program wrote to REINS_METRICS: a line for each point; with -o csv a line for each value\n"
		   "(step, time, name, value), with -o json an object for each point.",
	.usage = "reins metrics [flags] TASK-ID",
	.table = table,
	.n = ARRAY_LEN(table),
};

struct reading {
	struct cli *cli;
	const struct conf *conf;
	const char *task_id;
	bool csv;
	int32_t attempt; /* being read; 0: not known yet */
	int64_t after;
	int64_t lost_since_mono_ns;
	int64_t malformed, dropped, shown;
};

static void print_csv(const Reins__V1__MetricPoint *p)
{
	char at[40], value[PB_DOUBLE_TEXT_BYTES];
	out_format_instant(p->at, at, sizeof at);
	for (size_t i = 0; i < p->n_values; i++) {
		pb_format_double(p->values[i]->value, value);
		out_line("%" PRId64 ",%s,%s,%s", p->step, at, p->values[i]->key, value);
	}
}

static void print_point(const struct reading *r, const Reins__V1__MetricPoint *p)
{
	char text[8192];
	if (r->csv) {
		print_csv(p);
	} else if (r->cli->json) {
		out_json(p, true);
	} else {
		show_metrics(p, text, sizeof text);
		out_line("%s", text);
	}
}

/* 0 with a page; 1 after a failure that may pass and a pause; -1.  `newest`: only which attempt that is, and whether all has
 * ended. */
static int ask(struct reading *r, bool newest, Reins__V1__ReadMetricsResponse **ret, struct client_error *e)
{
	Reins__V1__ReadMetricsRequest req = REINS__V1__READ_METRICS_REQUEST__INIT;
	void *reply;
	req.task_id = (char *)(uintptr_t)r->task_id;
	req.attempt = newest ? 0 : r->attempt;
	req.after_number = newest ? INT64_MAX : r->after;
	req.page_size = PAGE;
	req.names = r->conf->names.at;
	req.n_names = r->conf->names.len;
	if (client_call(r->cli->client, &client_read_metrics, &req, cli_deadline(r->cli, 30 * NS_PER_S), &reply, e) == 0) {
		r->lost_since_mono_ns = 0;
		*ret = reply;
		return 0;
	}
	int64_t now = loop_now_mono_ns(r->cli->loop);
	if (!r->conf->follow || e->interrupted || e->code != STATUS_UNAVAILABLE || now >= r->cli->deadline_mono_ns)
		return -1;
	if (!r->lost_since_mono_ns) {
		r->lost_since_mono_ns = now;
		cli_note(r->cli, "%s; trying again", e->message);
	}
	if (now - r->lost_since_mono_ns > PATIENCE_NS)
		return -1;
	if (client_sleep(r->cli->client, LOOK_NS / 2) == 0)
		return 1;
	e->interrupted = true;
	return -1;
}

static void print_page(struct reading *r, const Reins__V1__ReadMetricsResponse *page)
{
	for (size_t i = 0; i < page->n_points; i++)
		print_point(r, page->points[i]);
	r->shown += (int64_t)page->n_points;
	r->after = page->last_number;
	r->malformed = page->malformed_lines;
	r->dropped = page->dropped_points;
}

static void tell_counts(const struct reading *r)
{
	if (r->malformed)
		cli_note(r->cli, "%" PRId64 " lines were no points: a line is an object of numbers, {\"step\":1,\"reward\":3.2}",
			 r->malformed);
	if (r->dropped)
		cli_note(r->cli, "%" PRId64 " points were over the limit and not kept", r->dropped);
}

enum { GO_ON, WAIT, OVER };

/* Whether there is another attempt to read than the one that was read to its end (or 0). -1: failed. */
static int choose(struct reading *r, struct client_error *e)
{
	Reins__V1__ReadMetricsResponse *page;
	int rc;
	while ((rc = ask(r, true, &page, e)) > 0)
		;
	if (rc < 0)
		return -1;
	int32_t newest = page->attempt;
	bool ended = page->ended;
	pb_free(page);
	if (newest == r->attempt)
		return ended || !r->conf->follow ? OVER : WAIT;
	if (r->attempt) {
		tell_counts(r);
		cli_note(r->cli, "attempt %d ended; this is attempt %d", r->attempt, newest);
	}
	r->attempt = newest;
	r->after = r->malformed = r->dropped = 0;
	return GO_ON;
}

static int pause_ns(struct reading *r, struct client_error *e)
{
	if (loop_now_mono_ns(r->cli->loop) >= r->cli->deadline_mono_ns) {
		*e = (struct client_error){ .code = STATUS_DEADLINE_EXCEEDED, .message = "the task has not ended in time" };
		return -1;
	}
	if (client_sleep(r->cli->client, LOOK_NS) == 0)
		return 0;
	*e = (struct client_error){ .code = STATUS_CANCELLED, .interrupted = true, .message = "interrupted" };
	return -1;
}

/* The attempt's points; with --follow until it has ended. */
static int read_attempt(struct reading *r, struct client_error *e)
{
	for (;;) {
		Reins__V1__ReadMetricsResponse *page;
		int rc = ask(r, false, &page, e);
		if (rc < 0)
			return -1;
		if (rc > 0)
			continue;
		print_page(r, page);
		bool more = page->more, ended = page->ended;
		pb_free(page);
		if (more)
			continue;
		if (ended || !r->conf->follow)
			return 0;
		if (pause_ns(r, e) < 0)
			return -1;
	}
}

static int read_all(struct reading *r, struct client_error *e)
{
	r->attempt = (int32_t)r->conf->attempt;
	if (r->attempt)
		return read_attempt(r, e);
	for (;;) {
		int what = choose(r, e);
		if (what < 0 || what == OVER)
			return what < 0 ? -1 : 0;
		if ((what == GO_ON ? read_attempt(r, e) : pause_ns(r, e)) < 0)
			return -1;
		if (!r->conf->follow)
			return 0;
	}
}

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_p;
	struct reading r = { .cli = cli, .conf = conf, .csv = !strcmp(conf->common.output, "csv") };
	struct client_error e;
	(void)n_before;
	if (!cli_wants(cli, n_args, 1, "the task's id") || !cli_is_task_id(cli, args[0]))
		return EXIT_USAGE;
	r.task_id = args[0];
	if (r.csv)
		out_line("step,time,name,value");
	if (read_all(&r, &e) < 0)
		return cli_fail(cli, &e);
	tell_counts(&r);
	if (!r.shown && !r.malformed && !r.csv && !cli->json)
		cli_note(cli, "no points: its program has written none to the file that REINS_METRICS names");
	return EXIT_OK;
}

const struct command cmd_metrics = {
	"metrics", "what a task's program reported in REINS_METRICS; -f as it comes", &program, sizeof(struct conf), run,
	.other_output = "csv",
};
