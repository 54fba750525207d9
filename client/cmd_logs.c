/* reins logs: what a task's program printed. */
#include <string.h>

#include "client/cli.h"
#include "client/follow.h"
#include "common/pb/pb.h"

struct conf {
	struct common_conf common;
	bool follow, out_only, err_only;
	int64_t attempt, tail;
};

static const struct setting table[] = {
	{ "follow", SETTING_BOOL, offsetof(struct conf, follow), .help = "Stay until the task has ended. Also -f.", .group = "What" },
	{ "attempt", SETTING_INT, offsetof(struct conf, attempt), NULL, NULL, 0, INT32_MAX,
	  .help = "Of this attempt. Not given: the newest, with --follow also those after it." },
	{ "tail", SETTING_SIZE, offsetof(struct conf, tail), NULL, .help = "Only the last bytes of what there is now." },
	{ "stdout", SETTING_BOOL, offsetof(struct conf, out_only), .help = "Only what went to stdout." },
	{ "stderr", SETTING_BOOL, offsetof(struct conf, err_only), .help = "Only what went to stderr." },
	COMMON_SETTINGS,
};

static const struct settings_program program = {
	.name = "reins logs",
	.summary = "Prints what a task's program printed, byte for byte: stdout to stdout, stderr to stderr.",
	.usage = "reins logs [flags] TASK-ID",
	.table = table,
	.n = ARRAY_LEN(table),
};

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_p;
	struct client_error e;
	Reins__V1__Task *t = NULL;
	(void)n_before;
	if (!cli_wants(cli, n_args, 1, "the task's id") || !cli_is_task_id(cli, args[0]))
		return EXIT_USAGE;
	if (conf->out_only && conf->err_only)
		return cli_usage(cli, "--stdout and --stderr exclude each other; without them both are printed");
	if (conf->follow && conf->tail && !conf->attempt)
		return cli_usage(cli, "--tail with --follow needs --attempt");
	struct follow f = { .cli = cli,
			    .task_id = args[0],
			    .log = cli->json ? FOLLOW_JSON : FOLLOW_BYTES,
			    .attempt = (int32_t)conf->attempt,
			    .stream = conf->out_only ? REINS__V1__LOG_STREAM__STDOUT :
				      conf->err_only ? REINS__V1__LOG_STREAM__STDERR :
						       REINS__V1__LOG_STREAM__LOG_STREAM_UNSPECIFIED };
	int r = conf->follow && !conf->attempt ? follow_to_end(&f, &t, &e) : follow_attempt(&f, conf->follow, conf->tail, &e);
	pb_free(t);
	return r < 0 ? cli_fail(cli, &e) : EXIT_OK;
}

const struct command cmd_logs = {
	"logs", "what a task printed; -f stays until it has ended", &program, sizeof(struct conf), run,
};
