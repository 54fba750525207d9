/* Glue.  Before the first session, what an earlier process left is looked after (attempts_settled).  Ways out:
 *   drain     no more tasks; what runs may end until drain-timeout, then it is left to its supervisors (detach), or
 *             stopped (requeue), or waited for all the same (wait).  Detached, the process ends at once; else the outcomes'
 *             answers are waited for, FAREWELL_NS at most (they are in the spool).  Then the stream is closed in order, and
 *             what the disk has to do is waited for; exit 0
 *   from afar a master's drain (wait, requeue) is one that leaves the process connected, without tasks, until it is resumed or
 *             gets a signal; its detach ends the process as above
 *   hurry     a second signal: detach at once; or stop what runs with SIGKILL, and wait HURRY_NS at most for answers: without
 *             them the master sees the tasks lost, which counts against them.  Who signals once more is not kept waiting
 *   forget    (--forget) what an earlier process left is ended and nobody is told of it; no master is connected to; exit 0
 *   replaced  another instance has this worker's id: what runs is stopped, outcomes are nobody's business; exit 1 */
#include "worker/agent.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/num.h"
#include "common/log/log.h"
#include "common/pb/pb.h"
#include "worker/attempts.h"
#include "worker/confine.h"
#include "worker/link.h"
#include "worker/session.h"

#define FAREWELL_NS (5 * NS_PER_S)
#define HURRY_NS NS_PER_S
#define GOODBYE_NS NS_PER_S     /* for the master to end a stream that we ended */
#define SETTLE_NS (10 * NS_PER_S)
#define SETTLE_LOOK_NS (2 * NS_PER_MS)
#define SPARES 2
#define DRAIN_MAX_NS (3600 * NS_PER_S) /* of a master's wish */
#define DISK_NS (10 * NS_PER_S) /* for the spool's last batch and removals under way */

enum leaving { STAYING, DRAINING, ENDING, DETACHED, REPLACED };

struct agent {
	struct loop *loop;
	const struct worker_config *cfg;
	struct state_dir state;
	struct confine *confine;
	struct launch_base launch;
	struct spares *spares;
	struct attempts *attempts;
	struct session *session;
	struct link *link;
	enum leaving leaving;
	int signals;
	enum worker_drain policy;    /* DRAINING: what comes when its time is over */
	int64_t detach_for_ns;
	bool stays;                  /* drained from afar: connected, and may be resumed */
	int64_t settle_until_mono_ns;
	bool hurry, at_once;         /* at_once: no answers are waited for */
	bool farewell;               /* nothing runs any more */
	bool goodbye;                /* nothing is to be said any more */
	int64_t give_up_mono_ns;     /* for the disk */
	struct loop_timer settle_timer;
	struct loop_timer timer;     /* DRAINING: its end; farewell: the end of waiting for answers */
	struct loop_dirty dirty;     /* look whether it is time to go */
	int exit_code;
};

static void on_news(void *arg)
{
	struct agent *a = arg;
	if (a->session)
		session_news(a->session);
}

static void on_fewer(void *arg)
{
	struct agent *a = arg;
	if (a->leaving != STAYING)
		loop_mark(a->loop, &a->dirty);
}

/* ---- the way to a master ---- */

static void on_link_ready(void *arg, struct grpc_channel *ch)
{
	struct agent *a = arg;
	int r = session_open(a->session, ch);
	if (r < 0)
		link_drop(a->link, LINK_NEXT, strerror(-r));
}

static void on_link_lost(void *arg)
{
	session_close(((struct agent *)arg)->session);
}

static void on_answer(void *arg)
{
	link_answered(((struct agent *)arg)->link);
}

static void on_welcome(void *arg, int64_t lease_ns)
{
	link_welcomed(((struct agent *)arg)->link, lease_ns);
}

/* Its outcomes would stay unrecorded, and its slots empty, for as long as this master is cut off; another may be not. */
static void on_storeless(void *arg)
{
	struct agent *a = arg;
	if (!a->goodbye)
		link_elsewhere(a->link, "the master has not reached its store for long");
}

static void replaced(struct agent *a, const char *text)
{
	log_error("worker", NULL, "another process has taken over the id \"%s\" (%s): stopping what runs, then ending",
		  a->cfg->id, text);
	a->leaving = REPLACED;
	a->exit_code = 1;
	link_stop(a->link);
	attempts_set_draining(a->attempts, true);
	attempts_stop_all(a->attempts, REINS__V1__STOP__REASON__FENCED, "another process has this worker's id");
	loop_mark(a->loop, &a->dirty);
}

static void on_session_end(void *arg, enum status_code code, const char *text)
{
	struct agent *a = arg;
	char why[640];
	if (a->goodbye) {
		loop_timer_set(&a->timer, loop_now_mono_ns(a->loop));
		return;
	}
	snprintf(why, sizeof(why), "%s: %s", status_code_name(code), text);
	switch (code) {
	case STATUS_ABORTED:
		replaced(a, text);
		break;
	case STATUS_DATA_LOSS:
		snprintf(why, sizeof(why), "%s; %zu attempts are kept, and what runs goes on; should their store not come back: "
			 "reins-worker --forget", text, a->attempts->n_held);
		link_drop(a->link, LINK_RARELY, why);
		break;
	case STATUS_UNAUTHENTICATED:
	case STATUS_PERMISSION_DENIED:
	case STATUS_INVALID_ARGUMENT:
	case STATUS_FAILED_PRECONDITION:
	case STATUS_UNIMPLEMENTED:
	case STATUS_RESOURCE_EXHAUSTED:
		link_drop(a->link, LINK_RARELY, why);
		break;
	default:
		link_drop(a->link, LINK_NEXT, why);
		break;
	}
}

/* ---- leaving ---- */

static void stop_loop_when_written(struct agent *a)
{
	int64_t now = loop_now_mono_ns(a->loop);
	if (!a->give_up_mono_ns) {
		a->give_up_mono_ns = now + DISK_NS;
		link_stop(a->link);
	}
	if (!attempts_disk_idle(a->attempts) && now < a->give_up_mono_ns) {
		loop_timer_set(&a->timer, now + 2 * NS_PER_MS);
		return;
	}
	size_t outcomes = a->attempts->n_held - a->attempts->n_busy;
	if (outcomes)
		log_warn("worker", NULL, "%zu outcomes are not answered yet and stay in the spool", outcomes);
	if (a->attempts->n_busy)
		log_info("worker", NULL, "%zu attempts run on under their supervisors", a->attempts->n_busy);
	if (!attempts_disk_idle(a->attempts)) {
		/* Threads that hang there still use what would be freed. */
		log_error("worker", NULL, "the disk of %s has not answered for %d s: leaving without it", a->cfg->state_dir,
			  (int)(DISK_NS / NS_PER_S));
		_exit(1);
	}
	loop_stop(a->loop);
}

/* All that was to be said is on its way first: the stream's end comes behind it. */
static void say_goodbye(struct agent *a)
{
	if (a->goodbye)
		return;
	a->goodbye = true;
	int64_t patience = session_leave(a->session) ? GOODBYE_NS : 0;
	loop_timer_set(&a->timer, loop_now_mono_ns(a->loop) + patience);
}

/* Is it time to go? */
static void on_dirty(struct loop_dirty *d)
{
	struct agent *a = container_of(d, struct agent, dirty);
	if (a->leaving == STAYING || a->leaving == DETACHED || a->attempts->n_busy || a->stays)
		return;
	if (a->leaving == REPLACED || a->at_once || !a->attempts->n_held || (a->hurry && !session_is_up(a->session))) {
		say_goodbye(a);
	} else if (!a->farewell) {
		a->farewell = true;
		loop_timer_set(&a->timer, loop_now_mono_ns(a->loop) + (a->hurry ? HURRY_NS : FAREWELL_NS));
	}
}

static void end_what_runs(struct agent *a, bool now)
{
	a->leaving = ENDING;
	if (now)
		attempts_kill_all(a->attempts, REINS__V1__STOP__REASON__DRAINED, "the worker was ended", false);
	else
		attempts_stop_all(a->attempts, REINS__V1__STOP__REASON__DRAINED, "the worker drained");
	loop_mark(a->loop, &a->dirty);
}

static void detach(struct agent *a)
{
	char text[32];
	num_format_duration(a->detach_for_ns, text, sizeof(text));
	log_info("worker", NULL, "leaving %zu attempts to their supervisors: they wait %s for the next process", a->attempts->n_busy, text);
	a->leaving = DETACHED;
	attempts_detach(a->attempts, a->detach_for_ns);
	session_drain(a->session, REINS__V1__DRAIN_MODE__DRAIN_DETACH, a->detach_for_ns, false);
	say_goodbye(a);
}

/* The time to end by itself is over. */
static void apply_policy(struct agent *a, bool now)
{
	if (a->policy == WORKER_DRAIN_DETACH && a->attempts->n_busy) {
		detach(a);
	} else if (now || a->policy == WORKER_DRAIN_REQUEUE) {
		a->hurry = now;
		end_what_runs(a, now);
	}
}

static void on_timer(struct loop_timer *t)
{
	struct agent *a = container_of(t, struct agent, timer);
	if (a->goodbye)
		stop_loop_when_written(a);
	else if (a->farewell)
		say_goodbye(a);
	else if (a->leaving == DRAINING)
		apply_policy(a, false);
}

static void drain(struct agent *a, enum worker_drain policy, int64_t within_ns)
{
	if (a->leaving != STAYING)
		return;
	bool requeue = policy == WORKER_DRAIN_REQUEUE;
	log_info("worker", NULL, "draining (%s): %zu attempts run", worker_drain_names[policy], a->attempts->n_busy);
	a->leaving = DRAINING;
	a->policy = policy;
	attempts_set_draining(a->attempts, true);
	/* Of a detachment the master hears when it comes: until then a lease is what it was. */
	session_drain(a->session, requeue ? REINS__V1__DRAIN_MODE__DRAIN_REQUEUE : REINS__V1__DRAIN_MODE__DRAIN_WAIT,
		      requeue ? within_ns : 0, false);
	if (policy != WORKER_DRAIN_WAIT)
		loop_timer_set(&a->timer, loop_now_mono_ns(a->loop) + within_ns);
	loop_mark(a->loop, &a->dirty);
}

static void on_master_drain(void *arg, const Reins__V1__Drain *d)
{
	struct agent *a = arg;
	int64_t within = 0;
	if (d->resume) {
		if ((a->leaving != DRAINING && a->leaving != ENDING) || a->signals || a->farewell)
			return;
		a->leaving = STAYING;
		a->stays = false;
		loop_timer_stop(&a->timer);
		attempts_set_draining(a->attempts, false);
		session_drain(a->session, REINS__V1__DRAIN_MODE__DRAIN_MODE_UNSPECIFIED, 0, true);
		return;
	}
	if (a->leaving != STAYING)
		return;
	a->stays = d->mode != REINS__V1__DRAIN_MODE__DRAIN_DETACH;
	bool given = d->within && pb_duration_ns(d->within, &within) == 0 && within >= 0;
	within = min_i64(within, DRAIN_MAX_NS);
	switch (d->mode) {
	case REINS__V1__DRAIN_MODE__DRAIN_REQUEUE:
		drain(a, WORKER_DRAIN_REQUEUE, given ? within : a->cfg->drain_timeout_ns);
		break;
	case REINS__V1__DRAIN_MODE__DRAIN_DETACH:
		if (given)
			a->detach_for_ns = within;
		drain(a, WORKER_DRAIN_DETACH, 0);
		break;
	default:
		drain(a, WORKER_DRAIN_WAIT, 0);
		break;
	}
}

void agent_signal(struct agent *a)
{
	bool stayed = a->stays;
	a->signals++;
	a->stays = false;
	loop_mark(a->loop, &a->dirty);
	if (stayed && a->leaving == ENDING)
		return; /* as soon as nothing runs */
	if (a->leaving == STAYING) {
		drain(a, worker_config_drain(a->cfg), a->cfg->drain_timeout_ns);
	} else if (a->signals == 1 && a->leaving == DRAINING) {
		/* A master's drain goes on as ours. */
		a->policy = worker_config_drain(a->cfg);
		if (a->policy != WORKER_DRAIN_WAIT)
			loop_timer_set(&a->timer, loop_now_mono_ns(a->loop) + a->cfg->drain_timeout_ns);
	} else if (a->leaving == REPLACED) {
		attempts_kill_all(a->attempts, REINS__V1__STOP__REASON__FENCED, "the worker was ended", true);
	} else if (a->leaving == DRAINING && !a->farewell) {
		log_warn("worker", NULL, "second signal: no more waiting for %zu attempts", a->attempts->n_busy);
		apply_policy(a, true);
	} else if (a->leaving != DETACHED) {
		a->at_once = a->hurry || a->farewell;
		a->hurry = true;
		end_what_runs(a, true);
	}
}

void agent_reload(struct agent *a)
{
	link_reload(a->link);
}

static void forget(struct agent *a)
{
	size_t outcomes = a->attempts->n_held - a->attempts->n_busy;
	log_warn("worker", NULL, "giving up what is left here of the store %s: %zu attempts that run, %zu outcomes that no master "
		 "has answered", a->state.store_id[0] ? a->state.store_id : "(none)", a->attempts->n_busy, outcomes);
	a->leaving = ENDING;
	attempts_give_up(a->attempts, "the worker was told to forget it");
	loop_mark(a->loop, &a->dirty);
}

/* ---- the whole ---- */

/* What an earlier process left is what Hello lists: a master is told of nothing that is not known. */
static void on_settle_timer(struct loop_timer *t)
{
	struct agent *a = container_of(t, struct agent, settle_timer);
	int64_t now = loop_now_mono_ns(a->loop);
	if (!attempts_settled(a->attempts) && now < a->settle_until_mono_ns) {
		loop_timer_set(&a->settle_timer, now + SETTLE_LOOK_NS);
		return;
	}
	if (a->cfg->forget)
		forget(a);
	else if (!a->goodbye)
		link_start(a->link);
}

int agent_new(struct loop *loop, const struct worker_config *cfg, const char *supervisor, long open_files, char *err,
	      size_t cap, struct agent **ret)
{
	struct agent *a = xcalloc(1, sizeof(*a));
	a->loop = loop;
	a->cfg = cfg;
	loop_timer_init(&a->timer, loop, on_timer);
	loop_dirty_init(&a->dirty, LOOP_WORK, on_dirty);
	a->detach_for_ns = cfg->detach_for_ns;
	loop_timer_init(&a->settle_timer, loop, on_settle_timer);
	const struct link_config link = {.loop = loop, .servers = &cfg->servers, .tls_ca = cfg->tls_ca,
		.tls_cert = cfg->tls_cert, .tls_key = cfg->tls_key, .token = cfg->token,
		.token_file = cfg->token_file, .insecure = cfg->insecure,
		.on_ready = on_link_ready, .on_lost = on_link_lost, .arg = a};
	if (state_dir_open(&a->state, cfg->state_dir, cfg->id, err, cap) < 0 || link_new(&link, err, cap, &a->link) < 0 ||
	    confine_new(cfg, &a->state, err, cap, &a->confine) < 0) {
		agent_free(a);
		return -1;
	}
	launch_base_init(&a->launch, cfg->id, open_files, a->confine);
	a->spares = spares_new(loop, supervisor, SPARES);
	const struct attempts_config attempts = {.loop = loop, .launch = &a->launch, .confine = a->confine,
		.state = &a->state, .spares = a->spares, .slots = cfg->slots, .kill_grace_ns = cfg->kill_grace_ns,
		.orphan_timeout_ns = cfg->orphan_timeout_ns, .launch_failures = cfg->launch_failures,
		.log_limit = cfg->log_limit, .spool_limit = cfg->spool_limit, .metrics_limit = cfg->metrics_limit,
		.on_news = on_news, .on_fewer = on_fewer, .arg = a};
	if (attempts_new(&attempts, err, cap, &a->attempts) < 0) {
		agent_free(a);
		return -1;
	}
	const struct session_config session = {.loop = loop, .attempts = a->attempts, .state = &a->state, .worker = cfg,
		.resources = &a->confine->resources,
		.on_answer = on_answer, .on_welcome = on_welcome, .on_storeless = on_storeless, .on_drain = on_master_drain,
		.on_end = on_session_end, .arg = a};
	a->session = session_new(&session);
	*ret = a;
	return 0;
}

static void say(void *arg, const char *line)
{
	log_info("worker", NULL, "%s", line);
}

void agent_start(struct agent *a)
{
	log_info("worker", NULL, "worker \"%s\", instance %s, %d slots, state in %s", a->cfg->id, a->state.instance,
		 (int)a->cfg->slots, a->state.path);
	confine_describe(a->confine, say, NULL);
	a->settle_until_mono_ns = loop_now_mono_ns(a->loop) + SETTLE_NS;
	loop_timer_set(&a->settle_timer, 0);
}

int agent_exit_code(const struct agent *a)
{
	return a->exit_code;
}

void agent_free(struct agent *a)
{
	if (!a)
		return;
	loop_timer_stop(&a->timer);
	loop_timer_stop(&a->settle_timer);
	loop_unmark(&a->dirty);
	session_free(a->session);
	a->session = NULL;
	link_free(a->link);
	attempts_free(a->attempts);
	spares_free(a->spares);
	state_dir_close(&a->state);
	launch_base_done(&a->launch);
	confine_free(a->confine);
	free(a);
}
