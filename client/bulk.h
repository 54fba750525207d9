/* cancel and retry of all tasks that match: call after call until the server says that it was all. */
#ifndef REINS_CLIENT_BULK_H
#define REINS_CLIENT_BULK_H

#include "client/filter.h"

struct bulk_conf {
	struct filter_conf which;
	bool all, dry_run;
	int64_t limit; /* tasks at most; 0: all */
};

/* Rows of a table of settings: `conf` has a bulk_conf as its member `bulk`. */
#define BULK_SETTINGS(conf)                                                                                       \
	{ "all", SETTING_BOOL, offsetof(conf, bulk.all), .help = "All tasks, without any of the flags above." },  \
	{ "dry-run", SETTING_BOOL, offsetof(conf, bulk.dry_run), .help = "Say how many it would be, and do nothing." }, \
	{ "limit", SETTING_INT, offsetof(conf, bulk.limit), NULL, "0", 0, INT64_MAX / 2, .help = "At most so many tasks; 0: all." }

/* `words`: what the numbers of the reply mean, by their place. */
struct bulk_words {
	const char *words[6]; /* NULL after the last */
};
struct bulk_counts {
	int64_t matched, of[6];
};

struct bulk {
	struct cli *cli;
	const struct bulk_conf *conf;
	struct bulk_words words, dry_words;
	/* One call for at most `limit` tasks from the token on. The exit code; else the counts, and the reply for pb_free. */
	int (*call)(struct bulk *b, const Reins__V1__TaskFilter *filter, int32_t limit, char *token, struct bulk_counts *ret_counts,
		    char **ret_token, void **ret_reply);
	void *arg;
};

/* Whether tasks are named by flags: then no ids may be. Usage is checked; EXIT_OK, or the exit code. */
int bulk_run(struct bulk *b) MUST_CHECK;
bool bulk_is_given(const struct bulk_conf *conf);

#endif
