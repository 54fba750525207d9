/* What the scheduler does, and the store and the lease table under it. */
#include <stdio.h>

#include "server/core/core_view.h"
#include "server/lease/lease.h"
#include "server/monitor/families.h"

/* ---- store and lease table ---- */

/* "reins_store" or "reins_lease_table" */
static void dependency(struct exposition *x, const char *prefix, const char *what, const struct availability *a, int64_t now)
{
	char name[64], help[160];
	snprintf(name, sizeof(name), "%s_up", prefix);
	snprintf(help, sizeof(help), "Whether %s can be reached and takes writes.", what);
	exposition_one(x, name, GAUGE, help, a->up);
	snprintf(name, sizeof(name), "%s_changed_timestamp_seconds", prefix);
	snprintf(help, sizeof(help), "When %s went or came back last.", what);
	exposition_one(x, name, GAUGE, help, a->since_wall_us / 1000000);
	snprintf(name, sizeof(name), "%s_outages_total", prefix);
	snprintf(help, sizeof(help), "How often %s was found to be gone.", what);
	exposition_one(x, name, COUNTER, help, a->outages);
	snprintf(name, sizeof(name), "%s_down_seconds_total", prefix);
	snprintf(help, sizeof(help), "For how long %s was gone.", what);
	exposition_family(x, name, COUNTER, help);
	exposition_seconds(x, NULL, availability_down_ns(a, now));
}

static void store(struct exposition *x, const struct store *s)
{
	static const char *const results[STORE_RESULTS] = { "ok", "unavailable", "refused" };
	char labels[96];
	exposition_one(x, "reins_store_queued_operations", GAUGE, "Operations that the store has not answered yet.", s->queued);
	exposition_one(x, "reins_store_queued_operations_limit", GAUGE, "Above it further ones are refused.", s->max_queued);
	exposition_one(x, "reins_store_queued_bytes", GAUGE, "What they hold.", s->queued_bytes);
	exposition_one(x, "reins_store_queued_bytes_limit", GAUGE, "Above it further ones are refused.", s->max_queued_bytes);
	exposition_one(x, "reins_store_queue_full_total", COUNTER, "Operations refused for that.", s->refused_full);
	exposition_family(x, "reins_store_operations_total", COUNTER, "Answered operations of the store by kind and result.");
	for (int k = 0; k < STORE_KINDS; k++)
		for (int r = 0; r < STORE_RESULTS; r++) {
			snprintf(labels, sizeof(labels), "kind=\"%s\",result=\"%s\"", store_kind_name((enum store_kind)k), results[r]);
			exposition_int(x, labels, s->results[k][r]);
		}
	exposition_family(x, "reins_store_batches_total", COUNTER, "Statements or transactions that they were gathered into.");
	for (int k = 0; k < STORE_KINDS; k++) {
		snprintf(labels, sizeof(labels), "kind=\"%s\"", store_kind_name((enum store_kind)k));
		exposition_int(x, labels, s->batches_done[k]);
	}
	exposition_family(x, "reins_store_operation_seconds", HISTOGRAM, "From asking the store to its answer, by kind.");
	for (int k = 0; k < STORE_KINDS; k++) {
		snprintf(labels, sizeof(labels), "kind=\"%s\"", store_kind_name((enum store_kind)k));
		exposition_histogram(x, labels, &s->took[k]);
	}
}

static void lease_table(struct exposition *x, const struct lease *l)
{
	static const char *const ops[LEASE_OPS] = {
		[LEASE_PREEMPT] = "preempt", [LEASE_OWN] = "own",     [LEASE_RELEASE] = "release",
		[LEASE_BEAT] = "beat",	     [LEASE_QUERY] = "query", [LEASE_SCAN] = "scan",
	};
	struct lease_stats s;
	char labels[64];
	lease_stats(l, &s);
	exposition_one(x, "reins_lease_table_pending_commands", GAUGE, "Commands that Redis has not answered yet.", s.pending);
	exposition_one(x, "reins_lease_table_dropped_commands_total", COUNTER,
		       "Commands left out: Redis was down, refused them, or the limit was reached. Heartbeats put right what they "
		       "would have.", s.dropped);
	exposition_one(x, "reins_lease_table_refused_commands_total", COUNTER, "Commands that Redis answered with an error.", s.refused);
	exposition_one(x, "reins_lease_table_timeouts_total", COUNTER, "Connections given up because no reply came in time.", s.timeouts);
	exposition_one(x, "reins_lease_table_connects_total", COUNTER, "Connections that became usable.", s.connects);
	exposition_one(x, "reins_lease_table_missing_keys_total", COUNTER,
		       "Heartbeats that found no key of their worker. Each worker's first does; more: keys are evicted or were "
		       "flushed.", s.missing);
	exposition_family(x, "reins_lease_table_command_seconds", HISTOGRAM, "From sending a command to Redis to its reply, by what it does.");
	for (size_t i = 0; i < LEASE_OPS; i++) {
		snprintf(labels, sizeof(labels), "operation=\"%s\"", ops[i]);
		exposition_histogram(x, labels, &s.took[i]);
	}
}

/* ---- tasks and workers ---- */

static void workers(struct exposition *x, const struct core_counts *c)
{
	exposition_one(x, "reins_workers", GAUGE, "Workers that this master judges, connected or not.", c->workers);
	exposition_one(x, "reins_worker_sessions", GAUGE, "Workers connected to this master.", c->connected);
	exposition_one(x, "reins_worker_slots", GAUGE, "Their slots.", c->slots);
	exposition_one(x, "reins_worker_slots_used", GAUGE, "Of these in use or reserved.", c->slots_used);
}

static void by_label(struct exposition *x, const char *label, const char *const *words, const int64_t *values, size_t n)
{
	char labels[96];
	for (size_t i = 0; i < n; i++)
		if (words[i]) {
			snprintf(labels, sizeof(labels), "%s=\"%s\"", label, words[i]);
			exposition_int(x, labels, values[i]);
		}
}

static void attempts(struct exposition *x, const struct engine_stats *s)
{
	static const char *const outcomes[STORE_EXPIRED + 1] = {
		[STORE_SUCCEEDED] = "succeeded",   [STORE_PROGRAM_FAILED] = "program_failed", [STORE_LAUNCH_FAILED] = "launch_failed",
		[STORE_STOPPED] = "stopped",	   [STORE_TIMED_OUT] = "timed_out",	      [STORE_WORKER_LOST] = "worker_lost",
		[STORE_GIVEN_BACK] = "given_back", [STORE_NOT_TAKEN] = "not_taken",
	};
	static const char *const states[STORE_CANCELLED + 1] = {
		[0] = "taken_back", [STORE_COMPLETED] = "completed", [STORE_FAILED] = "failed", [STORE_CANCELLED] = "cancelled",
	};
	static const char *const causes[CORE_CAUSE_NEVER_SENT + 1] = {
		[CORE_CAUSE_WORKER_LOST] = "worker_lost", [CORE_CAUSE_NOT_LISTED] = "not_listed", [CORE_CAUSE_REFUSED] = "refused",
		[CORE_CAUSE_RECALLED] = "recalled",	  [CORE_CAUSE_NEVER_SENT] = "never_sent",
	};
	static const char *const verdicts[CORE_RECORD_UNAVAILABLE + 1] = {
		[CORE_RECORD_RECORDED] = "recorded", [CORE_RECORD_DUPLICATE] = "duplicate", [CORE_RECORD_FENCED] = "fenced",
		[CORE_RECORD_UNAVAILABLE] = "unavailable",
	};
	exposition_one(x, "reins_tasks_submitted_total", COUNTER, "Tasks that were created here.", s->submitted);
	exposition_family(x, "reins_tasks_ended_total", COUNTER,
			  "Tasks that ended here, by state; taken_back: failed at the lost-limit, or cancelled when taken back.");
	by_label(x, "state", states, s->tasks_ended, ARRAY_LEN(states));
	exposition_one(x, "reins_dispatches_total", COUNTER, "Attempts that were sent to a worker.", s->dispatched);
	exposition_one(x, "reins_redispatches_total", COUNTER, "Of these, after an earlier attempt of the same task.", s->dispatched_again);
	exposition_family(x, "reins_attempts_ended_total", COUNTER, "Attempts whose end was recorded here, by how they ended.");
	by_label(x, "outcome", outcomes, s->attempts_ended, ARRAY_LEN(outcomes));
	exposition_family(x, "reins_outcome_reports_total", COUNTER,
			  "Outcomes that workers reported, by what they were told. unavailable: they will report it again.");
	by_label(x, "verdict", verdicts, s->reports, ARRAY_LEN(verdicts));
	exposition_family(x, "reins_take_backs_total", COUNTER, "Attempts taken back from their worker, by cause.");
	by_label(x, "cause", causes, s->take_backs, ARRAY_LEN(causes));
	exposition_one(x, "reins_adopted_attempts_total", COUNTER, "Attempts that a new session listed and that go on.", s->adopted);
	exposition_one(x, "reins_fenced_attempts_total", COUNTER, "Attempts that a new session listed and that must end.", s->fenced);
}

static void dispatch(struct exposition *x, const struct core_timings *t, const struct engine_stats *s)
{
	exposition_family(x, "reins_task_queue_wait_seconds", HISTOGRAM,
			  "From a task's submission to its first dispatch. The delay that run_at asks for is in it.");
	exposition_histogram(x, NULL, &s->queue_wait);
	exposition_family(x, "reins_dispatch_wait_seconds", HISTOGRAM,
			  "From when this master knew that a task is ready (its submit was committed, its retry came due, its row was "
			  "read) to its dispatch. The wait for a worker is in it.");
	exposition_histogram(x, NULL, &t->ready);
	exposition_family(x, "reins_dispatch_seconds", HISTOGRAM,
			  "From the choice of a worker to the dispatch: its slot was taken and the row claimed or inserted.");
	exposition_histogram(x, NULL, &t->chosen);
}

void families_work(struct exposition *x, const struct monitor *m)
{
	const struct engine *e = m->rpc->engine;
	int64_t now = loop_now_mono_ns(m->rpc->loop);
	struct core_counts c;
	core_counts(engine_core(e), &c);
	dependency(x, "reins_store", "the store", engine_store_state(e), now);
	store(x, engine_store(e));
	dependency(x, "reins_lease_table", "the lease table", engine_lease_state(e), now);
	lease_table(x, m->lease);
	exposition_one(x, "reins_ready_tasks", GAUGE, "Tasks in this master's window that wait for a worker.", c.ready);
	exposition_one(x, "reins_dispatching_tasks", GAUGE, "Tasks on their way to a worker.", c.in_flight);
	exposition_one(x, "reins_running_attempts", GAUGE, "Attempts that this master's workers hold.", c.running);
	workers(x, &c);
	exposition_one(x, "reins_worker_queued_bytes", GAUGE, "Logs, metrics and outcomes of workers that wait for the store.",
		       m->rpc->held_bytes);
	exposition_one(x, "reins_worker_queued_bytes_limit", GAUGE, "Above it a worker may have no more on the way than its share.",
		       m->rpc->limits.held_bytes);
	attempts(x, engine_stats(e));
	dispatch(x, core_timings(engine_core(e)), engine_stats(e));
}
