/* The flags that say which tasks: of list, watch, cancel and retry. */
#ifndef REINS_CLIENT_FILTER_H
#define REINS_CLIENT_FILTER_H

#include "client/cli.h"
#include "reins/v1/task_service.pb-c.h"

#define FILTER_STATES_MAX 8

struct filter_conf {
	struct setting_list states;
	char *queue, *name, *name_prefix, *label_selector, *worker, *owner, *since, *until;
};

/* Rows of a table of settings, for `conf` whose member `which` is a filter_conf. */
#define FILTER_SETTINGS(conf, which)                                                                                          \
	{ "state", SETTING_LIST, offsetof(conf, which.states), "STATE", .split = true,                               \
	  .help = "pending, running, completed, failed or cancelled.", .group = "Which" },                           \
	{ "queue", SETTING_STRING, offsetof(conf, which.queue), "QUEUE", .help = "Of this queue." },                 \
	{ "name", SETTING_STRING, offsetof(conf, which.name), "NAME", .help = "With this name." },                   \
	{ "name-prefix", SETTING_STRING, offsetof(conf, which.name_prefix), "TEXT", .help = "Whose name begins so." }, \
	{ "label-selector", SETTING_STRING, offsetof(conf, which.label_selector), "SELECTOR",                        \
	  .help = "With such labels, as kubectl has it: a=b,c!=d,e in (x,y),f notin (z),g,!h. Also -l." },           \
	{ "owner", SETTING_STRING, offsetof(conf, which.owner), "NAME", .help = "Submitted by this one." },          \
	{ "worker", SETTING_STRING, offsetof(conf, which.worker), "ID", .help = "Whose newest attempt is on this worker." }, \
	{ "since", SETTING_STRING, offsetof(conf, which.since), "TIME",                                              \
	  .help = "Submitted then or later: 90m, 2d (so long ago), 2026-11-29, 2026-11-29T12:00:00Z (UTC)." },       \
	{ "until", SETTING_STRING, offsetof(conf, which.until), "TIME", .help = "Submitted before that." }

struct filter_args {
	Reins__V1__TaskFilter filter;
	Reins__V1__Task__State states[FILTER_STATES_MAX];
	Google__Protobuf__Timestamp since, until;
};
/* EXIT_OK with ret->filter set, which points into *ret and the settings; else EXIT_USAGE, and it was said why. */
int filter_make(struct cli *cli, const struct filter_conf *conf, struct filter_args *ret) MUST_CHECK;
/* Whether any of the flags was given. */
bool filter_is_given(const struct filter_conf *conf);
/* "2d", "2026-11-29T12:00:00Z": a time, of which the first is so long before now. -EINVAL. */
int filter_parse_time(const char *text, int64_t now_wall_us, int64_t *ret_wall_us) MUST_CHECK;

#endif
