/* reins queues: what waits and runs in each; pausing and resuming one. */
#include <inttypes.h>

#include "client/cli.h"
#include "client/output.h"
#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "reins/v1/admin_service.pb-c.h"

struct conf {
	struct common_conf common;
	char *pause, *resume, *reason;
};

static const struct setting table[] = {
	{ "pause", SETTING_STRING, offsetof(struct conf, pause), "QUEUE",
	  .help = "Start no more tasks of this queue; what runs goes on.", .group = "Queues" },
	{ "resume", SETTING_STRING, offsetof(struct conf, resume), "QUEUE", .help = "Start its tasks again." },
	{ "reason", SETTING_STRING, offsetof(struct conf, reason), "TEXT", .help = "With --pause: for people." },
	COMMON_SETTINGS,
};

static const struct settings_program program = {
	.name = "reins queues",
	.summary = "Lists the queues, or pauses or resumes one.",
	.usage = "reins queues [flags]",
	.table = table,
	.n = ARRAY_LEN(table),
};

static struct table *new_table(void)
{
	static const char *const heads[] = { "QUEUE", "PENDING", "SCHEDULED", "RUNNING", "OLDEST", "PAUSED" };
	return table_new(heads, ARRAY_LEN(heads));
}

static void row(struct table *t, const Reins__V1__QueueInfo *q)
{
	char age[32];
	out_format_age(q->oldest_pending_at, clock_wall_us(), age, sizeof age);
	table_cell(t, q->name);
	table_cellf(t, "%" PRId64 "%s", q->pending, q->pending_more ? "+" : "");
	table_cellf(t, "%" PRId64 "%s", q->scheduled, q->scheduled_more ? "+" : "");
	table_cellf(t, "%" PRId64 "%s", q->running, q->running_more ? "+" : "");
	table_cell(t, age);
	table_cellf(t, "%s%s%s", q->paused ? "yes" : "no", q->paused_reason[0] ? ": " : "", q->paused_reason);
}

static int change(struct cli *cli, const struct conf *conf)
{
	Reins__V1__PauseQueueRequest pause = REINS__V1__PAUSE_QUEUE_REQUEST__INIT;
	Reins__V1__ResumeQueueRequest resume = REINS__V1__RESUME_QUEUE_REQUEST__INIT;
	void *reply;
	int code;
	if (conf->pause) {
		pause.queue = conf->pause;
		if (conf->reason)
			pause.reason = conf->reason;
		code = cli_call(cli, &client_pause_queue, &pause, &reply);
	} else {
		resume.queue = conf->resume;
		code = cli_call(cli, &client_resume_queue, &resume, &reply);
	}
	if (code)
		return code;
	if (cli->json) {
		out_json(reply, false);
	} else {
		struct table *t = new_table();
		row(t, reply);
		table_print(t);
		table_free(t);
	}
	pb_free(reply);
	return EXIT_OK;
}

static int list(struct cli *cli)
{
	Reins__V1__ListQueuesRequest req = REINS__V1__LIST_QUEUES_REQUEST__INIT;
	Reins__V1__ListQueuesResponse *page = NULL;
	struct table *t = new_table();
	size_t shown = 0;
	int code;
	req.page_size = 1000;
	do {
		void *reply;
		code = cli_call(cli, &client_list_queues, &req, &reply);
		pb_free(page);
		page = code ? NULL : reply;
		for (size_t i = 0; page && i < page->n_queues; i++, shown++) {
			if (cli->json)
				out_json(page->queues[i], true);
			else
				row(t, page->queues[i]);
		}
		if (shown && !cli->json)
			table_print(t);
		req.page_token = page ? page->next_page_token : req.page_token;
	} while (page && page->next_page_token[0]);
	if (!code && !shown && !cli->json)
		cli_note(cli, "no queue yet; the first task of a queue makes it");
	pb_free(page);
	table_free(t);
	return code;
}

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_p;
	(void)args;
	(void)n_before;
	if (!cli_wants(cli, n_args, 0, ""))
		return EXIT_USAGE;
	if (conf->pause && conf->resume)
		return cli_usage(cli, "--pause and --resume exclude each other");
	if (conf->reason && !conf->pause)
		return cli_usage(cli, "--reason goes with --pause");
	return conf->pause || conf->resume ? change(cli, conf) : list(cli);
}

const struct command cmd_queues = {
	"queues", "what waits and runs in each queue", &program, sizeof(struct conf), run,
};
