/* reins workers: who runs tasks. */
#include <stdio.h>
#include <string.h>

#include "client/cli.h"
#include "client/output.h"
#include "common/base/clock.h"
#include "common/base/num.h"
#include "common/pb/pb.h"
#include "reins/v1/admin_service.pb-c.h"

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
	.summary = "Lists the workers: state, slots, resources, last sign of life.",
	.usage = "reins workers [flags]",
	.table = table,
	.n = ARRAY_LEN(table),
};

static void resources_cell(struct table *t, const Reins__V1__WorkerInfo *w)
{
	const Reins__V1__Resources *all = w->resources, *used = w->resources_used;
	char text[160] = "", memory[32];
	size_t n = 0;
	if (all && all->gpus)
		n += (size_t)snprintf(text + n, sizeof text - n, "gpus %d/%d ", used ? used->gpus : 0, all->gpus);
	if (all && all->cpu_millis)
		n += (size_t)snprintf(text + n, sizeof text - n, "cpus %g ", (double)all->cpu_millis / 1000);
	if (all && all->memory_bytes) {
		num_format_size(all->memory_bytes, memory, sizeof memory);
		n += (size_t)snprintf(text + n, sizeof text - n, "%s ", memory);
	}
	if (n)
		text[n - 1] = 0;
	table_cell(t, text);
}

static void queues_cell(struct table *t, const Reins__V1__WorkerInfo *w)
{
	char text[256] = "";
	size_t n = 0;
	for (size_t i = 0; i < w->n_queues && n + 1 < sizeof text; i++) {
		int wrote = snprintf(text + n, sizeof text - n, "%s%s", i ? "," : "", w->queues[i]);
		n = min_sz(n + (size_t)(wrote > 0 ? wrote : 0), sizeof text - 1);
	}
	table_cell(t, w->n_queues ? text : "all");
}

static void worker_row(struct table *t, const Reins__V1__WorkerInfo *w, int64_t now)
{
	const ProtobufCEnumValue *state =
		protobuf_c_enum_descriptor_get_value(&reins__v1__worker_info__state__descriptor, (int)w->state);
	char age[32];
	out_format_age(w->last_heartbeat_at, now, age, sizeof age);
	table_cell(t, w->worker_id);
	table_cellf(t, "%s%s%s", state ? state->name : "UNKNOWN", w->paused_reason[0] ? ": " : "", w->paused_reason);
	table_cellf(t, "%d/%d", w->slots_used, w->slots);
	resources_cell(t, w);
	queues_cell(t, w);
	table_cell(t, w->hostname);
	table_cell(t, age);
	table_cell(t, w->version);
}

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	static const char *const heads[] = { "WORKER", "STATE", "SLOTS", "RESOURCES", "QUEUES", "HOST", "HEARD", "VERSION" };
	static Reins__V1__WorkerInfo__State all[] = {
		REINS__V1__WORKER_INFO__STATE__CONNECTED,
		REINS__V1__WORKER_INFO__STATE__DRAINING,
		REINS__V1__WORKER_INFO__STATE__DISCONNECTED,
		REINS__V1__WORKER_INFO__STATE__GONE,
	};
	const struct conf *conf = conf_p;
	Reins__V1__ListWorkersRequest req = REINS__V1__LIST_WORKERS_REQUEST__INIT;
	Reins__V1__ListWorkersResponse *page = NULL;
	(void)args;
	(void)n_before;
	if (!cli_wants(cli, n_args, 0, ""))
		return EXIT_USAGE;
	req.page_size = 1000;
	if (conf->gone) {
		req.states = all;
		req.n_states = ARRAY_LEN(all);
	}
	struct table *t = table_new(heads, ARRAY_LEN(heads));
	size_t shown = 0;
	int code;
	do {
		void *reply;
		code = cli_call(cli, &client_list_workers, &req, &reply);
		pb_free(page);
		page = code ? NULL : reply;
		for (size_t i = 0; page && i < page->n_workers; i++, shown++) {
			if (cli->json)
				out_json(page->workers[i], true);
			else
				worker_row(t, page->workers[i], clock_wall_us());
		}
		if (shown && !cli->json)
			table_print(t);
		req.page_token = page ? page->next_page_token : req.page_token;
	} while (page && page->next_page_token[0]);
	if (!code && !shown && !cli->json)
		cli_note(cli, "no worker; start one with: reins-worker --server %s", client_server(cli->client));
	pb_free(page);
	table_free(t);
	return code;
}

const struct command cmd_workers = { "workers", "who runs tasks", &program, sizeof(struct conf), run };
