/* /metrics: what there is of this program and its process, and the families of the other files.  Labels are of fixed sets
 * (kinds of operations, methods, causes), or bounded by a setting; never simply what clients choose. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "server/monitor/families.h"
#include "server/monitor/process.h"

static void program(struct exposition *x, const struct monitor *m)
{
	const struct engine *e = m->rpc->engine;
	char labels[160];
	exposition_family(x, "reins_build_info", GAUGE, "Always 1; the version, and what it works on.");
	snprintf(labels, sizeof(labels), "version=\"" REINS_VERSION "\",store=\"%s\",lease=\"%s\"", m->rpc->store_kind, m->rpc->lease_kind);
	exposition_int(x, labels, 1);
	exposition_one(x, "reins_ready", GAUGE, "Whether /readyz says so.", engine_ready(e) && !m->rpc->draining);
	exposition_one(x, "reins_incarnation", GAUGE, "Of this master in the store; 0: not taken in yet.", engine_incarnation(e));
}

static void loop(struct exposition *x, const struct loop *l, int64_t stalls)
{
	struct loop_stats s;
	loop_stats(l, &s);
	exposition_family(x, "reins_loop_busy_seconds_total", COUNTER, "How long the event loop did not sleep.");
	exposition_seconds(x, NULL, s.busy_ns);
	exposition_family(x, "reins_loop_turn_seconds", HISTOGRAM,
			  "How long each turn of the event loop was busy: so long did what came meanwhile wait.");
	exposition_histogram(x, NULL, &s.turns);
	exposition_family(x, "reins_loop_timer_late_seconds", HISTOGRAM,
			  "How long after its deadline each timer was served; up to a millisecond on an idle loop.");
	exposition_histogram(x, NULL, &s.late);
	exposition_one(x, "reins_loop_stalls_total", COUNTER, "Times the loop stood still for more than a tenth of the lease.", stalls);
}

static void process(struct exposition *x, int64_t started_wall_us)
{
	struct process_stats s;
	process_stats_read(&s);
	exposition_family(x, "process_cpu_seconds_total", COUNTER, "Time of the processor, in user and kernel.");
	exposition_seconds(x, NULL, s.cpu_ns);
	if (s.resident_bytes >= 0) {
		exposition_one(x, "process_resident_memory_bytes", GAUGE, "Memory in use.", s.resident_bytes);
		exposition_one(x, "process_virtual_memory_bytes", GAUGE, "Address space in use.", s.virtual_bytes);
	}
	exposition_one(x, "reins_buffer_bytes", GAUGE, "Of it in buffers of connections, calls and statements, used or kept for later.",
		       buf_held_bytes());
	if (s.open_fds >= 0)
		exposition_one(x, "process_open_fds", GAUGE, "Descriptors that are open.", s.open_fds);
	if (s.max_fds >= 0)
		exposition_one(x, "process_max_fds", GAUGE, "Descriptors that it may open.", s.max_fds);
	exposition_one(x, "process_start_time_seconds", GAUGE, "When it was started.", started_wall_us / 1000000);
}

int monitor_metrics(struct monitor *m, struct buf *out)
{
	struct exposition x = { .out = out };
	int64_t now = loop_now_mono_ns(m->rpc->loop);
	counts_want(&m->counts, engine_store(m->rpc->engine), now);
	program(&x, m);
	counts_show(&m->counts, &x, now);
	families_work(&x, m);
	families_net(&x, m);
	loop(&x, m->rpc->loop, engine_stalls(m->rpc->engine));
	process(&x, m->rpc->started_wall_us);
	return x.failed ? -ENOBUFS : 0;
}
