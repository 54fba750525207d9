/* Messages and exit codes; owns nothing (main.c owns the loop and the client). */
#include "client/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/id.h"

#define ANSWER_NS (30 * NS_PER_S)

int64_t cli_deadline(const struct cli *cli, int64_t ns)
{
	return min_i64(cli->deadline_mono_ns, loop_now_mono_ns(cli->loop) + ns);
}

int cli_call(struct cli *cli, const struct client_method *m, const void *request, void **ret_reply)
{
	struct client_error e;
	if (client_call(cli->client, m, request, cli_deadline(cli, ANSWER_NS), ret_reply, &e) < 0)
		return cli_fail(cli, &e);
	return 0;
}

static const struct {
	enum status_code code;
	int exit_code;
	const char *hint; /* %s: the server's address */
} failures[] = {
	{ STATUS_UNAVAILABLE, EXIT_UNAVAILABLE,
	  "is reinsd running at %s? `reins dev` starts one on this machine.\n"
	  "  Another address is given by --server or REINS_SERVER; with TLS it begins with https://" },
	{ STATUS_DEADLINE_EXCEEDED, EXIT_TIMED_OUT,
	  "allow more with --deadline; `reins ping` shows whether %s answers at all" },
	{ STATUS_PERMISSION_DENIED, EXIT_DENIED, "%s knows you but does not allow this; ask who runs it" },
	{ STATUS_UNAUTHENTICATED, EXIT_DENIED,
	  "%s wants to know who you are: set REINS_TOKEN or REINS_TOKEN_FILE, or --tls-cert and --tls-key" },
	{ STATUS_INVALID_ARGUMENT, EXIT_USAGE, NULL },
	{ STATUS_NOT_FOUND, EXIT_OTHER, "`reins list`, `reins workers` and `reins queues` show what there is" },
	{ STATUS_ALREADY_EXISTS, EXIT_OTHER, "choose another --idempotency-key, or submit exactly the same again" },
	{ STATUS_FAILED_PRECONDITION, EXIT_OTHER, "`reins status` shows how things stand" },
	{ STATUS_RESOURCE_EXHAUSTED, EXIT_OTHER, "a limit of the server; `reins ping -o json` shows the limits" },
	{ STATUS_UNIMPLEMENTED, EXIT_OTHER, "the server at %s does not offer this; `reins ping` shows its version" },
	{ STATUS_INTERNAL, EXIT_OTHER, "a fault of the server at %s or of the network between; its log says more" },
};

/* Somebody answers there; it is about who we are to each other. */
static bool about_certificates(const struct client_error *e)
{
	return e->connection && strstr(e->message, "certificate");
}

int cli_exit_code(const struct client_error *e)
{
	if (e->interrupted)
		return EXIT_INTERRUPTED;
	if (about_certificates(e))
		return EXIT_DENIED;
	for (size_t i = 0; i < ARRAY_LEN(failures); i++)
		if (failures[i].code == e->code)
			return failures[i].exit_code;
	return EXIT_OTHER;
}

/* The table's hints are ours, so the format is known to be good. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void print_hint(const char *hint, const char *server)
{
	fprintf(stderr, "  ");
	fprintf(stderr, hint, server);
	fprintf(stderr, "\n");
}
#pragma GCC diagnostic pop

int cli_fail(const struct cli *cli, const struct client_error *e)
{
	if (e->interrupted) {
		fprintf(stderr, "%s: interrupted\n", cli->name);
		return EXIT_INTERRUPTED;
	}
	if (e->awaited) {
		fprintf(stderr, "%s: %s\n", cli->name, e->message);
		return cli_exit_code(e);
	}
	const char *code = e->connection ? "" : status_code_name(e->code);
	bool more = *code && e->reason[0];
	fprintf(stderr, "%s: %s%s%s%s%s%s\n", cli->name, code, more ? " (" : "", more ? e->reason : "", more ? ")" : "",
		*code ? ": " : "", e->message);
	if (e->code == STATUS_UNAVAILABLE && e->retry_after_ms) {
		fprintf(stderr, "  nothing is lost; try again in %.1f s\n", (double)e->retry_after_ms / 1000);
		return EXIT_UNAVAILABLE;
	}
	if (about_certificates(e)) {
		print_hint("see --tls-ca, --tls-cert and --tls-key (or REINS_TLS_CA, REINS_TLS_CERT, REINS_TLS_KEY); the log of "
			   "%s says more", cli->client ? client_server(cli->client) : cli->conf->server);
		return EXIT_DENIED;
	}
	if (e->code == STATUS_UNAUTHENTICATED && cli->conf && (cli->conf->token || cli->conf->token_file)) {
		print_hint("%s does not take the token that you gave (any more); ask who runs it for another, which `reins token new` makes",
			   cli->client ? client_server(cli->client) : cli->conf->server);
		return EXIT_DENIED;
	}
	for (size_t i = 0; i < ARRAY_LEN(failures); i++)
		if (failures[i].code == e->code && failures[i].hint)
			print_hint(failures[i].hint, cli->client ? client_server(cli->client) : cli->conf->server);
	return cli_exit_code(e);
}

static void print_line(const struct cli *cli, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

static void print_line(const struct cli *cli, const char *fmt, va_list ap)
{
	fprintf(stderr, "%s: ", cli->name);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	print_line(cli, fmt, ap);
	va_end(ap);
	return EXIT_USAGE;
}

void cli_note(const struct cli *cli, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	print_line(cli, fmt, ap);
	va_end(ap);
}

bool cli_is_task_id(const struct cli *cli, const char *text)
{
	struct uuid id;
	if (!uuid_parse(text, strlen(text), &id))
		return true;
	cli_usage(cli, "\"%.100s\" is no task id; ids have 36 characters, and `reins list` shows them", text);
	return false;
}

bool cli_are_task_ids(const struct cli *cli, char *const *args, int n)
{
	if (!n)
		cli_usage(cli, "which? Give one or more task ids");
	for (int i = 0; i < n; i++)
		if (!cli_is_task_id(cli, args[i]))
			return false;
	return n > 0;
}

bool cli_wants(const struct cli *cli, int n_args, int wanted, const char *what)
{
	if (n_args == wanted)
		return true;
	if (n_args < wanted)
		cli_usage(cli, "%s is missing; see `%s --help`", what, cli->name);
	else
		cli_usage(cli, "too many arguments; see `%s --help`", cli->name);
	return false;
}
