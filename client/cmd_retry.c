/* reins retry: tasks that failed or were cancelled, once more. */
#include "client/bulk.h"
#include "client/output.h"
#include "client/show.h"
#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"

struct conf {
	struct common_conf common;
	struct bulk_conf bulk;
	int64_t attempt;
};

static const struct setting table[] = {
	{ "attempt", SETTING_INT, offsetof(struct conf, attempt), NULL, "-1", -1, INT32_MAX,
	  .help = "Only if this is still the task's newest attempt; 0: it had none. -1: whichever is.", .group = "Retry" },
	FILTER_SETTINGS(struct conf, bulk.which),
	BULK_SETTINGS(struct conf),
	COMMON_SETTINGS,
};

static const struct settings_program program = {
	.name = "reins retry",
	.summary = "Puts FAILED or CANCELLED tasks back to PENDING, to start at once, also before their --run-at; their attempts\n"
		   "are kept, and counted from 0 again.\n"
		   "Without ids: all that the flags say, failed and cancelled ones if no state is named.",
	.usage = "reins retry [flags] [TASK-ID...]",
	.examples = "For example:\n"
		    "  reins retry --state failed --since 2h --queue nightly --dry-run     how many would it be?\n",
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

static int retry(struct cli *cli, const struct conf *conf, char *id, bool many)
{
	Reins__V1__RetryTaskRequest req = REINS__V1__RETRY_TASK_REQUEST__INIT;
	void *reply;
	req.task_id = id;
	req.attempt = (int32_t)conf->attempt;
	int code = conf->attempt >= 0 ? EXIT_OK : newest_attempt(cli, id, &req.attempt);
	if (!code)
		code = cli_call(cli, &client_retry_task, &req, &reply);
	if (code)
		return code;
	const Reins__V1__Task *t = reply;
	if (cli->json)
		out_json(t, many);
	else
		out_line("%s  %s", t->id, show_state_name(t->state));
	pb_free(reply);
	return EXIT_OK;
}

static int call(struct bulk *b, const Reins__V1__TaskFilter *filter, int32_t limit, char *token, struct bulk_counts *ret_counts,
		char **ret_token, void **ret_reply)
{
	Reins__V1__RetryTasksRequest req = REINS__V1__RETRY_TASKS_REQUEST__INIT;
	req.filter = (Reins__V1__TaskFilter *)(uintptr_t)filter;
	req.all = b->conf->all;
	req.dry_run = b->conf->dry_run;
	req.limit = limit;
	req.page_token = token;
	int code = cli_call(b->cli, &client_retry_tasks, &req, ret_reply);
	if (code)
		return code;
	const Reins__V1__RetryTasksResponse *r = *ret_reply;
	*ret_counts = (struct bulk_counts){ r->matched, { r->retried, r->not_ended, r->completed, r->changed, r->gone } };
	*ret_token = r->next_page_token;
	return EXIT_OK;
}

static int run_bulk(struct cli *cli, const struct conf *conf)
{
	struct bulk b = {
		.cli = cli,
		.conf = &conf->bulk,
		.words = { { "retried", "had not ended", "were completed", "had a newer attempt meanwhile", "gone meanwhile" } },
		.dry_words = { { "would be retried", "have not ended", "are completed", "have a newer attempt", "gone" } },
		.call = call,
	};
	return bulk_run(&b);
}

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_p;
	int worst = EXIT_OK;
	(void)n_before;
	if (n_args == 0 && conf->attempt < 0)
		return run_bulk(cli, conf);
	if (bulk_is_given(&conf->bulk))
		return cli_usage(cli, "task ids and --attempt go with none of the flags that say which tasks");
	if (n_args > 1 && conf->attempt >= 0)
		return cli_usage(cli, "--attempt goes with one task");
	if (!cli_are_task_ids(cli, args, n_args))
		return EXIT_USAGE;
	for (int i = 0; i < n_args; i++) {
		int code = retry(cli, conf, args[i], n_args > 1);
		if (code)
			worst = code;
		/* One that is gone or has not ended does not keep the others from being retried. */
		if (code && code != EXIT_OTHER)
			return code;
	}
	return worst;
}

const struct command cmd_retry = {
	"retry", "failed or cancelled tasks once more", &program, sizeof(struct conf), run,
};
