/* Mode `sessions`: what an idle worker costs the master. */
#include <stdio.h>

#include "tests/bench/fleet.h"

#define EACH_NS (30 * NS_PER_MS) /* over TLS, on a machine with other work */

static bool ready(void *arg)
{
	return fleet_ready(arg);
}

int load_sessions(struct rig *r)
{
	struct fleet *f = fleet_new(r, "idle", (size_t)r->conf.workers, (size_t)r->conf.slots);
	struct procs_reading bare[PROCS_MAX];
	rig_read_procs(r, bare);
	fleet_start(f);
	if (rig_run(r, 60 * NS_PER_S + r->conf.workers * EACH_NS, ready, f)) {
		rig_fail(r, "not all sessions were welcomed");
	} else {
		rig_run(r, NS_PER_S, NULL, NULL);
		int64_t beats = fleet_sums(f)->heartbeats, acks = fleet_sums(f)->acks;
		rig_read_procs(r, r->before);
		rig_run(r, r->conf.duration_ns, NULL, NULL);
		rig_read_procs(r, r->after);
		double seconds = (double)r->conf.duration_ns / 1e9, n = (double)r->conf.workers;
		report_number(&r->report, "sessions", n, "idle");
		report_number(&r->report, "heartbeats_per_s", (double)(fleet_sums(f)->heartbeats - beats) / seconds, "1/s");
		for (size_t i = 0; i < r->procs.n; i++) {
			char name[64];
			snprintf(name, sizeof(name), "%s_kib_per_session", r->procs.at[i].name);
			report_number(&r->report, name, (double)(r->after[i].rss_bytes - bare[i].rss_bytes) / 1024 / n, "KiB");
			snprintf(name, sizeof(name), "%s_cpu_percent", r->procs.at[i].name);
			report_number(&r->report, name, (r->after[i].cpu_s - r->before[i].cpu_s) * 100 / seconds, "% of a core");
		}
		beats = fleet_sums(f)->heartbeats - beats;
		acks = fleet_sums(f)->acks - acks;
		report_check(&r->report, acks >= beats - r->conf.workers, "%lld heartbeats, %lld answers", (long long)beats,
			     (long long)acks);
	}
	fleet_free(f);
	return 0;
}
