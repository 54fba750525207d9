/* reins drain: a worker takes no more tasks, or takes them again. */
#include <string.h>

#include "client/cli.h"
#include "client/output.h"
#include "client/show_worker.h"
#include "common/base/num.h"
#include "common/pb/pb.h"

struct conf {
	struct common_conf common;
	char *mode, *reason, *within;
	bool resume, wait;
};

#define LOOK_NS (500 * NS_PER_MS)

static const struct setting table[] = {
	{ "mode", SETTING_STRING, offsetof(struct conf, mode), "wait|detach|requeue", "wait",
	  .help = "wait: until what runs has ended; detach: the worker's process ends and leaves the programs to the next one; "
		  "requeue: what still runs after --within is stopped and given back.",
	  .group = "Drain" },
	{ "within", SETTING_STRING, offsetof(struct conf, within), "DURATION",
	  .help = "For detach and requeue: 0s to 1h. Not given: as the worker is set." },
	{ "reason", SETTING_STRING, offsetof(struct conf, reason), "TEXT", .help = "For people." },
	{ "resume", SETTING_BOOL, offsetof(struct conf, resume), .help = "Take tasks again." },
	{ "wait", SETTING_BOOL, offsetof(struct conf, wait),
	  .help = "Return when it runs nothing more (detach: when its process has ended), with --deadline at the latest." },
	COMMON_SETTINGS,
};

static const struct settings_program program = {
	.name = "reins drain",
	.summary = "Tells a worker to take no more tasks. It holds over restarts of the worker and of masters until --resume.\n"
		   "When nothing of the worker's runs any more its process ends; after --resume, start it again.",
	.usage = "reins drain [flags] WORKER-ID",
	.examples = "For example:\n"
		    "  reins drain gpu-1 --reason 'new driver' --wait     until all that runs there has ended\n"
		    "  reins drain gpu-1 --mode requeue --within 5m       in 5 minutes at most: the rest runs elsewhere\n"
		    "  reins drain gpu-1 --resume\n",
	.table = table,
	.n = ARRAY_LEN(table),
};

static int parse_mode(const char *text, Reins__V1__DrainMode *ret)
{
	static const struct {
		const char *name;
		Reins__V1__DrainMode mode;
	} modes[] = {
		{ "wait", REINS__V1__DRAIN_MODE__DRAIN_WAIT },
		{ "detach", REINS__V1__DRAIN_MODE__DRAIN_DETACH },
		{ "requeue", REINS__V1__DRAIN_MODE__DRAIN_REQUEUE },
	};
	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		if (strcmp(modes[i].name, text))
			continue;
		*ret = modes[i].mode;
		return 0;
	}
	return -1;
}

static void say(const struct cli *cli, const Reins__V1__WorkerInfo *w, bool last)
{
	bool away = w->state == REINS__V1__WORKER_INFO__STATE__DISCONNECTED && w->drain_mode == REINS__V1__DRAIN_MODE__DRAIN_DETACH;
	if (!cli->json && last && away)
		out_line("%s has left; started again, it takes over the %d that run, and no more tasks before --resume", w->worker_id,
			 w->slots_used);
	else if (!cli->json)
		show_drain(w);
	else if (last)
		out_json(w, false);
}

/* 1: it is done; 0: not yet; -1: it will never be. */
static int is_done(const struct cli *cli, const Reins__V1__WorkerInfo *w)
{
	bool gone = w->state == REINS__V1__WORKER_INFO__STATE__GONE;
	bool there = w->state == REINS__V1__WORKER_INFO__STATE__CONNECTED || w->state == REINS__V1__WORKER_INFO__STATE__DRAINING;
	if (!w->drain_mode) {
		cli_note(cli, "somebody told %s to take tasks again", w->worker_id);
		return -1;
	}
	/* Only the master that holds it knows what it runs. */
	if (there && !w->last_heartbeat_at) {
		cli_note(cli, "%s is connected to master %s: only that one knows what it runs; ask it with --server", w->worker_id,
			 w->master_id);
		return -1;
	}
	if (w->drain_mode == REINS__V1__DRAIN_MODE__DRAIN_DETACH)
		return !there;
	return gone || !w->slots_used;
}

static int look(struct cli *cli, char *id, void **ret_page, const Reins__V1__WorkerInfo **ret)
{
	Reins__V1__ListWorkersRequest req = REINS__V1__LIST_WORKERS_REQUEST__INIT;
	req.worker_id = id;
	int code = cli_call(cli, &client_list_workers, &req, ret_page);
	if (code)
		return code;
	const Reins__V1__ListWorkersResponse *page = *ret_page;
	*ret = page->n_workers == 1 ? page->workers[0] : NULL;
	if (*ret)
		return EXIT_OK;
	cli_note(cli, "the server no longer knows %s", id);
	pb_free(*ret_page);
	return EXIT_OTHER;
}

/* Says how it stands each time that changes. */
static int wait_for(struct cli *cli, char *id, int32_t used)
{
	for (;;) {
		const Reins__V1__WorkerInfo *w;
		void *page;
		int code = look(cli, id, &page, &w);
		if (code)
			return code;
		int done = is_done(cli, w);
		if (done >= 0 && (done || w->slots_used != used))
			say(cli, w, done);
		used = w->slots_used;
		pb_free(page);
		if (done)
			return done > 0 ? EXIT_OK : EXIT_OTHER;
		if (client_sleep(cli->client, LOOK_NS) < 0)
			return EXIT_INTERRUPTED;
		if (loop_now_mono_ns(cli->loop) >= cli->deadline_mono_ns) {
			cli_note(cli, "it still runs something; the drain goes on");
			return EXIT_TIMED_OUT;
		}
	}
}

static int check(const struct cli *cli, const struct conf *conf, Reins__V1__DrainMode *ret_mode, int64_t *ret_within)
{
	if (parse_mode(conf->mode, ret_mode) < 0)
		return cli_usage(cli, "--mode %.40s: wait, detach and requeue are known", conf->mode);
	if (conf->resume && (conf->wait || conf->reason || conf->within))
		return cli_usage(cli, "--resume goes with none of --wait, --reason and --within");
	if (conf->within && *ret_mode == REINS__V1__DRAIN_MODE__DRAIN_WAIT)
		return cli_usage(cli, "--within goes with --mode detach and --mode requeue");
	if (conf->within && (num_parse_duration(conf->within, ret_within) < 0 || *ret_within > 3600 * NS_PER_S))
		return cli_usage(cli, "--within %.40s: a duration from 0s to 1h is wanted, such as 90s or 5m", conf->within);
	return EXIT_OK;
}

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_p;
	Reins__V1__DrainWorkerRequest req = REINS__V1__DRAIN_WORKER_REQUEST__INIT;
	Google__Protobuf__Duration within;
	int64_t within_ns = 0;
	void *reply;
	(void)n_before;
	if (!cli_wants(cli, n_args, 1, "the worker's id") || check(cli, conf, &req.mode, &within_ns))
		return EXIT_USAGE;
	req.worker_id = args[0];
	req.resume = conf->resume;
	if (conf->reason)
		req.reason = conf->reason;
	if (conf->within) {
		pb_duration_set(&within, within_ns);
		req.within = &within;
	}
	int code = cli_call(cli, &client_drain_worker, &req, &reply);
	if (code)
		return code;
	const Reins__V1__WorkerInfo *w = reply;
	int32_t used = w->slots_used;
	say(cli, w, cli->json && !conf->wait);
	pb_free(reply);
	return conf->wait ? wait_for(cli, args[0], used) : EXIT_OK;
}

const struct command cmd_drain = { "drain", "a worker takes no more tasks", &program, sizeof(struct conf), run };
