/* Glue.  Ways out:
 *   drain     no more tasks; what runs may end until drain-timeout, then it is stopped; then the outcomes' answers are
 *             waited for, FAREWELL_NS at most (they are in the spool); then the stream is closed in order, and what
 *             the disk has to do is waited for; exit 0
 *   hurry     a second signal: as a drain whose time is over, with SIGKILL, and without waiting for answers
 *   replaced  another instance has this worker's id: what runs is stopped, outcomes are nobody's business; exit 1 */
#include "worker/agent.h"

#include <stdio.h>
#include <string.h>

#include "common/base/num.h"
#include "common/log/log.h"
#include "common/pb/pb.h"
#include "worker/attempts.h"
#include "worker/confine.h"
#include "worker/link.h"
#include "worker/session.h"

#define FAREWELL_NS (5 * NS_PER_S)
#define GOODBYE_NS NS_PER_S     /* for the master to end a stream that we ended */
#define DISK_NS (10 * NS_PER_S) /* for the spool's last batch and removals under way */

enum leaving { STAYING, DRAINING, ENDING, REPLACED };

struct agent {
	struct loop *loop;
	const struct worker_config *cfg;
	struct state_dir state;
	struct confine *confine;
	struct launch_base launch;
	struct attempts *attempts;
	struct session *session;
	struct link *link;
	enum leaving leaving;
	int signals;
	bool hurry;
	bool farewell;               /* nothing runs any more */
	bool goodbye;                /* nothing is to be said any more */
	int64_t give_up_mono_ns;     /* for the disk */
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
	if (a->attempts->n_held)
		log_warn("worker", NULL, "%zu outcomes are not answered yet and stay in the spool", a->attempts->n_held);
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
	if (a->leaving == STAYING || a->attempts->n_busy)
		return;
	if (a->leaving == REPLACED || a->hurry || !a->attempts->n_held) {
		say_goodbye(a);
	} else if (!a->farewell) {
		a->farewell = true;
		loop_timer_set(&a->timer, loop_now_mono_ns(a->loop) + FAREWELL_NS);
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

static void on_timer(struct loop_timer *t)
{
	struct agent *a = container_of(t, struct agent, timer);
	if (a->goodbye)
		stop_loop_when_written(a);
	else if (a->farewell)
		say_goodbye(a);
	else if (a->leaving == DRAINING)
		end_what_runs(a, false);
}

/* within_ns < 0: as long as it takes. */
static void drain(struct agent *a, Reins__V1__DrainMode mode, int64_t within_ns)
{
	if (a->leaving != STAYING)
		return;
	char text[32];
	num_format_duration(max_i64(within_ns, 0), text, sizeof(text));
	log_info("worker", NULL, "draining: %zu attempts run, they have %s", a->attempts->n_busy,
		 within_ns < 0 ? "as long as it takes" : text);
	a->leaving = DRAINING;
	attempts_set_draining(a->attempts, true);
	session_drain(a->session, mode, max_i64(within_ns, 0), false);
	if (within_ns >= 0)
		loop_timer_set(&a->timer, loop_now_mono_ns(a->loop) + within_ns);
	loop_mark(a->loop, &a->dirty);
}

static void on_master_drain(void *arg, const Reins__V1__Drain *d)
{
	struct agent *a = arg;
	int64_t within = a->cfg->drain_timeout_ns;
	if (d->resume) {
		if (a->leaving != DRAINING || a->signals || a->farewell)
			return;
		a->leaving = STAYING;
		loop_timer_stop(&a->timer);
		attempts_set_draining(a->attempts, false);
		session_drain(a->session, REINS__V1__DRAIN_MODE__DRAIN_MODE_UNSPECIFIED, 0, true);
		return;
	}
	if (d->within && pb_duration_ns(d->within, &within) < 0)
		within = a->cfg->drain_timeout_ns;
	/* Programs end with this process, so there is nothing to detach from: they are waited for. */
	if (d->mode == REINS__V1__DRAIN_MODE__DRAIN_REQUEUE)
		drain(a, d->mode, min_i64(within, 3600 * NS_PER_S));
	else
		drain(a, REINS__V1__DRAIN_MODE__DRAIN_WAIT, -1);
}

void agent_signal(struct agent *a)
{
	a->signals++;
	if (a->leaving == STAYING) {
		drain(a, REINS__V1__DRAIN_MODE__DRAIN_REQUEUE, a->cfg->drain_timeout_ns);
	} else if (a->signals == 1 && a->leaving == DRAINING) {
		loop_timer_set(&a->timer, loop_now_mono_ns(a->loop) + a->cfg->drain_timeout_ns);
	} else if (a->leaving == REPLACED) {
		attempts_kill_all(a->attempts, REINS__V1__STOP__REASON__FENCED, "the worker was ended", true);
	} else {
		log_warn("worker", NULL, "second signal: ending %zu attempts at once", a->attempts->n_busy);
		a->hurry = true;
		end_what_runs(a, true);
	}
}

void agent_reload(struct agent *a)
{
	link_reload(a->link);
}

/* ---- the whole ---- */

int agent_new(struct loop *loop, const struct worker_config *cfg, const char *exec_path, long open_files, char *err,
	      size_t cap, struct agent **ret)
{
	struct agent *a = xcalloc(1, sizeof(*a));
	a->loop = loop;
	a->cfg = cfg;
	loop_timer_init(&a->timer, loop, on_timer);
	loop_dirty_init(&a->dirty, LOOP_WORK, on_dirty);
	const struct link_config link = {.loop = loop, .servers = &cfg->servers, .tls_ca = cfg->tls_ca,
		.tls_cert = cfg->tls_cert, .tls_key = cfg->tls_key, .token = cfg->token,
		.on_ready = on_link_ready, .on_lost = on_link_lost, .arg = a};
	if (state_dir_open(&a->state, cfg->state_dir, cfg->id, err, cap) < 0 || link_new(&link, err, cap, &a->link) < 0 ||
	    confine_new(cfg, &a->state, err, cap, &a->confine) < 0) {
		agent_free(a);
		return -1;
	}
	launch_base_init(&a->launch, cfg->id, open_files, a->confine);
	const struct attempts_config attempts = {.loop = loop, .launch = &a->launch, .confine = a->confine, .state = &a->state,
		.slots = cfg->slots, .kill_grace_ns = cfg->kill_grace_ns, .log_limit = cfg->log_limit,
		.log_memory = cfg->log_memory, .spool_limit = cfg->spool_limit,
		.metrics_limit = cfg->metrics_limit,
		.on_news = on_news, .on_fewer = on_fewer, .arg = a};
	if (attempts_new(&attempts, err, cap, &a->attempts) < 0) {
		agent_free(a);
		return -1;
	}
	const struct session_config session = {.loop = loop, .attempts = a->attempts, .state = &a->state, .worker = cfg,
		.resources = &a->confine->resources,
		.on_answer = on_answer, .on_welcome = on_welcome, .on_drain = on_master_drain, .on_end = on_session_end, .arg = a};
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
	link_start(a->link);
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
	loop_unmark(&a->dirty);
	session_free(a->session);
	a->session = NULL;
	link_free(a->link);
	attempts_free(a->attempts);
	state_dir_close(&a->state);
	launch_base_done(&a->launch);
	confine_free(a->confine);
	free(a);
}
