/* Modes `e2e` and `soak`: submitting and working in one process, every task counted. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "tests/bench/fleet.h"
#include "tests/bench/submitter.h"

#define STALL_NS (20 * NS_PER_S)
#define SAMPLES_MAX 4096
#define SAMPLE_NS (NS_PER_S / 2)

struct sample {
	double tasks, mib;
};

struct e2e {
	struct rig *rig;
	struct submitter *submitter;
	struct fleet *fleet;
	/* soak */
	struct loop_timer sampler;
	struct sample samples[SAMPLES_MAX];
	size_t n_samples;
};

static bool submitted(void *arg)
{
	return submitter_done(((struct e2e *)arg)->submitter);
}

static bool welcomed(void *arg)
{
	return fleet_ready(((struct e2e *)arg)->fleet);
}

static bool all_recorded(void *arg)
{
	struct e2e *e = arg;
	return submitter_done(e->submitter) && fleet_sums(e->fleet)->recorded >= submitter_sums(e->submitter)->acked;
}

static int64_t progress(void *arg)
{
	struct e2e *e = arg;
	return submitter_sums(e->submitter)->acked + fleet_sums(e->fleet)->recorded + fleet_sums(e->fleet)->dispatched;
}

static double per_second(int64_t n, int64_t ns)
{
	return ns > 0 ? (double)n * 1e9 / (double)ns : 0;
}

static int prepare(struct e2e *e, struct rig *r)
{
	const struct submitter_config cfg = {
		.connections = (size_t)r->conf.connections,
		.in_flight = (size_t)r->conf.in_flight,
		.batch = (size_t)r->conf.batch,
		.tasks = r->conf.tasks ? r->conf.tasks : 100000,
		.rate = (double)r->conf.rate,
	};
	e->rig = r;
	e->fleet = fleet_new(r, "load", (size_t)r->conf.workers, (size_t)r->conf.slots);
	e->submitter = submitter_new(r, &cfg);
	return e->submitter ? 0 : -1;
}

static int start_workers(struct e2e *e)
{
	fleet_start(e->fleet);
	if (rig_run(e->rig, 20 * NS_PER_S, welcomed, e)) {
		rig_fail(e->rig, "not all workers were welcomed");
		return -1;
	}
	return 0;
}

/* Tasks are queued before any worker is there; the drain counts from the workers' connecting. */
static int fill_then_drain(struct e2e *e)
{
	struct report *rep = &e->rig->report;
	submitter_start(e->submitter);
	if (rig_run_while_moving(e->rig, STALL_NS, submitted, progress, e))
		return -1;
	const struct submitter_sums *s = submitter_sums(e->submitter);
	report_number(rep, "fill_per_s", per_second(s->acked, s->last_reply_mono_ns - s->first_send_mono_ns), "tasks/s");
	int64_t begin = clock_mono_ns();
	if (start_workers(e) || rig_run_while_moving(e->rig, STALL_NS, all_recorded, progress, e))
		return -1;
	int64_t end = fleet_sums(e->fleet)->last_ack_mono_ns;
	report_number(rep, "drain_per_s", per_second(s->acked, end - begin), "tasks/s");
	return 0;
}

static int concurrent(struct e2e *e)
{
	if (start_workers(e))
		return -1;
	submitter_start(e->submitter);
	return rig_run_while_moving(e->rig, STALL_NS, all_recorded, progress, e);
}

static void report_run(struct e2e *e)
{
	struct rig *r = e->rig;
	const struct submitter_sums *s = submitter_sums(e->submitter);
	const struct fleet_sums *f = fleet_sums(e->fleet);
	int64_t whole = f->last_ack_mono_ns - s->first_send_mono_ns;
	report_number(&r->report, "tasks", (double)s->acked, "accepted");
	report_number(&r->report, "tasks_per_s", per_second(f->recorded, whole), "tasks/s, first submit to last outcome");
	report_number(&r->report, "tasks_per_message", f->messages_in ? (double)(2 * f->dispatched) / (double)f->messages_in : 0,
		      "to the workers");
	report_hist(&r->report, "call_ms", &s->latency);
	report_hist(&r->report, "receipt_ms", &r->receipt);
	report_procs(&r->report, &r->procs, r->before, r->after, s->acked);
	rig_check_ids(r, s->acked);
	report_check(&r->report, f->duplicate + f->fenced == 0, "%lld outcomes DUPLICATE, %lld FENCED", (long long)f->duplicate,
		     (long long)f->fenced);
}

static void finish(struct e2e *e)
{
	submitter_free(e->submitter);
	fleet_free(e->fleet);
	free(e);
}

int load_e2e(struct rig *r)
{
	struct e2e *e = xcalloc(1, sizeof(*e));
	if (prepare(e, r) == 0) {
		rig_read_procs(r, r->before);
		int rc = strcmp(r->conf.order, "fill") == 0 ? fill_then_drain(e) : concurrent(e);
		rig_read_procs(r, r->after);
		(void)rc; /* a run that failed is reported as far as it came */
		report_run(e);
	}
	finish(e);
	return 0;
}

/* ---- soak ---- */

static void on_sample(struct loop_timer *t)
{
	struct e2e *e = container_of(t, struct e2e, sampler);
	if (e->n_samples == SAMPLES_MAX)
		return;
	e->samples[e->n_samples++] = (struct sample){ (double)fleet_sums(e->fleet)->recorded,
						      (double)procs_rss(e->rig->procs.at[0].pid) / 1048576 };
	loop_timer_set(t, clock_mono_ns() + SAMPLE_NS);
}

/* Least squares over the samples from `from` on: MiB for each 100,000 tasks. */
static double slope(const struct e2e *e, size_t from)
{
	double n = 0, x = 0, y = 0, xx = 0, xy = 0;
	for (size_t i = from; i < e->n_samples; i++) {
		double a = e->samples[i].tasks / 1e5, b = e->samples[i].mib;
		n++, x += a, y += b, xx += a * a, xy += a * b;
	}
	double div = n * xx - x * x;
	return div > 0 ? (n * xy - x * y) / div : 0;
}

int load_soak(struct rig *r)
{
	if (r->conf.pids.len == 0) {
		rig_fail(r, "soak wants --pid reinsd=PID");
		return -1;
	}
	struct e2e *e = xcalloc(1, sizeof(*e));
	loop_timer_init(&e->sampler, r->loop, on_sample);
	if (prepare(e, r) == 0) {
		rig_read_procs(r, r->before);
		loop_timer_set(&e->sampler, clock_mono_ns());
		(void)concurrent(e);
		loop_timer_stop(&e->sampler);
		rig_read_procs(r, r->after);
		report_run(e);
		/* The first half fills caches, pools and maps, which grow by doubling. */
		size_t warm = e->n_samples / 2;
		json_t *list = json_array();
		for (size_t i = 0; i < e->n_samples; i++)
			json_array_append_new(list, json_pack("[f,f]", e->samples[i].tasks, e->samples[i].mib));
		json_object_set_new(r->report.root, "rss_samples", list);
		if (e->n_samples > warm) {
			report_number(&r->report, "rss_warm_mib", e->samples[warm].mib, "MiB at half");
			report_number(&r->report, "rss_end_mib", e->samples[e->n_samples - 1].mib, "MiB at the end");
		}
		report_number(&r->report, "rss_slope_mib_per_100k", slope(e, warm), "MiB per 100,000 tasks, second half");
	}
	finish(e);
	return 0;
}
