/* reins drain: a worker takes no more tasks, or takes them again. */
#include <string.h>

#include "client/cli.h"
#include "client/output.h"
#include "common/pb/pb.h"
#include "reins/v1/admin_service.pb-c.h"

struct conf {
	struct common_conf common;
	char *mode, *reason;
	int64_t within;
	bool resume;
};

static const struct setting table[] = {
	{ "mode", SETTING_STRING, offsetof(struct conf, mode), "wait|detach|requeue", "wait",
	  .help = "wait: until what runs has ended; detach: the worker's process ends and leaves the programs to the next one; "
		  "requeue: what still runs after --within is stopped and given back.",
	  .group = "Drain" },
	{ "within", SETTING_DURATION, offsetof(struct conf, within), NULL, .help = "For detach and requeue. Not given: the worker's own." },
	{ "reason", SETTING_STRING, offsetof(struct conf, reason), "TEXT", .help = "For people." },
	{ "resume", SETTING_BOOL, offsetof(struct conf, resume), .help = "Take tasks again." },
	COMMON_SETTINGS,
};

static const struct settings_program program = {
	.name = "reins drain",
	.summary = "Tells a worker to take no more tasks; kept over its restarts until --resume.",
	.usage = "reins drain [flags] WORKER-ID",
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

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_p;
	Reins__V1__DrainWorkerRequest req = REINS__V1__DRAIN_WORKER_REQUEST__INIT;
	Google__Protobuf__Duration within;
	void *reply;
	(void)n_before;
	if (!cli_wants(cli, n_args, 1, "the worker's id"))
		return EXIT_USAGE;
	if (parse_mode(conf->mode, &req.mode) < 0)
		return cli_usage(cli, "--mode %.40s: wait, detach and requeue are known", conf->mode);
	req.worker_id = args[0];
	req.resume = conf->resume;
	if (conf->reason)
		req.reason = conf->reason;
	if (conf->within) {
		pb_duration_set(&within, conf->within);
		req.within = &within;
	}
	int code = cli_call(cli, &client_drain_worker, &req, &reply);
	if (code)
		return code;
	const Reins__V1__WorkerInfo *w = reply;
	const ProtobufCEnumValue *state =
		protobuf_c_enum_descriptor_get_value(&reins__v1__worker_info__state__descriptor, (int)w->state);
	if (cli->json)
		out_json(w, false);
	else
		out_line("%s  %s, %d of %d slots taken", w->worker_id, state ? state->name : "UNKNOWN", w->slots_used, w->slots);
	pb_free(reply);
	return EXIT_OK;
}

const struct command cmd_drain = { "drain", "a worker takes no more tasks", &program, sizeof(struct conf), run };
