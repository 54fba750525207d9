/* The columns of both stores side by side.  They have the same names but for times (µs since 1970 and …_us in SQLite,
 * timestamptz and …_at in Postgres) and these:
 *
 *   ended.seq                 only in SQLite, where it is the task's rowid
 *   worker.instance_session   only in Postgres: no later than session, so 1 says "this instance is known"
 *   worker.hello, hello_sent  stay (the latter only in Postgres): the order of Hellos begins anew as well
 *   log_task, meta.bytes      only in SQLite: sums over `log`
 *   event                     stays: who watches lists again
 *   master                    stays: masters of the new store begin anew
 *
 * Values mean the same in both: state, outcome, stream, neg_priority, null for a task without retry policy. */
#include "server/move/move_impl.h"

#define POLICY "lease_ttl_ns, max_attempts, backoff_initial_ns, backoff_max_ns, backoff_multiplier, queue"
#define CORE "task_id, seq, neg_priority, attempt, failures, losses, cpu, memory, gpus, exclusive, " POLICY
#define CORE_KINDS "u84444484b8488ft"

#define ASKS "handler, custom"
#define PLACE "instance, session, devices, log_dropped, cause, oom_killed"

#define TASK(created, run, expires)                                                                                 \
	"id, seq, " created ", " run ", neg_priority, cpu, memory, gpus, exclusive, " POLICY ", name, owner, "       \
	"idempotency_key, labels, list_spec, spec, " ASKS ", " expires
#define READY(expires) CORE ", open_worker, " ASKS ", " expires
#define DELAYED(due, expires) CORE ", " due ", " ASKS ", " expires
#define RUNNING(dispatched, started, cancel)                                                                         \
	CORE ", worker, instance, session, lease_ns, " dispatched ", " started ", " cancel ", " ASKS ", devices, cause"
#define ENDED(dispatched, started, finished, cancel)                                                                 \
	"task_id, state, outcome, attempt, failures, losses, reported, " dispatched ", " started ", " finished ", "  \
	cancel ", exit_code, signal, log_end, result_too_large, worker, error, result, lease_ns, " PLACE
#define ATTEMPT(dispatched, started, finished)                                                                       \
	"task_id, attempt, outcome, reported, counted, lease_ns, " dispatched ", " started ", " finished ", "        \
	"exit_code, signal, log_end, worker, error, " PLACE
#define WORKER(known, opened, heard, detached)                                                                                 \
	"id, instance, session, " known ", " opened ", master, info, drain_mode, drain_within_ns, drain_reason, " heard ", " detached
#define IDEMPOTENCY "key, task_id, hash"
#define QUEUE(paused) "name, " paused ", reason"
#define LOG "task_id, attempt, off, stream, data, dropped"
#define METRIC "task_id, attempt, number, point"

#define FROM(columns, table, key) \
	"SELECT " columns " FROM " table " ORDER BY " key " LIMIT -1 OFFSET ?1", "SELECT count(*) FROM " table

const struct move_table move_tables[MOVE_TABLES] = {
	{"task", TASK("created_at", "run_at", "expires_at"), "u8Ww4484b8488fttttyyyttw",
	 FROM(TASK("created_us", "run_at_us", "expires_us"), "task", "seq"), false},
	{"attempt", ATTEMPT("dispatched_at", "started_at", "finished_at"), "u42bb8WwW448tyu8t8tb",
	 FROM(ATTEMPT("dispatched_us", "started_us", "finished_us"), "attempt", "task_id, attempt"), false},
	{"ended", ENDED("dispatched_at", "started_at", "finished_at", "cancel_requested_at"), "u22444bwwWw4488tyy8u8t8tb",
	 FROM(ENDED("dispatched_us", "started_us", "finished_us", "cancel_us"), "ended", "seq"), false},
	{"log", LOG, "u482y8", FROM(LOG, "log", "task_id, attempt, off"), true},
	{"metric", METRIC, "u48y", FROM(METRIC, "metric", "task_id, attempt, number"), true},
	{"idempotency", IDEMPOTENCY, "tuy", FROM(IDEMPOTENCY, "idempotency", "key"), false},
	{"ready", READY("expires_at"), CORE_KINDS "tttw", FROM(READY("expires_us"), "ready", "queue, neg_priority, seq"), false},
	{"delayed", DELAYED("due_at", "expires_at"), CORE_KINDS "Wttw",
	 FROM(DELAYED("due_us", "expires_us"), "delayed", "task_id"), false},
	{"running", RUNNING("dispatched_at", "started_at", "cancel_requested_at"), CORE_KINDS "tu88Wwwtttt",
	 FROM(RUNNING("dispatched_us", "started_us", "cancel_us"), "running", "task_id"), false},
	{"worker", WORKER("instance_session", "opened_at", "heard_at", "detached_until"), "tu88Wty28tww",
	 FROM(WORKER("1", "opened_us", "heard_us", "detached_us"), "worker", "id"), false},
	{"queue", QUEUE("paused_at"), "twt", FROM(QUEUE("paused_us"), "queue", "name"), false},
};
