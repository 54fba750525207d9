/* reins retry: a task that failed or was cancelled, once more. */
#include <inttypes.h>

#include "client/cli.h"
#include "client/output.h"
#include "client/show.h"
#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"

struct conf {
	struct common_conf common;
	int64_t attempt;
};

static const struct setting table[] = {
	{ "attempt", SETTING_INT, offsetof(struct conf, attempt), NULL, "-1", -1, INT32_MAX,
	  .help = "Only if this is still the newest attempt. -1: whichever is.", .group = "Retry" },
	COMMON_SETTINGS,
};

static const struct settings_program program = {
	.name = "reins retry",
	.summary = "Puts a FAILED or CANCELLED task back to PENDING; its attempts are kept.",
	.usage = "reins retry [flags] TASK-ID",
	.table = table,
	.n = ARRAY_LEN(table),
};

static int newest_attempt(struct cli *cli, char *id, int32_t *ret)
{
	Reins__V1__GetTaskRequest req = REINS__V1__GET_TASK_REQUEST__INIT;
	void *reply;
	req.task_id = id;
	int code = cli_call(cli, &client_get_task, &req, &reply);
	if (code)
		return code;
	*ret = ((const Reins__V1__Task *)reply)->attempt;
	pb_free(reply);
	return EXIT_OK;
}

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_p;
	Reins__V1__RetryTaskRequest req = REINS__V1__RETRY_TASK_REQUEST__INIT;
	void *reply;
	(void)n_before;
	if (!cli_wants(cli, n_args, 1, "the task's id") || !cli_is_task_id(cli, args[0]))
		return EXIT_USAGE;
	req.task_id = args[0];
	req.attempt = (int32_t)conf->attempt;
	int code = conf->attempt >= 0 ? EXIT_OK : newest_attempt(cli, args[0], &req.attempt);
	if (code)
		return code;
	code = cli_call(cli, &client_retry_task, &req, &reply);
	if (code)
		return code;
	const Reins__V1__Task *t = reply;
	if (cli->json)
		out_json(t, false);
	else
		out_line("%s  %s", t->id, show_state_name(t->state));
	pb_free(reply);
	return EXIT_OK;
}

const struct command cmd_retry = {
	"retry", "a failed or cancelled task once more", &program, sizeof(struct conf), run,
};
