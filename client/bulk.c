/* The loop over the calls, and their sum in words. */
#include "client/bulk.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/output.h"
#include "common/pb/pb.h"

#define CALL_MAX 1000

bool bulk_is_given(const struct bulk_conf *conf)
{
	return conf->all || conf->dry_run || conf->limit || filter_is_given(&conf->which);
}

static void print(const struct bulk *b, const struct bulk_counts *sum)
{
	const struct bulk_words *words = b->conf->dry_run ? &b->dry_words : &b->words;
	char text[300] = "";
	size_t len = 0;
	for (size_t i = 0; i < ARRAY_LEN(words->words) && words->words[i]; i++)
		if (sum->of[i] || i == 0)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%" PRId64 " %s", len ? ", " : "", sum->of[i], words->words[i]);
	out_line("%s", text);
}

int bulk_run(struct bulk *b)
{
	struct filter_args args;
	struct bulk_counts sum = { 0 };
	char *token = xstrdup("");
	if (!b->conf->all && !filter_is_given(&b->conf->which)) {
		free(token);
		return cli_usage(b->cli, "task ids are wanted, or flags that say which tasks; --all means all of them");
	}
	if (b->conf->all && filter_is_given(&b->conf->which)) {
		free(token);
		return cli_usage(b->cli, "--all goes with none of the flags that say which tasks");
	}
	int code = filter_make(b->cli, &b->conf->which, &args);
	int64_t left = b->conf->limit ? b->conf->limit : INT64_MAX;
	while (!code) {
		struct bulk_counts counts = { 0 };
		void *reply;
		char *next;
		code = b->call(b, &args.filter, (int32_t)min_i64(left, CALL_MAX), token, &counts, &next, &reply);
		if (code)
			break;
		if (b->cli->json)
			out_json(reply, true);
		free(token);
		token = xstrdup(next);
		pb_free(reply);
		sum.matched += counts.matched;
		for (size_t i = 0; i < ARRAY_LEN(sum.of); i++)
			sum.of[i] += counts.of[i];
		left -= counts.matched;
		if (!*token || left <= 0)
			break;
	}
	if (!b->cli->json && (!code || sum.matched))
		print(b, &sum);
	if (!code && *token && left <= 0)
		cli_note(b->cli, "there may be more: --limit ended it");
	free(token);
	return code;
}
