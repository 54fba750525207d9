/* Mode `submit`: how fast tasks are accepted, and how long a call takes. */
#include <stdio.h>

#include "tests/bench/submitter.h"

#define STALL_NS (20 * NS_PER_S)

static bool done(void *arg)
{
	return submitter_done(arg);
}

static int64_t progress(void *arg)
{
	const struct submitter_sums *s = submitter_sums(arg);
	return s->acked + s->refused;
}

int load_submit(struct rig *r)
{
	const struct submitter_config cfg = {
		.connections = (size_t)r->conf.connections,
		.in_flight = (size_t)r->conf.in_flight,
		.batch = (size_t)r->conf.batch,
		.tasks = r->conf.tasks,
		.duration_ns = r->conf.tasks ? 0 : r->conf.duration_ns,
		.rate = (double)r->conf.rate,
	};
	r->track = false;
	struct submitter *s = submitter_new(r, &cfg);
	if (!s)
		return -1;
	rig_read_procs(r, r->before);
	submitter_start(s);
	rig_run_while_moving(r, STALL_NS, done, progress, s);
	rig_read_procs(r, r->after);
	const struct submitter_sums *sums = submitter_sums(s);
	double seconds = (double)(sums->last_reply_mono_ns - sums->first_send_mono_ns) / 1e9;
	report_number(&r->report, "tasks", (double)sums->acked, "accepted");
	report_number(&r->report, "submits_per_s", seconds > 0 ? (double)sums->acked / seconds : 0, "tasks/s");
	if (r->conf.rate) {
		report_number(&r->report, "refused", (double)sums->refused, "tasks");
		report_hist(&r->report, "generator_late_ms", &sums->late);
	}
	report_hist(&r->report, "call_ms", &sums->latency);
	report_procs(&r->report, &r->procs, r->before, r->after, sums->acked);
	submitter_free(s);
	return 0;
}
