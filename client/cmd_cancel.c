/* reins cancel: ask for tasks to be ended. */
#include "client/bulk.h"
#include "client/output.h"
#include "client/show.h"
#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"

struct conf {
	struct common_conf common;
	struct bulk_conf bulk;
	char *reason;
};

static const struct setting table[] = {
	{ "reason", SETTING_STRING, offsetof(struct conf, reason), "TEXT", .help = "For people; `reins status` shows it.", .group = "Cancel" },
	FILTER_SETTINGS(struct conf, bulk.which),
	BULK_SETTINGS(struct conf),
	COMMON_SETTINGS,
};

static const struct settings_program program = {
	.name = "reins cancel",
	.summary = "Cancels tasks: one that waits never starts; one that runs is stopped, which `reins wait` sees.\n"
		   "Without ids: all that the flags say, pending and running ones if no state is named.",
	.usage = "reins cancel [flags] [TASK-ID...]",
	.examples = "For example:\n"
		    "  reins cancel -l sweep=17 --dry-run          how many would it be?\n"
		    "  reins cancel -l sweep=17 --reason 'wrong data'\n",
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

static int call(struct bulk *b, const Reins__V1__TaskFilter *filter, int32_t limit, char *token, struct bulk_counts *ret_counts,
		char **ret_token, void **ret_reply)
{
	const struct conf *conf = b->arg;
	Reins__V1__CancelTasksRequest req = REINS__V1__CANCEL_TASKS_REQUEST__INIT;
	req.filter = (Reins__V1__TaskFilter *)(uintptr_t)filter;
	req.all = b->conf->all;
	req.dry_run = b->conf->dry_run;
	req.limit = limit;
	req.page_token = token;
	if (conf->reason)
		req.reason = conf->reason;
	int code = cli_call(b->cli, &client_cancel_tasks, &req, ret_reply);
	if (code)
		return code;
	const Reins__V1__CancelTasksResponse *r = *ret_reply;
	*ret_counts = (struct bulk_counts){ r->matched, { r->cancelled, r->stopping, r->ended, r->gone } };
	*ret_token = r->next_page_token;
	return EXIT_OK;
}

static int run_bulk(struct cli *cli, const struct conf *conf)
{
	struct bulk b = {
		.cli = cli,
		.conf = &conf->bulk,
		.words = { { "cancelled", "being stopped", "had ended", "gone meanwhile" } },
		.dry_words = { { "would be cancelled", "would be stopped", "have ended", "gone" } },
		.call = call,
		.arg = (void *)(uintptr_t)conf,
	};
	return bulk_run(&b);
}

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_p;
	int worst = EXIT_OK;
	(void)n_before;
	if (n_args == 0)
		return run_bulk(cli, conf);
	if (bulk_is_given(&conf->bulk))
		return cli_usage(cli, "task ids go with none of the flags that say which tasks");
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
