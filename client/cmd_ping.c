/* reins ping: is the server there, and well? */
#include <inttypes.h>
#include <stdio.h>

#include "client/cli.h"
#include "client/output.h"
#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "grpc/health/v1/health.pb-c.h"
#include "reins/v1/admin_service.pb-c.h"

static const struct setting table[] = { COMMON_SETTINGS };

static const struct settings_program program = {
	.name = "reins ping",
	.summary = "Asks the server how it is: exit code 0 if it serves, 69 if not.",
	.usage = "reins ping [flags]",
	.table = table,
	.n = ARRAY_LEN(table),
};

static const char *health_name(Reins__V1__ServerInfo__Health h)
{
	return h == REINS__V1__SERVER_INFO__HEALTH__UP ? "up" : h == REINS__V1__SERVER_INFO__HEALTH__DOWN ? "DOWN" : "unknown";
}

static void show_info(const Reins__V1__ServerInfo *s)
{
	char since[96], error[512];
	out_format_time(s->started_at, clock_wall_us(), since, sizeof since);
	out_line("server   reinsd %s, master %s, since %s", s->version, s->master_id, since);
	out_clean(s->store_error, 200, error, sizeof error);
	out_line("store    %s%s%s%s%s", s->store_kind, s->store_kind[0] ? " " : "", health_name(s->store), error[0] ? ": " : "",
		 error);
	out_clean(s->lease_error, 200, error, sizeof error);
	out_line("leases   %s%s%s%s%s", s->lease_kind, s->lease_kind[0] ? " " : "", health_name(s->lease), error[0] ? ": " : "",
		 error);
	out_line("workers  %" PRId64 " connected, %" PRId64 " attempts running", s->workers_connected, s->attempts_running);
}

/* 0 and the round trip's time, or the exit code with everything said. */
static int check_health(struct cli *cli, int64_t *ret_us)
{
	Grpc__Health__V1__HealthCheckRequest req = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
	void *reply;
	/* The first call makes the connection; the second is timed. */
	for (int i = 0; i < 2; i++) {
		int64_t began = clock_mono_ns();
		int code = cli_call(cli, &client_health_check, &req, &reply);
		if (code)
			return code;
		*ret_us = (clock_mono_ns() - began) / NS_PER_US;
		const Grpc__Health__V1__HealthCheckResponse *h = reply;
		bool serving = h->status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
		pb_free(reply);
		if (!serving) {
			cli_note(cli, "%s answers, but does not serve (is its store away? its log says)", client_server(cli->client));
			return EXIT_UNAVAILABLE;
		}
	}
	return EXIT_OK;
}

static int run(struct cli *cli, const void *conf, char **args, int n_args, int n_before)
{
	Reins__V1__GetServerInfoRequest req = REINS__V1__GET_SERVER_INFO_REQUEST__INIT;
	struct client_error e;
	void *reply;
	int64_t us = 0;
	(void)conf;
	(void)args;
	(void)n_before;
	if (!cli_wants(cli, n_args, 0, ""))
		return EXIT_USAGE;
	int code = check_health(cli, &us);
	if (code)
		return code;
	if (!cli->json)
		out_line("%s serves; answered in %.1f ms", client_server(cli->client), (double)us / 1000);
	if (client_call(cli->client, &client_get_server_info, &req, cli_deadline(cli, 30 * NS_PER_S), &reply, &e) < 0) {
		/* Health is the question; the rest is a service that not every server has. */
		if (e.code != STATUS_UNIMPLEMENTED)
			return cli_fail(cli, &e);
		if (cli->json)
			out_line("{}");
		return EXIT_OK;
	}
	if (cli->json)
		out_json(reply, false);
	else
		show_info(reply);
	pb_free(reply);
	return EXIT_OK;
}

const struct command cmd_ping = { "ping", "is the server there, and well?", &program, sizeof(struct common_conf), run };
