/* One attempt: the actions of its machine, what its supervisor says, its log and its outcome. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/num.h"
#include "common/log/log.h"
#include "common/pb/pb.h"
#include "worker/attempt_file.h"
#include "worker/attempts_private.h"
#include "worker/outcome.h"

#define STUCK_AFTER_NS (10 * NS_PER_S)

#define log_attempt(level, a, ...) \
	do { \
		char object_[96]; \
		snprintf(object_, sizeof(object_), "task=%s attempt=%d", (a)->task_id, (int)(a)->number); \
		log_line(level, "attempt", object_, __VA_ARGS__); \
	} while (0)

static void set_text(struct attempt *a, const char *text)
{
	if (a->text || !text || !*text)
		return;
	a->text = xstrdup(text);
}

/* ---- what the supervisor says ---- */

static void note_stop(struct attempt *a, const struct sup_status *st)
{
	char text[96], limit[32];
	if (st->stopped_by == SUP_NOT_STOPPED || a->stop_kind != REINS__V1__OUTCOME__KIND__KIND_UNSPECIFIED)
		return;
	a->stop_kind = REINS__V1__OUTCOME__KIND__STOPPED;
	switch (st->stopped_by) {
	case SUP_BY_AGENT:
		a->stop_reason = (Reins__V1__Stop__Reason)st->stop_reason;
		set_text(a, st->text);
		break;
	case SUP_BY_TIMEOUT:
		num_format_duration(a->timeout_ns, limit, sizeof(limit));
		snprintf(text, sizeof(text), "ran longer than its time limit of %s", limit);
		a->stop_kind = REINS__V1__OUTCOME__KIND__TIMED_OUT;
		set_text(a, text);
		break;
	case SUP_BY_LEASE:
		a->stop_reason = REINS__V1__STOP__REASON__LEASE_ENDED;
		set_text(a, "the lease of the exclusive task was about to end");
		break;
	case SUP_BY_ORPHAN:
		a->stop_reason = REINS__V1__STOP__REASON__LEASE_ENDED;
		set_text(a, "no agent came back to it in time");
		break;
	default:
		a->stop_reason = REINS__V1__STOP__REASON__LOCAL;
		set_text(a, "its supervisor was told to end");
		break;
	}
	log_attempt(LOG_INFO, a, "stopping: %s", a->text ? a->text : "asked to");
}

static void note_stuck(struct attempt *a, const struct sup_status *st)
{
	bool before = a->stuck != NULL;
	free(a->stuck);
	a->stuck = st->stuck > 0 ? xstrdup(st->text[0] ? st->text : "processes that SIGKILL does not end") : NULL;
	if (a->stuck)
		log_attempt(LOG_ERROR, a, "can't be ended, and keeps its slot: %s", a->stuck);
	else if (before)
		log_attempt(LOG_INFO, a, "what could not be ended has ended");
}

static void note_exit(struct attempt *a, const struct sup_status *st)
{
	a->finished_wall_us = st->exited_wall_us ? st->exited_wall_us : clock_wall_us();
	note_stop(a, st);
	if (a->launch_failed)
		return;
	a->exited = true;
	a->code = st->exit_code;
	a->signal = st->signal;
}

static void note_log(struct attempt *a, const struct sup_status *st)
{
	if (a->fenced)
		return;
	logs_grown(&a->log, st->log_end, st->log_dropped);
	attempts_log_news(a);
}

/* The end, with or without a supervisor that says so. */
static void on_empty(struct attempt *a, const struct sup_status *st, bool swept)
{
	int64_t end = swept && a->dir_fd >= 0 ? max_i64(st->log_end, log_end_of_files(a->dir_fd)) : st->log_end;
	bool never_ran = a->own_failure || (swept && !a->lost && !a->exited && !a->launch_failed);
	a->own_failure |= never_ran;
	a->oom_limit = st->oom_kills > 0 ? a->holding.memory_bytes : -1;
	free(a->stuck);
	a->stuck = NULL;
	run_free(a->run);
	a->run = NULL;
	if (!a->fenced && !never_ran)
		logs_close(&a->log, end);
	if (!a->finished_wall_us)
		a->finished_wall_us = clock_wall_us();
	attempt_event(a, a->fenced ? EVENT_EMPTY_FENCED : never_ran ? EVENT_EMPTY_OWN : EVENT_EMPTY);
}

static void on_died(struct attempt *a, const struct sup_status *st)
{
	/* Its file `status` is written before the program is started: without one there never was a program. */
	bool started = st->phase != 0 || a->damaged;
	if (started)
		log_attempt(LOG_WARN, a, "its supervisor is dead: ending what is left of it");
	note_stop(a, st);
	if (!started)
		set_text(a, "its supervisor ended before it had the job");
	a->lost = started && !a->exited && !a->launch_failed;
	attempt_event(a, EVENT_DIED);
}

static void on_run_event(void *arg, enum run_event event, const struct sup_status *st)
{
	struct attempt *a = arg;
	switch (event) {
	case RUN_EXEC:
		a->started_wall_us = st->started_wall_us;
		attempt_event(a, EVENT_EXEC_OK);
		break;
	case RUN_LAUNCH_FAILED:
		a->own_failure = st->launch_own && st->stopped_by == SUP_NOT_STOPPED;
		set_text(a, st->text);
		attempt_event(a, EVENT_EXEC_FAILED);
		break;
	case RUN_LOG:
		note_log(a, st);
		break;
	case RUN_STOPPING:
		note_stop(a, st);
		attempt_event(a, EVENT_STOPPING);
		break;
	case RUN_STUCK:
		note_stuck(a, st);
		break;
	case RUN_EXIT:
		note_exit(a, st);
		attempt_event(a, EVENT_EXIT);
		break;
	case RUN_DIED:
		on_died(a, st);
		break;
	case RUN_EMPTY:
		on_empty(a, st, false);
		break;
	case RUN_SWEPT:
		on_empty(a, st, true);
		break;
	}
}

void attempt_init(struct attempt *a, struct attempts *set, const struct uuid *task, int32_t number)
{
	struct list *const nodes[] = {&a->all_node, &a->say_node, &a->log_node, &a->metrics_node,
		&a->outcome_node, &a->start_node, &a->metrics_due_node};
	for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
		list_init(nodes[i]);
	a->set = set;
	a->task = *task;
	uuid_format(task, a->task_id);
	a->number = number;
	a->dir_fd = -1;
	a->kill_grace_ns = set->cfg.kill_grace_ns;
	a->oom_limit = -1;
	logs_init(&a->log, &set->log_reader);
	metrics_reader_init(&a->metrics);
}

/* ---- actions ---- */

static struct run_host host_of(const struct attempts *s)
{
	return (struct run_host){s->cfg.loop, s->cfg.spares, s->sweeper};
}

/* When the supervisor is to act without being told. */
static void deadlines(const struct attempt *a, struct sup_deadlines *ret)
{
	const struct attempts *s = a->set;
	int64_t now = clock_boot_ns(), lease_end = s->s_boot_ns == LEASE_NEVER ? now : s->s_boot_ns + a->lease.length_ns;
	*ret = (struct sup_deadlines){
		.term_boot_ns = a->exclusive ? lease_term_due(&a->lease, s->s_boot_ns) : SUP_NEVER,
		.kill_boot_ns = a->exclusive ? lease_kill_due(&a->lease, s->s_boot_ns) : SUP_NEVER,
		/* While no master answers we are here all the same: our own end begins the count, not the lease's. */
		.orphan_boot_ns = max_i64(max_i64(lease_end, now) + s->cfg.orphan_timeout_ns, a->exclusive ? 0 : s->detach_boot_ns),
	};
}

void attempt_renew(struct attempt *a)
{
	struct sup_deadlines d;
	/* Of an exclusive one that an earlier agent started it is not known yet how long it may run; its supervisor knows. */
	if (!a->run || (a->exclusive && a->set->s_boot_ns == LEASE_NEVER))
		return;
	deadlines(a, &d);
	run_deadlines(a->run, d.term_boot_ns, d.kill_boot_ns, d.orphan_boot_ns);
}

static int open_dir(struct attempt *a)
{
	a->dir_fd = openat(a->set->cfg.state->attempts_fd, a->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (a->dir_fd < 0)
		return -errno;
	logs_open(&a->log, a->dir_fd);
	return 0;
}

static int write_record(struct attempt *a)
{
	struct attempt_record rec = {.number = a->number, .exclusive = a->exclusive, .lease_ns = a->lease.length_ns,
		.timeout_ns = a->timeout_ns, .kill_grace_ns = a->kill_grace_ns};
	memcpy(rec.task_id, a->task_id, sizeof(rec.task_id));
	snprintf(rec.store_id, sizeof(rec.store_id), "%s", a->set->cfg.state->store_id);
	rec.devices = a->devices;
	rec.n_devices = a->n_devices;
	rec.holds = resources_words(&a->set->cfg.confine->resources, &a->holding, &rec.n_holds);
	int r = attempt_file_write(a->dir_fd, &rec);
	resources_words_free(rec.holds, rec.n_holds);
	return r;
}

static int start_run(struct attempt *a, const struct launch *l)
{
	struct attempts *s = a->set;
	struct launch_times times = {.timeout_ns = a->timeout_ns, .kill_grace_ns = a->kill_grace_ns,
		.stuck_after_ns = STUCK_AFTER_NS};
	struct run_host host = host_of(s);
	struct run_job job = {.dir_fd = a->dir_fd, .stdin_fd = l->stdin_fd};
	logs_split(s->log_limit, &times.log_head_bytes, &times.log_ring_bytes);
	deadlines(a, &job.deadlines);
	job.job_fd = launch_pack(l, &times);
	if (job.job_fd < 0)
		return job.job_fd;
	int r = run_start(&host, a->dir, &job, on_run_event, a, &a->run);
	close(job.job_fd);
	return r;
}

/* -errno; `why` is filled in then. *ret_own: the worker's own fault. */
static int launch(struct attempt *a, char *why, size_t cap, bool *ret_own)
{
	struct attempts *s = a->set;
	struct launch l;
	_cleanup_free_ char *dir = NULL;
	int r = state_dir_make_attempt(s->cfg.state, a->dir);
	if (r == 0 && asprintf(&dir, "%s/attempts/%s", s->cfg.state->path, a->dir) < 0) {
		dir = NULL;
		r = -ENOMEM;
	}
	if (r == 0)
		r = open_dir(a);
	if (r == 0)
		r = write_record(a);
	if (r == 0)
		r = launch_make(&l, s->cfg.launch, a->work, dir);
	if (r < 0) {
		snprintf(why, cap, "the worker could not start it: %s", strerror(-r));
		return r;
	}
	r = confine_launch(s->cfg.confine, a->dir, &a->holding, &l, why, cap, ret_own);
	if (r == 0) {
		r = start_run(a, &l);
		if (r < 0) {
			snprintf(why, cap, "the worker could not start it: %s", strerror(-r));
			(void)!confine_end(s->cfg.confine, a->dir); /* nobody was in there */
		}
	}
	launch_done(&l);
	return r;
}

static void do_spawn(struct attempt *a)
{
	char why[768];
	bool own = true;
	int r = launch(a, why, sizeof(why), &own);
	dispatch_unref(a->dispatch);
	a->dispatch = NULL;
	a->work = NULL;
	if (r == 0)
		return;
	set_text(a, why);
	if (own) {
		a->own_failure = true;
		attempt_event(a, EVENT_SPAWN_FAILED);
		return;
	}
	/* As if a supervisor had tried. */
	attempt_event(a, EVENT_EXEC_FAILED);
	attempt_event(a, EVENT_EXIT);
	a->finished_wall_us = clock_wall_us();
	logs_close(&a->log, 0);
	attempt_event(a, EVENT_EMPTY);
}

static void do_started(struct attempt *a)
{
	if (!a->adopted)
		launch_health_good(&a->set->health);
	attempts_say(a, SAY_STARTED);
	attempts_metrics_begin(a->set);
}

static void do_launch_failed(struct attempt *a)
{
	a->launch_failed = true;
	/* The program's, so the worker did its part. */
	if (!a->own_failure && !a->adopted)
		launch_health_good(&a->set->health);
}

static void remove_dir(struct attempt *a)
{
	struct attempts *s = a->set;
	char rest[STATE_ATTEMPT_NAME_MAX];
	if (a->dir[0] && state_dir_put_aside(s->cfg.state, a->dir, rest) == 0)
		disk_remove_tree(s->disk, s->cfg.state->attempts_fd, rest);
	a->dir[0] = '\0';
}

static void do_report(struct attempt *a)
{
	struct attempts *s = a->set;
	char oom[128];
	confine_oom_text(a->oom_limit, oom, sizeof(oom));
	const struct outcome_facts facts = {
		.task_id = a->task_id, .attempt = a->number, .launch_failed = a->launch_failed, .lost = a->lost,
		.stop_kind = a->stop_kind, .stop_reason = a->stop_reason,
		.exited = a->exited, .code = a->code, .signal = a->signal, .text = a->text,
		.oom_text = a->oom_limit < 0 ? NULL : oom, .started_wall_us = a->started_wall_us, .finished_wall_us = a->finished_wall_us,
		.log_end = a->log.end,
	};
	a->outcome = outcome_pack(&facts, s->cfg.state->attempts_fd, a->dir, s->result_max, s->error_max);
	if (!a->outcome)
		abort(); /* about a MiB: half a worker is worse than a restarted one */
	log_attempt(LOG_DEBUG, a, "ended: kind %d, code %d, signal %d", (int)outcome_kind(&facts), a->code, a->signal);
	attempts_metrics_last(a);
	a->spool_id = spool_add(s->spool, a->outcome);
	list_push_back(&s->spooling, &a->outcome_node);
	disk_spool_dirty(s->disk);
	attempts_wake_waiting(s);
	s->cfg.on_fewer(s->cfg.arg);
}

static void do_refuse(struct attempt *a)
{
	struct attempts *s = a->set;
	const char *text = a->text ? a->text : "stopped before it was started";
	if (a->own_failure) {
		log_attempt(LOG_WARN, a, "not started: %s", text);
		if (!a->adopted && launch_health_bad(&s->health, text, loop_now_mono_ns(s->cfg.loop)))
			log_error("worker", NULL, "%s; no tasks are taken until one can be started again", s->health.why);
	}
	if (s->session_up)
		attempts_say_refused(s, a->task_id, a->number, a->own_failure ? REINS__V1__REFUSED_ATTEMPT__CAUSE__LAUNCH
				     : REINS__V1__REFUSED_ATTEMPT__CAUSE__STOPPED, text);
	remove_dir(a);
	attempts_forget(a);
}

static void do_forget(struct attempt *a)
{
	struct attempts *s = a->set;
	remove_dir(a);
	if (a->spool_id) {
		spool_answered(s->spool, a->spool_id);
		disk_spool_dirty(s->disk);
	}
	attempts_forget(a);
}

void attempt_event(struct attempt *a, enum attempt_event event)
{
	struct attempt_step step = attempt_step(a->state, event);
	if (step.action == ACTION_ILLEGAL)
		log_attempt(LOG_ERROR, a, "event %s can't come while %s", attempt_event_name(event),
			    attempt_state_name(a->state));
	assert(step.action != ACTION_ILLEGAL);
	if (attempt_state_holds_slot(a->state) && !attempt_state_holds_slot(step.next)) {
		a->set->n_busy--;
		resources_give_back(&a->set->cfg.confine->resources, &a->holding);
	}
	a->state = step.next;
	switch (step.action) {
	case ACTION_ILLEGAL:
	case ACTION_NONE:
	case ACTION_LOST: /* on_died has said so */
		break;
	case ACTION_SPAWN:
		do_spawn(a);
		break;
	case ACTION_REFUSE:
		do_refuse(a);
		break;
	case ACTION_FORGET:
		do_forget(a);
		break;
	case ACTION_STARTED:
		do_started(a);
		break;
	case ACTION_LAUNCH_FAILED:
		do_launch_failed(a);
		break;
	case ACTION_TERM:
		run_stop(a->run, (int)a->ask_reason, a->kill_grace_ns, a->ask_text);
		break;
	case ACTION_KILL:
		run_stop(a->run, (int)a->ask_reason, 0, a->ask_text);
		break;
	case ACTION_REPORT:
		do_report(a);
		break;
	}
}

/* ---- the set's calls ---- */

void attempt_stop(struct attempt *a, enum attempt_event event, Reins__V1__Stop__Reason reason, const char *text)
{
	a->ask_reason = reason;
	a->ask_text = text;
	attempt_event(a, event);
	a->ask_text = NULL;
}

void attempt_hurry(struct attempt *a)
{
	if (a->state == ATTEMPT_STOPPING || a->state == ATTEMPT_CLEARING)
		attempt_event(a, EVENT_KILL);
}

void attempt_fence(struct attempt *a)
{
	if (a->state == ATTEMPT_GONE)
		return;
	if (attempt_state_holds_slot(a->state) && !a->fenced)
		log_attempt(LOG_WARN, a, "fenced: it is no longer this worker's");
	else if (a->state == ATTEMPT_ENDED && !a->fenced)
		log_attempt(LOG_WARN, a, "fenced: its outcome came when it was no longer this worker's");
	a->fenced = true;
	attempt_stop(a, EVENT_FENCED, REINS__V1__STOP__REASON__FENCED, "it is no longer this worker's");
}

bool attempt_try_start(struct attempt *a)
{
	struct attempts *s = a->set;
	if (a->older && attempt_state_holds_slot(a->older->state))
		return false;
	if (a->exclusive && !lease_may_start(&a->lease, s->s_boot_ns, clock_boot_ns()))
		return false;
	state_dir_attempt_name(a->task_id, a->number, a->dir);
	attempt_event(a, EVENT_START);
	return true;
}

static void adopt_holding(struct attempt *a, const struct attempt_record *rec)
{
	struct resources *have = &a->set->cfg.confine->resources;
	if (!resources_adopt(have, rec->holds, rec->n_holds, rec->devices, rec->n_devices, &a->holding))
		log_attempt(LOG_WARN, a, "it holds resources that this worker no longer has");
	a->devices = resources_devices(have, &a->holding);
	a->n_devices = a->holding.n_gpus;
}

int attempt_adopt(struct attempt *a)
{
	struct attempts *s = a->set;
	struct attempt_record rec = {0};
	char why[200];
	a->adopted = true;
	int r = open_dir(a);
	if (r < 0)
		return r;
	r = attempt_file_read(a->dir_fd, a->task_id, a->number, &rec, why, sizeof(why));
	/* Without the file and without a supervisor's it was never started, which run.c finds out. */
	bool never = r == -ENOENT && faccessat(a->dir_fd, "supervisor", F_OK, AT_SYMLINK_NOFOLLOW) < 0;
	a->damaged = r < 0 && !never;
	if (a->damaged) {
		log_attempt(LOG_ERROR, a, "the file `%s` of its directory can't be used: %s; the attempt is lost", ATTEMPT_FILE, why);
		set_text(a, "the worker's notes about it are damaged");
	}
	a->exclusive = rec.exclusive;
	a->timeout_ns = rec.timeout_ns;
	a->kill_grace_ns = r == 0 ? rec.kill_grace_ns : s->cfg.kill_grace_ns;
	lease_rule_set(&a->lease, rec.lease_ns, a->kill_grace_ns);
	adopt_holding(a, &rec);
	attempt_record_done(&rec);
	struct run_host host = host_of(s);
	r = run_adopt(&host, a->dir, a->dir_fd, !a->damaged, on_run_event, a, &a->run);
	if (r == 0)
		attempt_event(a, EVENT_ADOPT);
	return r;
}

int attempt_reopen(struct attempt *a)
{
	metrics_reader_init(&a->metrics);
	return open_dir(a);
}

void attempt_outcome_ready(struct attempt *a)
{
	struct attempts *s = a->set;
	a->spooled = true;
	list_remove(&a->outcome_node);
	if (!s->session_up)
		return;
	if (logs_all_sent(&a->log) && metrics_reader_is_done(&a->metrics))
		list_push_back(&s->outcomes, &a->outcome_node);
	else if (!logs_all_sent(&a->log))
		attempts_log_news(a);
	attempts_news(s);
}
