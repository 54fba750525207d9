/* reins queues: what waits and runs in each. */
#include "client/cli.h"
#include "client/output.h"
#include "client/show_queue.h"
#include "common/pb/pb.h"

struct conf {
	struct common_conf common;
};

static const struct setting table[] = { COMMON_SETTINGS };

static const struct settings_program program = {
	.name = "reins queues",
	.summary = "Lists the queues: how many tasks could run now, wait for a time, and run; since when the oldest could; and whether\n"
		   "it is paused, and why. A + says that there are more: counting ends at 10,000.",
	.usage = "reins queues [flags]",
	.table = table,
	.n = ARRAY_LEN(table),
};

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	Reins__V1__ListQueuesRequest req = REINS__V1__LIST_QUEUES_REQUEST__INIT;
	Reins__V1__ListQueuesResponse *page = NULL;
	size_t shown = 0;
	int code;
	(void)conf_p;
	(void)args;
	(void)n_before;
	if (!cli_wants(cli, n_args, 0, ""))
		return EXIT_USAGE;
	struct table *t = show_queue_table();
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
				show_queue_row(t, page->queues[i]);
		}
		if (shown && !cli->json)
			table_print(t);
		req.page_token = page ? page->next_page_token : req.page_token;
	} while (page && page->next_page_token[0]);
	if (!code && !shown && !cli->json)
		cli_note(cli, "no queue has a task; the first task of a queue makes it");
	pb_free(page);
	table_free(t);
	return code;
}

const struct command cmd_queues = { "queues", "what waits and runs in each queue", &program, sizeof(struct conf), run };
