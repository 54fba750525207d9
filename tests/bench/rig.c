#include "tests/bench/rig.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/clock.h"
#include "common/stream/tls.h"

#define CONNECT_NS (10 * NS_PER_S)

static void on_wake(struct loop_timer *t)
{
	(void)t;
}

static int find_server(struct rig *r)
{
	struct endpoint e;
	char err[200];
	if (endpoint_parse(r->conf.server, 7346, &e, err, sizeof(err))) {
		fprintf(stderr, "load: server: %s\n", err);
		return -1;
	}
	if (e.tls || endpoint_literal(&e, &r->addr)) {
		fprintf(stderr, "load: server: an address in clear text is wanted, as 127.0.0.1:7346\n");
		return -1;
	}
	if (e.is_unix)
		snprintf(r->authority, sizeof(r->authority), "localhost");
	else
		endpoint_format(&e, r->authority, sizeof(r->authority));
	return 0;
}

static void raise_fd_limit(void)
{
	struct rlimit l;
	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = l.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &l);
	}
}

int rig_init(struct rig *r, const char *mode)
{
	for (size_t i = 0; i < r->conf.pids.len; i++)
		if (procs_add(&r->procs, r->conf.pids.at[i])) {
			fprintf(stderr, "load: pid: %s: NAME=PID or NAME=PID+ is wanted\n", r->conf.pids.at[i]);
			return -1;
		}
	procs_add_self(&r->procs);
	if (find_server(r) || (r->conf.tls_dir && mint_new(r->conf.tls_dir, &r->mint)))
		return -1;
	raise_fd_limit();
	int rc = loop_new(&r->loop);
	if (rc) {
		fprintf(stderr, "load: %s\n", strerror(-rc));
		return -1;
	}
	loop_timer_init(&r->wake, r->loop, on_wake);
	hist_init(&r->receipt);
	idset_init(&r->ids, (size_t)r->conf.tasks);
	report_init(&r->report, mode, strcmp(r->conf.output, "json") == 0);
	return 0;
}

int rig_done(struct rig *r)
{
	report_check(&r->report, !r->failure[0], "%s", r->failure);
	bool failed = r->report.failed;
	report_end(&r->report);
	idset_done(&r->ids);
	loop_timer_stop(&r->wake);
	loop_turn(r->loop, false);
	loop_free(r->loop);
	mint_free(r->mint);
	return failed ? 1 : 0;
}

void rig_fail(struct rig *r, const char *fmt, ...)
{
	va_list ap;
	if (r->failure[0])
		return;
	va_start(ap, fmt);
	vsnprintf(r->failure, sizeof(r->failure), fmt, ap);
	va_end(ap);
}

int rig_run(struct rig *r, int64_t ns, bool (*done)(void *arg), void *arg)
{
	int64_t until = clock_mono_ns() + ns;
	while (!r->failure[0] && !(done && done(arg))) {
		int64_t now = clock_mono_ns();
		if (now >= until) {
			loop_timer_stop(&r->wake);
			return done ? -1 : 0;
		}
		loop_timer_set(&r->wake, until);
		loop_turn(r->loop, true);
	}
	loop_timer_stop(&r->wake);
	return r->failure[0] ? -1 : 0;
}

int rig_run_while_moving(struct rig *r, int64_t ns, bool (*done)(void *arg), int64_t (*progress)(void *arg), void *arg)
{
	for (;;) {
		int64_t before = progress(arg);
		if (rig_run(r, ns, done, arg) == 0)
			return 0;
		if (r->failure[0])
			return -1;
		if (progress(arg) == before) {
			rig_fail(r, "nothing moved for %lld s", (long long)(ns / NS_PER_S));
			return -1;
		}
	}
}

void rig_read_procs(struct rig *r, struct procs_reading *ret)
{
	for (size_t i = 0; i < r->procs.n; i++)
		procs_read(&r->procs.at[i], &ret[i]);
}

void rig_note_receipt(struct rig *r, const struct idset_entry *e)
{
	if (e->submitted_mono_ns && e->received_mono_ns && e->submits == 1 && e->dispatches == 1)
		hist_add(&r->receipt, e->received_mono_ns - e->submitted_mono_ns);
}

void rig_check_ids(struct rig *r, int64_t expected)
{
	struct idset_sums s;
	idset_sum(&r->ids, &s);
	report_check(&r->report, s.submitted == expected, "%lld tasks were acknowledged, %lld different ids",
		     (long long)expected, (long long)s.submitted);
	report_check(&r->report, s.unfinished == 0, "%lld submitted tasks have no recorded outcome", (long long)s.unfinished);
	report_check(&r->report, s.twice == 0, "%lld tasks were recorded twice", (long long)s.twice);
	report_check(&r->report, s.unknown == 0, "%lld tasks came that nobody here submitted", (long long)s.unknown);
	json_object_set_new(r->report.root, "submitted", json_integer(s.submitted));
	json_object_set_new(r->report.root, "recorded_once", json_integer(s.recorded - s.twice));
	json_object_set_new(r->report.root, "dispatched_again", json_integer(s.again));
	if (!r->report.json)
		printf("  %lld submitted, %lld recorded once, %lld dispatched more than once\n", (long long)s.submitted,
		       (long long)(s.recorded - s.twice), (long long)s.again);
}

/* ---- connections ---- */

static void on_ready(void *arg)
{
	((struct rig_link *)arg)->ready = true;
}

static void on_closed(void *arg, const char *text)
{
	struct rig_link *l = arg;
	l->ready = false;
	rig_fail(l->rig, "the connection to %s ended: %s", l->rig->authority, text);
}

void rig_link_open(struct rig *r, struct rig_link *l, const char *id)
{
	struct grpc_channel_config cfg = {
		.authority = r->authority,
		.user_agent = "reins-load/" REINS_VERSION,
		.on_ready = on_ready,
		.on_closed = on_closed,
		.arg = l,
	};
	grpc_limits_default(&cfg.limits);
	*l = (struct rig_link){ .rig = r };
	char err[200] = "";
	l->tls = r->mint ? mint_worker(r->mint, id, err, sizeof(err)) : NULL;
	if (r->mint && !l->tls) {
		rig_fail(r, "a certificate for %s: %s", id, err);
		return;
	}
	int rc = grpc_channel_connect(r->loop, (const struct sockaddr *)&r->addr.addr, r->addr.len, l->tls, l->tls ? "localhost" : NULL,
				      clock_mono_ns() + CONNECT_NS, &cfg, &l->channel);
	if (rc)
		rig_fail(r, "connecting to %s: %s", r->authority, strerror(-rc));
}

void rig_link_close(struct rig_link *l)
{
	grpc_channel_free(l->channel);
	tls_context_free(l->tls);
	l->channel = NULL;
	l->tls = NULL;
	l->ready = false;
}

bool rig_links_ready(const struct rig_link *l, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!l[i].ready)
			return false;
	return true;
}
