/* reins pause, reins resume: no more tasks of a queue are started, or they are again. */
#include "client/cli.h"
#include "client/output.h"
#include "client/show_queue.h"
#include "common/pb/pb.h"

struct conf {
	struct common_conf common;
	char *reason;
};

static const struct setting pause_table[] = {
	{ "reason", SETTING_STRING, offsetof(struct conf, reason), "TEXT", .help = "For people; shown as why its tasks wait.", .group = "Pause" },
	COMMON_SETTINGS,
};
static const struct setting resume_table[] = { COMMON_SETTINGS };

static const struct settings_program pause_program = {
	.name = "reins pause",
	.summary = "Starts no more tasks of a queue: those that run go on, and new ones are accepted and wait. It holds over restarts\n"
		   "until `reins resume`.",
	.usage = "reins pause [flags] QUEUE",
	.table = pause_table,
	.n = ARRAY_LEN(pause_table),
};
static const struct settings_program resume_program = {
	.name = "reins resume",
	.summary = "Starts the tasks of a paused queue again.",
	.usage = "reins resume [flags] QUEUE",
	.table = resume_table,
	.n = ARRAY_LEN(resume_table),
};

static int show(const struct cli *cli, void *reply)
{
	if (cli->json) {
		out_json(reply, false);
	} else {
		struct table *t = show_queue_table();
		show_queue_row(t, reply);
		table_print(t);
		table_free(t);
	}
	pb_free(reply);
	return EXIT_OK;
}

static int run_pause(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_p;
	Reins__V1__PauseQueueRequest req = REINS__V1__PAUSE_QUEUE_REQUEST__INIT;
	void *reply;
	(void)n_before;
	if (!cli_wants(cli, n_args, 1, "the queue's name"))
		return EXIT_USAGE;
	req.queue = args[0];
	if (conf->reason)
		req.reason = conf->reason;
	int code = cli_call(cli, &client_pause_queue, &req, &reply);
	return code ? code : show(cli, reply);
}

static int run_resume(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	Reins__V1__ResumeQueueRequest req = REINS__V1__RESUME_QUEUE_REQUEST__INIT;
	void *reply;
	(void)conf_p;
	(void)n_before;
	if (!cli_wants(cli, n_args, 1, "the queue's name"))
		return EXIT_USAGE;
	req.queue = args[0];
	int code = cli_call(cli, &client_resume_queue, &req, &reply);
	return code ? code : show(cli, reply);
}

const struct command cmd_pause = { "pause", "start no more tasks of a queue", &pause_program, sizeof(struct conf), run_pause };
const struct command cmd_resume = { "resume", "start them again", &resume_program, sizeof(struct conf), run_resume };
