/* reins cancel: ask for tasks to be ended. */
#include "client/cli.h"
#include "client/output.h"
#include "client/show.h"
#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"

struct conf {
	struct common_conf common;
	char *reason;
};

static const struct setting table[] = {
	{ "reason", SETTING_STRING, offsetof(struct conf, reason), "TEXT", .help = "For people; `reins status` shows it.", .group = "Cancel" },
	COMMON_SETTINGS,
};

static const struct settings_program program = {
	.name = "reins cancel",
	.summary = "Cancels tasks: one that waits never starts; one that runs is stopped, which `reins wait` sees.",
	.usage = "reins cancel [flags] TASK-ID...",
	.table = table,
	.n = ARRAY_LEN(table),
};

static void print(const struct cli *cli, const Reins__V1__Task *t)
{
	if (cli->json)
		out_json(t, true);
	else
		out_line("%s  %s%s", t->id, show_state_name(t->state), show_is_terminal(t) ? "" : ", being stopped");
}

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_p;
	int worst = EXIT_OK;
	(void)n_before;
	if (!cli_are_task_ids(cli, args, n_args))
		return EXIT_USAGE;
	for (int i = 0; i < n_args; i++) {
		Reins__V1__CancelTaskRequest req = REINS__V1__CANCEL_TASK_REQUEST__INIT;
		void *reply;
		req.task_id = args[i];
		if (conf->reason)
			req.reason = conf->reason;
		int code = cli_call(cli, &client_cancel_task, &req, &reply);
		if (code) {
			worst = code;
			/* One that is gone or has ended does not keep the others from being cancelled. */
			if (code != EXIT_OTHER)
				return code;
			continue;
		}
		print(cli, reply);
		pb_free(reply);
	}
	return worst;
}

const struct command cmd_cancel = { "cancel", "end tasks, or never start them", &program, sizeof(struct conf), run };
