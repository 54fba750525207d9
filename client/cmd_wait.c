/* reins wait: until tasks have ended. */
#include "client/cli.h"
#include "client/follow.h"
#include "client/output.h"
#include "client/show.h"
#include "common/pb/pb.h"

static const struct setting table[] = { COMMON_SETTINGS };

static const struct settings_program program = {
	.name = "reins wait",
	.summary = "Waits until the tasks have ended and says how. The exit code is that of the only task; of several 0 if all "
		   "completed, else 1.",
	.usage = "reins wait [flags] TASK-ID...",
	.table = table,
	.n = ARRAY_LEN(table),
};

static int wait_one(struct cli *cli, const char *id, int *ret_task_code)
{
	struct follow f = { .cli = cli, .task_id = id, .log = FOLLOW_NO_LOG };
	struct client_error e;
	Reins__V1__Task *t;
	char end[96];
	if (follow_to_end(&f, &t, &e) < 0)
		return cli_fail(cli, &e);
	show_ending(t, end, sizeof end);
	if (cli->json)
		out_json(t, true);
	else
		out_line("%s  %s%s%s", t->id, show_state_name(t->state), end[0] ? "  " : "", end);
	*ret_task_code = show_exit_code(t);
	pb_free(t);
	return EXIT_OK;
}

static int run(struct cli *cli, const void *conf, char **args, int n_args, int n_before)
{
	int worst = EXIT_OK;
	(void)conf;
	(void)n_before;
	if (!cli_are_task_ids(cli, args, n_args))
		return EXIT_USAGE;
	for (int i = 0; i < n_args; i++) {
		int task_code = EXIT_OK;
		int code = wait_one(cli, args[i], &task_code);
		if (code)
			return code;
		if (task_code)
			worst = n_args == 1 ? task_code : EXIT_OTHER;
	}
	return worst;
}

const struct command cmd_wait = { "wait", "until tasks have ended", &program, sizeof(struct common_conf), run };
