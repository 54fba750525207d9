/* reins: one table of commands; owns the loop, the client and the signals of the one command that runs. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/args.h"
#include "client/cli.h"
#include "client/dev_child.h"
#include "client/output.h"
#include "common/auth/token.h"

static const struct command *const commands[] = {
	&cmd_dev,    &cmd_submit, &cmd_status,  &cmd_list,   &cmd_logs,  &cmd_metrics, &cmd_wait,   &cmd_watch,
	&cmd_cancel, &cmd_retry,  &cmd_workers, &cmd_queues, &cmd_pause, &cmd_resume, &cmd_drain, &cmd_ping,   &cmd_token,
};

static void print_help(void)
{
	out_line("reins runs programs on a pool of machines and never loses track of one.\n\n"
		 "Usage: reins COMMAND [flags] [arguments]\n\nCommands:");
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (!commands[i]->unlisted)
			out_line("  %-8s  %s", commands[i]->name, commands[i]->summary);
	out_line("\nFor example:\n"
		 "  reins dev                           in one terminal, and in another:\n"
		 "  reins submit --wait -- echo hello\n\n"
		 "`reins COMMAND --help` shows the flags.  The server is --server or REINS_SERVER\n"
		 "(default http://127.0.0.1:7346), the token REINS_TOKEN.\n\n"
		 "Exit codes: 0 done, the task's own with --wait (128 + n: ended by signal n),\n"
		 "64 wrong usage, 69 server unavailable, 77 denied, 124 timed out,\n"
		 "130 interrupted, 1 anything else.");
}

static const struct command *find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	return NULL;
}

static int no_command(int argc, char **argv, int at)
{
	for (int i = 1; i < at; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			print_help();
			return EXIT_OK;
		}
		if (!strcmp(argv[i], "--version")) {
			out_line("reins %s", REINS_VERSION);
			return EXIT_OK;
		}
	}
	if (at == argc) {
		fprintf(stderr, "reins: which command? `reins --help` lists them; `reins dev` starts a whole Reins here\n");
		return EXIT_USAGE;
	}
	const char *near = args_nearest(argv[at], commands, ARRAY_LEN(commands));
	if (near)
		fprintf(stderr, "reins: no command \"%.60s\"; did you mean `reins %s`?\n", argv[at], near);
	else
		fprintf(stderr, "reins: no command \"%.60s\"; see `reins --help`\n", argv[at]);
	return EXIT_USAGE;
}

static void on_signal(void *arg, int signo)
{
	(void)signo;
	client_interrupt(arg);
}

static int run_connected(const struct command *cmd, struct cli *cli, const void *conf, char **rest, int n_rest,
			 int n_before)
{
	char token[TOKEN_SHOWN_MAX + 1], err[512];
	bool from_file = !cli->conf->token && cli->conf->token_file;
	if (from_file && token_read_file(cli->conf->token_file, token, err, sizeof(err)))
		return cli_usage(cli, "--token-file: %s", err);
	const struct client_config cc = { .server = cli->conf->server,
					  .token = from_file ? token : cli->conf->token,
					  .insecure = cli->conf->insecure,
					  .ca_file = cli->conf->tls_ca,
					  .cert_file = cli->conf->tls_cert,
					  .key_file = cli->conf->tls_key,
					  .keepalive_ns = cli->conf->keepalive,
					  .user_agent = "reins/" REINS_VERSION };
	struct loop_signal *sigint = NULL, *sigterm = NULL;
	struct client_error e;
	int code = EXIT_OTHER;
	if (loop_new(&cli->loop) < 0) {
		cli_note(cli, "cannot start: out of file descriptors or memory");
		return code;
	}
	cli->deadline_mono_ns = CLIENT_NO_DEADLINE;
	if (cli->conf->deadline)
		cli->deadline_mono_ns = loop_now_mono_ns(cli->loop) + cli->conf->deadline;
	if (client_new(cli->loop, &cc, &e, &cli->client) < 0)
		code = cli_fail(cli, &e);
	else if (loop_signal_new(cli->loop, SIGINT, on_signal, cli->client, &sigint) < 0 ||
		 loop_signal_new(cli->loop, SIGTERM, on_signal, cli->client, &sigterm) < 0)
		cli_note(cli, "cannot watch for signals");
	else
		code = cmd->run(cli, conf, rest, n_rest, n_before);
	loop_signal_free(sigint);
	loop_signal_free(sigterm);
	client_free(cli->client);
	explicit_bzero(token, sizeof(token));
	/* Closed handles are given back in a turn. */
	loop_turn(cli->loop, false);
	loop_free(cli->loop);
	return code;
}

static int run_alone(const struct command *cmd, struct cli *cli, const void *conf, char **rest, int n_rest, int n_before)
{
	if (loop_new(&cli->loop) < 0) {
		cli_note(cli, "cannot start: out of file descriptors or memory");
		return EXIT_OTHER;
	}
	int code = cmd->run(cli, conf, rest, n_rest, n_before);
	loop_turn(cli->loop, false);
	loop_free(cli->loop);
	return code;
}

static bool output_known(const struct command *cmd, const char *output)
{
	return !strcmp(output, "json") || !strcmp(output, "text") || (cmd->other_output && !strcmp(output, cmd->other_output));
}

static int run(const struct command *cmd, int argc, char **argv, int at)
{
	struct args args;
	char **rest = NULL;
	int n_rest = 0, code = EXIT_USAGE;
	void *conf = xcalloc(1, cmd->conf_size);
	struct cli cli = { .name = cmd->program->name, .conf = cmd->alone ? NULL : conf };
	args_make(argc, argv, at, cmd->program, &args);
	enum settings_outcome outcome = settings_load(cmd->program, args.argc, args.argv, conf, &rest, &n_rest);
	if (outcome == SETTINGS_RUN) {
		cli.json = cli.conf && !strcmp(cli.conf->output, "json");
		if (cmd->alone)
			code = run_alone(cmd, &cli, conf, rest, n_rest, args.n_before);
		else if (!output_known(cmd, cli.conf->output))
			cli_usage(&cli, "--output %.40s: text and json are known%s%s", cli.conf->output, cmd->other_output ? ", and " : "",
				  cmd->other_output ? cmd->other_output : "");
		else
			code = run_connected(cmd, &cli, conf, rest, n_rest, args.n_before);
		free(rest);
		settings_done(cmd->program, conf);
	} else if (outcome == SETTINGS_EXIT_0) {
		code = EXIT_OK;
	}
	args_done(&args);
	free(conf);
	return code;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], DEV_CHILD_WORD))
		return dev_child_main(argc, argv);
	int at = args_command(argc, argv);
	if (at < argc && !strcmp(argv[at], "help")) {
		const struct command *cmd = at + 1 < argc ? find(argv[at + 1]) : NULL;
		if (!cmd) {
			print_help();
			return EXIT_OK;
		}
		char *help_argv[] = { argv[0], argv[at + 1], (char[]){ "--help" }, NULL };
		return run(cmd, 3, help_argv, 1);
	}
	const struct command *cmd = at < argc ? find(argv[at]) : NULL;
	return cmd ? run(cmd, argc, argv, at) : no_command(argc, argv, at);
}
