/* reins workers: who runs tasks. */
#include <string.h>

#include "client/cli.h"
#include "client/output.h"
#include "client/show_worker.h"
#include "common/base/clock.h"
#include "common/pb/pb.h"

struct conf {
	struct common_conf common;
	bool gone;
};

static const struct setting table[] = {
	{ "gone", SETTING_BOOL, offsetof(struct conf, gone), .help = "Also those whose lease is over.", .group = "Which" },
	COMMON_SETTINGS,
};

static const struct settings_program program = {
	.name = "reins workers",
	.summary = "Lists the workers: state, slots, GPUs, last sign of life, and why one takes no tasks.\n"
		   "With an id: all that is known of that one, whether it is there or gone.",
	.usage = "reins workers [flags] [WORKER-ID]",
	.table = table,
	.n = ARRAY_LEN(table),
};

static int list(struct cli *cli, Reins__V1__ListWorkersRequest *req)
{
	Reins__V1__ListWorkersResponse *page = NULL;
	struct table *t = show_worker_table();
	size_t shown = 0;
	int code;
	req->page_size = 1000;
	do {
		void *reply;
		code = cli_call(cli, &client_list_workers, req, &reply);
		pb_free(page);
		page = code ? NULL : reply;
		for (size_t i = 0; page && i < page->n_workers; i++, shown++) {
			if (cli->json)
				out_json(page->workers[i], true);
			else
				show_worker_row(t, page->workers[i], clock_wall_us());
		}
		if (shown && !cli->json)
			table_print(t);
		req->page_token = page ? page->next_page_token : req->page_token;
	} while (page && page->next_page_token[0]);
	if (!code && !shown && !cli->json)
		cli_note(cli, "no worker; start one with: reins-worker --server %s", client_server(cli->client));
	pb_free(page);
	table_free(t);
	return code;
}

static int one(struct cli *cli, Reins__V1__ListWorkersRequest *req, char *id)
{
	void *reply;
	req->worker_id = id;
	int code = cli_call(cli, &client_list_workers, req, &reply);
	if (code)
		return code;
	const Reins__V1__ListWorkersResponse *page = reply;
	/* A server that knows no worker_id sends its first page. */
	const Reins__V1__WorkerInfo *w = NULL;
	for (size_t i = 0; i < page->n_workers; i++)
		if (!strcmp(page->workers[i]->worker_id, id))
			w = page->workers[i];
	if (!w)
		cli_note(cli, "no worker \"%.255s\" was ever connected; `reins workers --gone` shows all", id);
	else if (cli->json)
		out_json(w, false);
	else
		show_worker(w, clock_wall_us());
	pb_free(reply);
	return w ? EXIT_OK : EXIT_OTHER;
}

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	static Reins__V1__WorkerInfo__State all[] = {
		REINS__V1__WORKER_INFO__STATE__CONNECTED,
		REINS__V1__WORKER_INFO__STATE__DRAINING,
		REINS__V1__WORKER_INFO__STATE__DISCONNECTED,
		REINS__V1__WORKER_INFO__STATE__GONE,
	};
	const struct conf *conf = conf_p;
	Reins__V1__ListWorkersRequest req = REINS__V1__LIST_WORKERS_REQUEST__INIT;
	(void)n_before;
	if (n_args > 1 && !cli_wants(cli, n_args, 1, ""))
		return EXIT_USAGE;
	if (n_args == 1 && !args[0][0])
		return cli_usage(cli, "\"\" is no worker's id; without one all are listed");
	if (conf->gone) {
		req.states = all;
		req.n_states = ARRAY_LEN(all);
	}
	return n_args ? one(cli, &req, args[0]) : list(cli, &req);
}

const struct command cmd_workers = { "workers", "who runs tasks", &program, sizeof(struct conf), run };
