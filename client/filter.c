/* Flags to a TaskFilter. */
#define _XOPEN_SOURCE 700
#include "client/filter.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "client/show.h"
#include "common/base/clock.h"
#include "common/base/num.h"
#include "common/pb/pb.h"

int filter_parse_time(const char *text, int64_t now_wall_us, int64_t *ret_wall_us)
{
	static const char *const forms[] = { "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%SZ", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d" };
	int64_t ns;
	if (num_parse_duration(text, &ns) == 0 && ns >= 0) {
		*ret_wall_us = now_wall_us - ns / NS_PER_US;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		struct tm tm = { 0 };
		const char *end = strptime(text, forms[i], &tm);
		if (!end || *end)
			continue;
		*ret_wall_us = (int64_t)timegm(&tm) * 1000000;
		return 0;
	}
	return -EINVAL;
}

static int parse_time(struct cli *cli, const char *flag, const char *text, Google__Protobuf__Timestamp *t,
		      Google__Protobuf__Timestamp **ret)
{
	int64_t us;
	if (!text)
		return EXIT_OK;
	if (filter_parse_time(text, clock_wall_us(), &us) < 0)
		return cli_usage(cli, "--%s %.40s: how long ago (90m, 2d), a day (2026-11-29) or a time (2026-11-29T12:00:00Z) is wanted", flag,
				 text);
	pb_timestamp_set(t, us);
	*ret = t;
	return EXIT_OK;
}

static void set_text(char **field, char *value)
{
	if (value)
		*field = value;
}

int filter_make(struct cli *cli, const struct filter_conf *conf, struct filter_args *ret)
{
	Reins__V1__TaskFilter *f = &ret->filter;
	reins__v1__task_filter__init(f);
	if (conf->states.len > FILTER_STATES_MAX)
		return cli_usage(cli, "--state is given more than %d times", FILTER_STATES_MAX);
	for (size_t i = 0; i < conf->states.len; i++)
		if (show_parse_state(conf->states.at[i], &ret->states[i]) < 0)
			return cli_usage(cli, "--state %.40s: pending, running, completed, failed and cancelled are known",
					 conf->states.at[i]);
	f->states = ret->states;
	f->n_states = conf->states.len;
	set_text(&f->queue, conf->queue);
	set_text(&f->name, conf->name);
	set_text(&f->name_prefix, conf->name_prefix);
	set_text(&f->label_selector, conf->label_selector);
	set_text(&f->worker_id, conf->worker);
	set_text(&f->owner, conf->owner);
	if (parse_time(cli, "since", conf->since, &ret->since, &f->created_from) ||
	    parse_time(cli, "until", conf->until, &ret->until, &f->created_before))
		return EXIT_USAGE;
	return EXIT_OK;
}

bool filter_is_given(const struct filter_conf *c)
{
	return c->states.len || c->queue || c->name || c->name_prefix || c->label_selector || c->worker || c->owner || c->since ||
	       c->until;
}
