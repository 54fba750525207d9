/* reins status: everything about one task. */
#include "client/cli.h"
#include "client/show.h"
#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"

static const struct setting table[] = { COMMON_SETTINGS };

static const struct settings_program program = {
	.name = "reins status",
	.summary = "Shows everything about a task: state, why it waits, attempts, how it ended.",
	.usage = "reins status [flags] TASK-ID",
	.table = table,
	.n = ARRAY_LEN(table),
};

static int run(struct cli *cli, const void *conf, char **args, int n_args, int n_before)
{
	Reins__V1__GetTaskRequest req = REINS__V1__GET_TASK_REQUEST__INIT;
	void *reply;
	(void)conf;
	(void)n_before;
	if (!cli_wants(cli, n_args, 1, "the task's id") || !cli_is_task_id(cli, args[0]))
		return EXIT_USAGE;
	req.task_id = args[0];
	int code = cli_call(cli, &client_get_task, &req, &reply);
	if (code)
		return code;
	if (cli->json)
		out_json(reply, false);
	else
		show_task(reply, clock_wall_us());
	pb_free(reply);
	return EXIT_OK;
}

const struct command cmd_status = {
	"status", "everything about one task", &program, sizeof(struct common_conf), run,
};
