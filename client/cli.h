/* What the commands share: the connection's flags, a call with its error message, exit codes. */
#ifndef REINS_CLIENT_CLI_H
#define REINS_CLIENT_CLI_H

#include "client/lib/client.h"
#include "common/settings/settings.h"

enum exit_code {
	EXIT_OK = 0,
	EXIT_OTHER = 1,
	EXIT_USAGE = 64,       /* sysexits.h, like the next two */
	EXIT_UNAVAILABLE = 69,
	EXIT_DENIED = 77,
	EXIT_TIMED_OUT = 124,  /* as timeout(1) */
	EXIT_SIGNAL = 128,     /* + the signal */
	EXIT_INTERRUPTED = 130,
};

/* First member of each command's settings. */
struct common_conf {
	char *server, *token, *token_file, *tls_ca, *tls_cert, *tls_key;
	bool insecure;
	char *output;
	int64_t deadline; /* ns; 0: not given */
	int64_t keepalive; /* ns */
};

/* Last rows of each command's table. */
#define COMMON_SETTINGS COMMON_SETTINGS_OUTPUT("text|json")
#define COMMON_SETTINGS_OUTPUT(values)                                                                                \
	{ "output", SETTING_STRING, offsetof(struct common_conf, output), values, "text",                            \
	  .help = "How to write the answer: for people, or as JSON (lists: one object per line). Also -o.",          \
	  .group = "Output" },                                                                                       \
	{ "server", SETTING_STRING, offsetof(struct common_conf, server), "URL", "http://127.0.0.1:7346",            \
	  .help = "Address of reinsd: http://HOST:PORT, https://HOST:PORT or unix:PATH. Environment: REINS_SERVER.", \
	  .group = "Connection" },                                                                                   \
	{ "token", SETTING_STRING, offsetof(struct common_conf, token), "TOKEN", .secret = true,                     \
	  .help = "Who you are, if the server asks. Better in the environment: REINS_TOKEN." },                      \
	{ "token-file", SETTING_STRING, offsetof(struct common_conf, token_file), "FILE",                            \
	  .help = "The token is in this file, unless one is given. Environment: REINS_TOKEN_FILE." },                \
	{ "insecure", SETTING_BOOL, offsetof(struct common_conf, insecure),                                          \
	  .help = "Send the token also in clear text over a network." },                                             \
	{ "tls-ca", SETTING_STRING, offsetof(struct common_conf, tls_ca), "FILE",                                    \
	  .help = "Certificates (PEM) that the server's must descend from; else the system's. Environment: REINS_TLS_CA." }, \
	{ "tls-cert", SETTING_STRING, offsetof(struct common_conf, tls_cert), "FILE",                                \
	  .help = "Your own certificate (PEM), with --tls-key. Environment: REINS_TLS_CERT." },                      \
	{ "tls-key", SETTING_STRING, offsetof(struct common_conf, tls_key), "FILE",                                  \
	  .help = "Key (PEM) of --tls-cert. Environment: REINS_TLS_KEY." },                                          \
	{ "keepalive", SETTING_DURATION, offsetof(struct common_conf, keepalive), NULL, "30s", 100 * NS_PER_MS, 86400 * NS_PER_S, \
	  .help = "After so long without a word from the server it is asked whether it is there; without an answer in the same " \
		  "time, 20s at most, the connection counts as lost." },                                              \
	{ "deadline", SETTING_DURATION, offsetof(struct common_conf, deadline), NULL,                                \
	  .help = "Give up after this time (exit code 124). Not given: 30s for an answer, no limit for waiting." }

struct cli {
	const char *name; /* "reins status", for messages */
	const struct common_conf *conf;
	struct loop *loop;
	struct client *client;
	int64_t deadline_mono_ns; /* of the whole command; CLIENT_NO_DEADLINE */
	bool json;
};

struct command {
	const char *name;
	const char *summary; /* for the list of commands */
	const struct settings_program *program;
	size_t conf_size;
	/* The exit code. args: what is not a flag; `n_before` of them stood before `--`. */
	int (*run)(struct cli *cli, const void *conf, char **args, int n_args, int n_before);
	/* Makes no call with the connection's flags: its settings do not begin with common_conf, and of `cli` only name and
	 * loop are set.  It watches for signals itself. */
	bool alone;
	bool unlisted; /* no server answers it yet */
	const char *other_output; /* a value of --output that this command alone knows; NULL: none */
};

extern const struct command cmd_submit, cmd_status, cmd_list, cmd_logs, cmd_metrics, cmd_wait, cmd_watch, cmd_cancel, cmd_retry, cmd_workers,
	cmd_queues, cmd_pause, cmd_resume, cmd_drain, cmd_ping, cmd_token, cmd_dev;

/* Unary; on failure the message is printed and the exit code returned, else 0 and the reply for pb_free. */
int cli_call(struct cli *cli, const struct client_method *m, const void *request, void **ret_reply) MUST_CHECK;
/* The deadline for a call that takes `ns` by itself, within that of the command. */
int64_t cli_deadline(const struct cli *cli, int64_t ns);
/* Prints what went wrong and what to do next; the exit code. */
int cli_fail(const struct cli *cli, const struct client_error *e);
/* A line on stderr, "reins status: …"; returns EXIT_USAGE. */
int cli_usage(const struct cli *cli, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* A line on stderr. */
void cli_note(const struct cli *cli, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Exit code of an error, without printing. */
int cli_exit_code(const struct client_error *e);
/* True if `text` is a task id; else says so. */
bool cli_is_task_id(const struct cli *cli, const char *text);
/* True if these are task ids, and at least one; else says so. */
bool cli_are_task_ids(const struct cli *cli, char *const *args, int n);
/* Exactly this many arguments; else says what is wanted. */
bool cli_wants(const struct cli *cli, int n_args, int wanted, const char *what);

#endif
