/* reins submit: one task; with --wait also its log and its end. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cli.h"
#include "client/follow.h"
#include "client/output.h"
#include "client/show.h"
#include "client/spec.h"
#include "common/base/num.h"
#include "common/pb/pb.h"

#define GIT_NS (2 * NS_PER_S)

struct conf {
	struct common_conf common;
	struct spec_flags spec;
	bool wait;
};
#define SPEC(field) (offsetof(struct conf, spec) + offsetof(struct spec_flags, field))

static const struct setting table[] = {
	{ "wait", SETTING_BOOL, offsetof(struct conf, wait),
	  .help = "Stay, pass on what the program prints, and exit as it did (128 + n: ended by signal n; 124: ran into "
		  "--timeout). The id then goes to stderr.",
	  .group = "Task" },
	{ "name", SETTING_STRING, SPEC(name), "NAME", .help = "For people; need not be unique." },
	{ "queue", SETTING_STRING, SPEC(queue), "QUEUE", .help = "Not given: \"default\"." },
	{ "handler", SETTING_STRING, SPEC(handler), "NAME",
	  .help = "Instead of a command: a function that an in-process worker has registered. It waits for a worker that has it." },
	{ "env", SETTING_LIST, SPEC(env), "KEY=VALUE", .help = "A variable for the program." },
	{ "param", SETTING_LIST, SPEC(params), "KEY=VALUE",
	  .help = "A parameter of the run: recorded with it, and given to the program in REINS_PARAMS (JSON)." },
	{ "label", SETTING_LIST, SPEC(labels), "KEY=VALUE", .help = "To find the task by. Also -l." },
	{ "payload", SETTING_STRING, SPEC(payload), "FILE|-", .help = "What the program reads from stdin; - is our stdin." },
	{ "working-dir", SETTING_STRING, SPEC(working_dir), "DIR",
	  .help = "Directory on the worker in which the program starts. Not given: an empty one of its own." },
	{ "idempotency-key", SETTING_STRING, SPEC(idempotency_key), "KEY",
	  .help = "Submitting again with this key gives the same task. Not given: a random one." },
	{ "priority", SETTING_INT, SPEC(priority), NULL, NULL, -1000, 1000, .help = "Higher goes first.", .group = "Order and limits" },
	{ "run-at", SETTING_STRING, SPEC(run_at), "TIME",
	  .help = "Not before: so long from now, such as 90m, or a time of UTC such as 2026-12-01T08:00Z." },
	{ "timeout", SETTING_DURATION, SPEC(timeout), NULL, .help = "Longest run of one attempt." },
	{ "expiry", SETTING_DURATION, SPEC(expiry), NULL, .help = "Latest start after submission: a task that no worker was given by then fails." },
	{ "max-attempts", SETTING_INT, SPEC(max_attempts), NULL, NULL, 0, 1000,
	  .help = "Tries in all if the program fails. Not given: 1." },
	{ "backoff", SETTING_DURATION, SPEC(backoff), NULL, .help = "Wait before the second try; doubles with each. Not given: 1s." },
	{ "exclusive", SETTING_BOOL, SPEC(exclusive), .help = "Never two at a time, even if a worker is cut off." },
	{ "gpus", SETTING_INT, SPEC(gpus), NULL, NULL, 0, 1024, .help = "Whole GPUs.", .group = "Resources" },
	{ "cpus", SETTING_STRING, SPEC(cpus), "N", .help = "CPUs, such as 2 or 0.5." },
	{ "memory", SETTING_SIZE, SPEC(memory), NULL, .help = "Such as 4GiB. Only for workers that enforce it." },
	{ "resource", SETTING_LIST, SPEC(custom), "NAME=COUNT", .help = "So many of something that workers count, such as licenses=2." },
	COMMON_SETTINGS,
};

static const struct settings_program program = {
	.name = "reins submit",
	.summary = "Submits a task and prints its id: accepted means that it is stored.",
	.usage = "reins submit [flags] -- COMMAND [ARGUMENT...]",
	.examples = "For example:\n"
		    "  reins submit --wait -- echo hello          see its output, exit as it does\n"
		    "  reins submit -- make -C /srv/model all     hand it in and go home\n"
		    "  reins submit --working-dir . -- ./train.sh start in this directory, if the\n"
		    "                                             worker has it too\n"
		    "  reins submit --wait -- sh -c 'ls | wc -l'  a shell only if you name one\n"
		    "  reins submit --payload x.py -- python3 -   a script that the worker has not\n",
	.table = table,
	.n = ARRAY_LEN(table),
};

static void print_end(const struct cli *cli, const Reins__V1__Task *t)
{
	char end[96];
	if (t->state == REINS__V1__TASK__STATE__COMPLETED)
		return;
	show_ending(t, end, sizeof end);
	char error[600] = "";
	if (t->error[0])
		out_clean(t->error, 200, error, sizeof error);
	if (strstr(error, end))
		end[0] = 0; /* said there already */
	cli_note(cli, "task %s %s%s%s%s%s; see `reins status %s`", t->id, show_state_name(t->state), end[0] ? ", " : "", end,
		 error[0] ? ": " : "", error, t->id);
}

/* Whatever the exit code, what the program left is not to be had. */
static void tell_about_result(const struct cli *cli, const Reins__V1__Task *t)
{
	char size[32];
	if (!t->result_dropped)
		return;
	num_format_size(t->result_bytes, size, sizeof size);
	cli_note(cli, "the result of task %s, %s, was not kept: it is over the limit. Leave the name of a file in REINS_RESULT "
		      "instead of so much", t->id, size);
}

/* The commonest surprise: a file that is here and not where the program starts. */
static void tell_about_files(const struct cli *cli, const struct conf *conf, char **args, int n_args)
{
	if (conf->spec.working_dir)
		return;
	for (int i = 0; i < n_args; i++) {
		const char *a = args[i];
		bool relative = a[0] && a[0] != '/' && a[0] != '-' && (i > 0 || strchr(a, '/'));
		if (relative && access(a, F_OK) == 0) {
			cli_note(cli, "\"%.100s\" is in this directory; the program started in an empty one. If the worker has this "
				      "directory too: --working-dir .", a);
			return;
		}
	}
}

static int wait_for(struct cli *cli, const struct conf *conf, const char *id, char **args, int n_args)
{
	struct follow f = { .cli = cli, .task_id = id, .log = cli->json ? FOLLOW_NO_LOG : FOLLOW_BYTES };
	struct client_error e;
	Reins__V1__Task *t;
	if (follow_to_end(&f, &t, &e) < 0) {
		int code = cli_fail(cli, &e);
		cli_note(cli, "task %s goes on\n  its log:    reins logs -f %s\n  its end:    reins wait %s\n  to end it:  reins cancel %s",
			 id, id, id, id);
		return code;
	}
	if (cli->json)
		out_json(t, false);
	else
		print_end(cli, t);
	tell_about_result(cli, t);
	if (!cli->json && t->state == REINS__V1__TASK__STATE__FAILED)
		tell_about_files(cli, conf, args, n_args);
	int code = show_exit_code(t);
	pb_free(t);
	return code;
}

static int submit(struct cli *cli, const struct conf *conf, const struct spec *spec, char **args, int n_args)
{
	/* Each submit of ours has a key, so sending it again makes no second task. */
	struct client_method m = client_submit_task;
	void *reply;
	m.repeatable = true;
	struct client_error e;
	if (client_call(cli->client, &m, &spec->request, cli_deadline(cli, 30 * NS_PER_S), &reply, &e) < 0) {
		int code = cli_fail(cli, &e);
		if (e.interrupted || ((e.code == STATUS_UNAVAILABLE || e.code == STATUS_DEADLINE_EXCEEDED) && !e.connection))
			cli_note(cli, "whether the task was accepted is not known; submitting again with --idempotency-key %s makes no "
				      "second one", spec->request.idempotency_key);
		return code;
	}
	const Reins__V1__SubmitTaskResponse *r = reply;
	int code = EXIT_OTHER;
	if (!r->task) {
		cli_note(cli, "the server's answer names no task");
	} else if (conf->wait) {
		if (!cli->json)
			cli_note(cli, "task %s", r->task->id);
		code = wait_for(cli, conf, r->task->id, args, n_args);
	} else {
		code = EXIT_OK;
		if (cli->json)
			out_json(r->task, false);
		else
			out_line("%s", r->task->id);
	}
	pb_free(reply);
	return code;
}

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_p;
	struct origin origin;
	struct spec spec;
	char err[512];
	if (n_before)
		return cli_usage(cli, "write -- before the command: reins submit [flags] -- %.100s ...", args[0]);
	origin_find(GIT_NS, &origin);
	if (spec_build(&conf->spec, args, (size_t)n_args, &origin, &spec, err, sizeof err) < 0)
		return cli_usage(cli, "%s", err);
	int code = submit(cli, conf, &spec, args, n_args);
	spec_done(&spec);
	return code;
}

const struct command cmd_submit = {
	"submit", "hand in a task; --wait streams its log and exits as it does", &program, sizeof(struct conf), run,
};
