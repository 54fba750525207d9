/* Mode `worker`: sessions that take what comes, for a submitter elsewhere. */
#include "common/base/clock.h"
#include "tests/bench/fleet.h"

static bool ready(void *arg)
{
	return fleet_ready(arg);
}

int load_worker(struct rig *r)
{
	struct fleet *f = fleet_new(r, "load", (size_t)r->conf.workers, (size_t)r->conf.slots);
	r->track = false;
	fleet_start(f);
	if (rig_run(r, 20 * NS_PER_S, ready, f) == 0) {
		rig_read_procs(r, r->before);
		rig_run(r, r->conf.duration_ns, NULL, NULL);
		rig_read_procs(r, r->after);
		const struct fleet_sums *s = fleet_sums(f);
		double seconds = (double)(s->last_ack_mono_ns - s->first_dispatch_mono_ns) / 1e9;
		report_number(&r->report, "dispatched", (double)s->dispatched, "tasks");
		report_number(&r->report, "recorded", (double)s->recorded, "tasks");
		report_number(&r->report, "tasks_per_s", seconds > 0 ? (double)s->recorded / seconds : 0, "tasks/s");
		report_check(&r->report, s->duplicate + s->fenced == 0, "%lld outcomes DUPLICATE, %lld FENCED",
			     (long long)s->duplicate, (long long)s->fenced);
		report_procs(&r->report, &r->procs, r->before, r->after, s->recorded);
	} else {
		rig_fail(r, "not all sessions were welcomed");
	}
	fleet_free(f);
	return 0;
}
