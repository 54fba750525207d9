/* reins watch: what happens to tasks, as it happens.  Owns the cursor, with which it goes on when its stream has ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/cli.h"
#include "client/filter.h"
#include "client/show.h"
#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"

#define IDS_MAX 1000
#define RETRY_NS (500 * NS_PER_MS)
#define PATIENCE_NS (300 * NS_PER_S) /* a server that is gone this long is given up */

struct conf {
	struct common_conf common;
	struct filter_conf which;
	char *cursor;
	bool metrics;
};

static const struct setting table[] = {
	FILTER_SETTINGS(struct conf, which),
	{ "cursor", SETTING_STRING, offsetof(struct conf, cursor), "CURSOR",
	  .help = "From this cursor of an earlier event (-o json shows them), not from now on." },
	{ "metrics", SETTING_BOOL, offsetof(struct conf, metrics), .help = "Also new values of what programs report in REINS_METRICS." },
	COMMON_SETTINGS,
};

static const struct settings_program program = {
	.name = "reins watch",
	.summary = "Shows what happens to tasks, as it happens, until it is interrupted; with ids to these only, and until they have ended.\n"
		   "With --state or --worker also those of which it was so before the change.\n"
		   "When the server goes it waits for it, and goes on where it was.",
	.usage = "reins watch [flags] [TASK-ID...]",
	.examples = "For example:\n"
		    "  reins watch --queue train\n"
		    "  reins watch -l 'team=vision,!test' --name-prefix train/\n"
		    "  reins watch -o json --state failed | jq .task.id\n",
	.table = table,
	.n = ARRAY_LEN(table),
};

struct watching {
	struct cli *cli;
	Reins__V1__WatchTasksRequest request;
	struct filter_args which;
	bool *ended;              /* of the ids */
	size_t n_ended;
	char *cursor;             /* "" before the first event */
	int64_t lost_since_mono_ns; /* 0: it answers */
};

static bool is_final(Reins__V1__Task__State s)
{
	return s == REINS__V1__TASK__STATE__COMPLETED || s == REINS__V1__TASK__STATE__FAILED || s == REINS__V1__TASK__STATE__CANCELLED;
}

static const char *word(const Reins__V1__TaskEvent *e)
{
	switch (e->kind) {
	case REINS__V1__TASK_EVENT__KIND__STARTED: return "STARTED";
	case REINS__V1__TASK_EVENT__KIND__METRICS: return "METRICS";
	case REINS__V1__TASK_EVENT__KIND__DELETED: return "DELETED";
	default: return e->state == e->state_before ? "CANCELLING" : show_state_name(e->state);
	}
}

static void print(const struct watching *w, const Reins__V1__TaskEvent *e)
{
	char when[64], what[200], more[2048] = "", attempt[32] = "";
	const Reins__V1__Task *t = e->task;
	if (w->cli->json) {
		out_json(e, true);
		return;
	}
	out_format_instant(e->at, when, sizeof(when));
	show_what(t, 60, what, sizeof(what));
	/* The task may have gone on since. */
	if (is_final(e->state) && t->state == e->state && t->attempt == e->attempt)
		show_ending(t, more, sizeof(more));
	else if (e->kind == REINS__V1__TASK_EVENT__KIND__METRICS && t->metrics)
		show_metrics(t->metrics, more, sizeof(more));
	if (e->attempt)
		snprintf(attempt, sizeof(attempt), "  attempt %d", (int)e->attempt);
	out_line("%s  %s  %-9s%s  %s%s%s", when, t->id, word(e), attempt, what, more[0] ? "  " : "", more);
}

/* Of the ids that were given: all have ended. */
static bool all_ended(struct watching *w, const Reins__V1__Task *t, bool ended)
{
	for (size_t i = 0; i < w->which.filter.n_task_ids; i++) {
		if (strcasecmp(w->which.filter.task_ids[i], t->id) != 0)
			continue;
		w->n_ended += ended && !w->ended[i];
		w->n_ended -= !ended && w->ended[i];
		w->ended[i] = ended;
	}
	return w->which.filter.n_task_ids && w->n_ended == w->which.filter.n_task_ids;
}

static void keep_cursor(struct watching *w, const char *cursor)
{
	free(w->cursor);
	w->cursor = xstrdup(cursor);
	w->lost_since_mono_ns = 0;
}

static bool on_event(void *arg, const void *message)
{
	struct watching *w = arg;
	const Reins__V1__TaskEvent *e = message;
	bool first = !w->cursor[0];
	keep_cursor(w, e->cursor);
	if (e->kind == REINS__V1__TASK_EVENT__KIND__SYNC || !e->task)
		return !(first && w->which.filter.n_task_ids); /* then what they are now is asked first */
	print(w, e);
	if (e->kind == REINS__V1__TASK_EVENT__KIND__METRICS) /* may come after the end */
		return true;
	return !all_ended(w, e->task, is_final(e->state) || e->kind == REINS__V1__TASK_EVENT__KIND__DELETED);
}

/* What ended before the cursor, is told by the tasks themselves. 0, or an exit code. */
static int look(struct watching *w)
{
	for (size_t i = 0; i < w->which.filter.n_task_ids; i++) {
		Reins__V1__GetTaskRequest req = REINS__V1__GET_TASK_REQUEST__INIT;
		void *reply;
		req.task_id = w->which.filter.task_ids[i];
		int code = cli_call(w->cli, &client_get_task, &req, &reply);
		if (code)
			return code;
		Reins__V1__Task *t = reply;
		all_ended(w, t, is_final(t->state));
		pb_free(t);
	}
	return EXIT_OK;
}

/* True: after a pause it is to be tried again. */
static bool try_again(struct watching *w, struct client_error *e)
{
	int64_t now = loop_now_mono_ns(w->cli->loop);
	bool cut_off = e->code == STATUS_RESOURCE_EXHAUSTED && w->cursor[0]; /* we were too slow a reader */
	if (e->interrupted || (e->code != STATUS_UNAVAILABLE && !cut_off) || now >= w->cli->deadline_mono_ns)
		return false;
	if (!w->lost_since_mono_ns) {
		w->lost_since_mono_ns = now;
		if (!cut_off)
			cli_note(w->cli, "%s; trying again", e->message);
	}
	if (now - w->lost_since_mono_ns > PATIENCE_NS)
		return false;
	if (client_sleep(w->cli->client, max_i64(RETRY_NS, min_i64(e->retry_after_ms, 10000) * NS_PER_MS)) == 0)
		return true;
	e->interrupted = true;
	return false;
}

static int watch(struct watching *w)
{
	struct client_error e;
	bool looked = !w->which.filter.n_task_ids;
	for (;;) {
		w->request.cursor = w->cursor;
		int rc = client_stream(w->cli->client, &client_watch_tasks, &w->request, w->cli->deadline_mono_ns, on_event, w, &e);
		if (rc == 0 && !looked) {
			int code = look(w);
			looked = true;
			if (code || w->n_ended == w->which.filter.n_task_ids)
				return code;
		} else if (rc == 0 && w->which.filter.n_task_ids && w->n_ended == w->which.filter.n_task_ids) {
			return EXIT_OK;
		} else if (rc == 0) {
			e = (struct client_error){ .code = STATUS_UNAVAILABLE, .message = "the server ended the stream" };
		}
		if (rc < 0 && !try_again(w, &e)) {
			if (e.interrupted && !w->which.filter.n_task_ids)
				return EXIT_INTERRUPTED;
			return cli_fail(w->cli, &e);
		}
	}
}

static int set_filter(struct watching *w, const struct conf *conf, char **args, int n_args)
{
	if (n_args > IDS_MAX)
		return cli_usage(w->cli, "at most %d tasks can be watched at a time", IDS_MAX);
	if (n_args && !cli_are_task_ids(w->cli, args, n_args))
		return EXIT_USAGE;
	if (n_args && filter_is_given(&conf->which))
		return cli_usage(w->cli, "task ids go with none of the flags that say which tasks");
	int code = filter_make(w->cli, &conf->which, &w->which);
	w->which.filter.task_ids = args;
	w->which.filter.n_task_ids = (size_t)n_args;
	return code;
}

static Reins__V1__TaskEvent__Kind changes[] = {
	REINS__V1__TASK_EVENT__KIND__CREATED, REINS__V1__TASK_EVENT__KIND__CHANGED, REINS__V1__TASK_EVENT__KIND__STARTED,
	REINS__V1__TASK_EVENT__KIND__DELETED,
};

static int run(struct cli *cli, const void *conf_p, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_p;
	struct watching w = { .cli = cli, .request = REINS__V1__WATCH_TASKS_REQUEST__INIT };
	(void)n_before;
	w.request.filter = &w.which.filter;
	if (!conf->metrics) {
		w.request.kinds = changes;
		w.request.n_kinds = ARRAY_LEN(changes);
	}
	w.cursor = xstrdup(conf->cursor ? conf->cursor : "");
	w.ended = xcalloc((size_t)n_args + 1, sizeof(*w.ended));
	int code = set_filter(&w, conf, args, n_args);
	if (!code)
		code = watch(&w);
	free(w.ended);
	free(w.cursor);
	return code;
}

const struct command cmd_watch = { "watch", "what happens to tasks, as it happens", &program, sizeof(struct conf), run };
