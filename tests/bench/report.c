#include "tests/bench/report.h"

#include <stdarg.h>
#include <stdio.h>

void report_init(struct report *r, const char *mode, bool json)
{
	*r = (struct report){ .root = json_object(), .json = json };
	json_object_set_new(r->root, "mode", json_string(mode));
	if (!json)
		printf("%s\n", mode);
}

void report_number(struct report *r, const char *name, double value, const char *unit)
{
	json_object_set_new(r->root, name, json_real(value));
	if (r->json)
		return;
	int digits = value >= 1000 || value <= -1000 ? 0 : value >= 10 ? 1 : 3;
	printf("  %-34s %12.*f %s\n", name, digits, value, unit);
	fflush(stdout);
}

void report_hist(struct report *r, const char *name, const struct hist *h)
{
	static const struct {
		const char *name;
		double q;
	} quantiles[] = { { "p50", 0.5 }, { "p90", 0.9 }, { "p99", 0.99 }, { "p99.9", 0.999 } };
	json_t *o = json_object();
	double ms[ARRAY_LEN(quantiles)], max = (double)h->max / 1e6;
	for (size_t i = 0; i < ARRAY_LEN(quantiles); i++) {
		ms[i] = (double)hist_quantile(h, quantiles[i].q) / 1e6;
		json_object_set_new(o, quantiles[i].name, json_real(ms[i]));
	}
	json_object_set_new(o, "max", json_real(max));
	json_object_set_new(o, "n", json_integer((json_int_t)h->count));
	json_object_set_new(r->root, name, o);
	if (r->json)
		return;
	printf("  %-34s p50 %.3f  p90 %.3f  p99 %.3f  p99.9 %.3f  max %.3f ms  (n %llu)\n", name, ms[0], ms[1], ms[2], ms[3],
	       max, (unsigned long long)h->count);
	fflush(stdout);
}

void report_check(struct report *r, bool ok, const char *fmt, ...)
{
	char text[400];
	va_list ap;
	if (ok)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_t *list = json_object_get(r->root, "wrong");
	if (!list) {
		list = json_array();
		json_object_set_new(r->root, "wrong", list);
	}
	json_array_append_new(list, json_string(text));
	fprintf(stderr, "WRONG: %s\n", text);
	r->failed = true;
}

void report_procs(struct report *r, const struct procs *p, const struct procs_reading *before,
		  const struct procs_reading *after, int64_t tasks)
{
	json_t *cpu = json_object(), *rss = json_object();
	for (size_t i = 0; i < p->n; i++) {
		double s = after[i].cpu_s - before[i].cpu_s, per = tasks ? s * 1e5 / (double)tasks : 0;
		double mb = (double)after[i].rss_bytes / 1048576;
		json_object_set_new(cpu, p->at[i].name, json_real(per));
		json_object_set_new(rss, p->at[i].name, json_real(mb));
		if (!r->json)
			printf("  %-12s CPU %7.2f s, %6.2f s per 100,000 tasks, memory %7.1f MiB\n", p->at[i].name, s, per, mb);
	}
	json_object_set_new(r->root, "cpu_s_per_100k", cpu);
	json_object_set_new(r->root, "memory_mib", rss);
}

void report_end(struct report *r)
{
	if (r->json) {
		json_dumpf(r->root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
		putchar('\n');
	}
	json_decref(r->root);
	r->root = NULL;
}
