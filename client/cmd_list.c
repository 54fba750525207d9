/* reins list: tasks, newest first, page by page. */
#include <stdio.h>
#include <string.h>

#include "client/cli.h"
#include "client/filter.h"
#include "client/show.h"
#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"

#define PAGE_MAX 1000

struct conf {
	struct common_conf common;
	struct filter_conf which;
	char *page_token;
	int64_t limit;
	bool all;
};

static const struct setting table[] = {
	FILTER_SETTINGS(struct conf, which),
	{ "limit", SETTING_INT, offsetof(struct conf, limit), NULL, "50", 1, 1000000, .help = "At most so many, newest first." },
	{ "all", SETTING_BOOL, offsetof(struct conf, all), .help = "All of them, whatever --limit says." },
	{ "page-token", SETTING_STRING, offsetof(struct conf, page_token), "TOKEN",
	  .help = "Go on where a list with the same filters ended, as it said." },
	COMMON_SETTINGS,
};

static const struct settings_program program = {
	.name = "reins list",
	.summary = "Lists tasks, the newest first.",
	.usage = "reins list [flags]",
	.examples = "For example:\n"
		    "  reins list --state failed --since 2d\n"
		    "  reins list -l 'team=vision,gpu in (a100,h100),!test' --all -o json\n",
	.table = table,
	.n = ARRAY_LEN(table),
};

struct listing {
	struct cli *cli;
	struct table *table;
	int64_t left, shown;
};

static void print_page(struct listing *l, const Reins__V1__ListTasksResponse *page)
{
	int64_t now = clock_wall_us();
	for (size_t i = 0; i < page->n_tasks; i++) {
		if (l->cli->json)
			out_json(page->tasks[i], true);
		else
			show_task_row(l->table, page->tasks[i], now);
	}
	l->shown += (int64_t)page->n_tasks;
	l->left -= (int64_t)page->n_tasks;
	if (!l->cli->json && l->shown)
		table_print(l->table);
}

static int print_all(struct listing *l, Reins__V1__ListTasksRequest *req, bool all)
{
	Reins__V1__ListTasksResponse *page = NULL;
	int code = EXIT_OK;
	for (;;) {
		void *reply;
		req->page_size = all ? PAGE_MAX : (int32_t)min_i64(l->left, PAGE_MAX);
		code = cli_call(l->cli, &client_list_tasks, req, &reply);
		pb_free(page);
		page = code ? NULL : reply;
		if (code)
			break;
		print_page(l, page);
		req->page_token = page->next_page_token;
		if (!page->next_page_token[0])
			break;
		if (!all && l->left <= 0) {
			cli_note(l->cli, "there are more: --all shows all, --page-token %s the next", page->next_page_token);
			break;
		}
	}
	if (!code && !l->shown && !l->cli->json)
		cli_note(l->cli, "no task matches");
	pb_free(page);
	return code;
}

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_p;
	Reins__V1__ListTasksRequest req = REINS__V1__LIST_TASKS_REQUEST__INIT;
	struct filter_args which;
	(void)args;
	(void)n_before;
	if (!cli_wants(cli, n_args, 0, "") || filter_make(cli, &conf->which, &which))
		return EXIT_USAGE;
	req.filter = &which.filter;
	if (conf->page_token)
		req.page_token = conf->page_token;
	struct listing l = { .cli = cli, .table = show_task_table(), .left = conf->limit };
	int code = print_all(&l, &req, conf->all);
	table_free(l.table);
	return code;
}

const struct command cmd_list = { "list", "tasks, the newest first", &program, sizeof(struct conf), run };
