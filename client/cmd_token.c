/* reins token: makes tokens, and keeps the file that `reinsd --tokens-file` reads.
 *
 * The file is read and checked whole, and replaced by a new one (rename), under a lock on its folder: reinsd never sees a
 * half of it.  Nothing goes over the network. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli.h"
#include "client/output.h"
#include "common/auth/tokens.h"
#include "common/base/buf.h"
#include "common/base/clock.h"

#define NOBODY "# No entries: nobody may call.\n"

struct conf {
	char *name, *worker, *file, *queues;
	struct setting_list roles;
	int64_t expires;
};

static const struct setting table[] = {
	{ "name", SETTING_STRING, offsetof(struct conf, name), "NAME", NULL, .group = "new",
	  .help = "Whom it is for: owner of the tasks, word in the audit. Several tokens may have one name." },
	{ "role", SETTING_LIST, offsetof(struct conf, roles), "ROLE", NULL, .split = true,
	  .help = "reader, submitter, worker, operator or admin; several with commas. See docs/security.md." },
	{ "expires", SETTING_DURATION, offsetof(struct conf, expires), NULL, NULL, NS_PER_S, INT64_C(36500) * 86400 * NS_PER_S,
	  .help = "From now on, as in 90d. Not given: never." },
	{ "worker", SETTING_STRING, offsetof(struct conf, worker), "ID", NULL,
	  .help = "With the role worker: the id to work under, or its beginning and a *. Not given: NAME." },
	{ "queues", SETTING_STRING, offsetof(struct conf, queues), "NAMES", NULL,
	  .help = "Only for these queues, with commas between. Not given: for all." },
	{ "file", SETTING_STRING, offsetof(struct conf, file), "FILE", NULL, .group = "All",
	  .help = "The tokens file. `new` without it prints the line that belongs there. Afterwards: kill -HUP reinsd." },
};

static const struct settings_program program = {
	.name = "reins token",
	.summary = "Makes a token, which is printed once and kept nowhere, and the line for reinsd's --tokens-file,\n"
		   "which holds no secret. `list` shows the file's entries, `revoke ID…` takes some away.",
	.usage = "reins token new --name NAME --role ROLE[,ROLE…] [flags]\n"
		 "reins token list --file FILE\n"
		 "reins token revoke ID… --file FILE",
	.examples = "For example:\n"
		    "  reins token new --name alice --role submitter --file /etc/reins/tokens\n"
		    "  reins token new --name gpu-1 --role worker --expires 90d --file /etc/reins/tokens\n",
	.table = table,
	.n = ARRAY_LEN(table),
};

/* ---- the file ---- */

struct place {
	char folder[4096], fresh[4200];
	int lock;
	struct stat old;
	bool exists;
};

static int cannot(const struct cli *cli, const char *what)
{
	cli_note(cli, "%s: %s", what, strerror(errno));
	return EXIT_OTHER;
}

static int lock_place(struct cli *cli, const char *file, struct place *p)
{
	char copy[4096];
	snprintf(copy, sizeof(copy), "%s", file);
	snprintf(p->folder, sizeof(p->folder), "%s", dirname(copy));
	snprintf(p->fresh, sizeof(p->fresh), "%s.new", file);
	p->lock = open(p->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->lock < 0 || flock(p->lock, LOCK_EX) < 0)
		return cannot(cli, p->folder);
	p->exists = stat(file, &p->old) == 0; /* now: who had the lock before may have made it */
	if (!p->exists && errno != ENOENT)
		return cannot(cli, file);
	return EXIT_OK;
}

/* What is in the file; nothing where there is none. */
static int read_text(struct cli *cli, const char *file, const struct place *p, struct buf *b)
{
	FILE *f = p->exists ? fopen(file, "re") : NULL;
	if (!f)
		return p->exists ? cannot(cli, file) : EXIT_OK;
	char piece[4096];
	size_t n;
	int rc = 0;
	while (rc == 0 && (n = fread(piece, 1, sizeof(piece), f)) > 0)
		rc = buf_add(b, piece, n);
	bool failed = ferror(f);
	int code = failed ? cannot(cli, file) : EXIT_OK;
	fclose(f);
	if (failed)
		return code;
	if (rc) {
		cli_note(cli, "%s: larger than %zu bytes", file, TOKENS_FILE_MAX);
		return EXIT_OTHER;
	}
	if (buf_len(b) && buf_head(b)[buf_len(b) - 1] != '\n') {
		cli_note(cli, "%s: " TOKENS_CUT "; nothing was changed", file);
		return EXIT_OTHER;
	}
	return EXIT_OK;
}

static bool write_all(int fd, const struct buf *b)
{
	for (size_t at = 0; at < buf_len(b);) {
		ssize_t n = write(fd, buf_head(b) + at, buf_len(b) - at);
		if (n < 0 && errno != EINTR)
			return false;
		at += n > 0 ? (size_t)n : 0;
	}
	return fsync(fd) == 0;
}

/* In place of the old one, with its owner, and with nobody else's right to write. */
static int replace(struct cli *cli, const char *file, struct place *p, const struct buf *b)
{
	struct tokens *t;
	char err[400];
	if (tokens_parse((const char *)buf_head(b), buf_len(b), err, sizeof(err), &t)) {
		cli_note(cli, "%s: %s", file, err);
		return EXIT_OTHER;
	}
	tokens_free(t);
	mode_t mode = p->exists ? p->old.st_mode & 0644 : 0600;
	(void)unlink(p->fresh);
	int fd = open(p->fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	bool good = fd >= 0 && write_all(fd, b);
	if (good && p->exists && (p->old.st_uid != geteuid() || p->old.st_gid != getegid()))
		good = fchown(fd, p->old.st_uid, p->old.st_gid) == 0;
	good = good && fchmod(fd, mode) == 0 && rename(p->fresh, file) == 0 && fsync(p->lock) == 0;
	int code = good ? EXIT_OK : cannot(cli, file);
	if (fd >= 0)
		close(fd);
	if (!good)
		(void)unlink(p->fresh);
	return code;
}

/* ---- new ---- */

static int parse_roles(struct cli *cli, const struct conf *conf, unsigned *ret)
{
	*ret = 0;
	for (size_t i = 0; i < conf->roles.len; i++) {
		unsigned role = role_parse(conf->roles.at[i], strlen(conf->roles.at[i]));
		if (!role)
			return cli_usage(cli, "--role \"%.40s\": reader, submitter, worker, operator and admin are known", conf->roles.at[i]);
		*ret |= role;
	}
	return *ret ? EXIT_OK : cli_usage(cli, "--role is missing: reader, submitter, worker, operator or admin");
}

/* The line, read back by the same parser that reinsd has. */
static int make_line(struct cli *cli, const struct conf *conf, const struct token *t, unsigned roles, char **ret)
{
	struct principal p = { .id = (char *)(uintptr_t)t->id, .name = conf->name, .roles = roles }, *back;
	char queues[TOKENS_LINE_MAX + 3] = "", err[300];
	memcpy(p.digest, t->digest, sizeof(p.digest));
	if (conf->expires)
		p.ends_wall_us = clock_wall_us() + conf->expires / 1000;
	if (conf->queues) {
		if (strlen(conf->queues) > TOKENS_LINE_MAX)
			return cli_usage(cli, "--queues is longer than %d bytes", TOKENS_LINE_MAX);
		snprintf(queues, sizeof(queues), ",%s,", conf->queues);
		p.queues = queues;
	}
	p.worker = conf->worker ? conf->worker : roles & ROLE_WORKER ? conf->name : NULL;
	char *line = principal_format(&p);
	if (principal_parse(line, strlen(line) - 1, err, sizeof(err), &back)) {
		free(line);
		return cli_usage(cli, "%s", err);
	}
	principal_unref(back);
	*ret = line;
	return EXIT_OK;
}

static int append(struct cli *cli, const char *file, const char *line)
{
	struct place p = { .lock = -1 };
	struct buf b;
	buf_init(&b, TOKENS_FILE_MAX);
	int code = lock_place(cli, file, &p);
	if (code == EXIT_OK)
		code = read_text(cli, file, &p, &b);
	if (code == EXIT_OK && buf_add(&b, line, strlen(line))) {
		cli_note(cli, "%s: larger than %zu bytes", file, TOKENS_FILE_MAX);
		code = EXIT_OTHER;
	}
	if (code == EXIT_OK)
		code = replace(cli, file, &p, &b);
	buf_done(&b);
	if (p.lock >= 0)
		close(p.lock);
	return code;
}

static int token_new(struct cli *cli, const struct conf *conf)
{
	struct token t;
	char text[TOKEN_TEXT_MAX + 1];
	unsigned roles;
	_cleanup_free_ char *line = NULL;
	if (!conf->name)
		return cli_usage(cli, "--name is missing: whom the token is for");
	int code = parse_roles(cli, conf, &roles);
	if (code)
		return code;
	if (token_make(&t, text)) {
		cli_note(cli, "the system gives no random bits");
		return EXIT_OTHER;
	}
	code = make_line(cli, conf, &t, roles, &line);
	if (code == EXIT_OK && conf->file)
		code = append(cli, conf->file, line);
	if (code == EXIT_OK) {
		out_line("%s", text);
		if (conf->file)
			cli_note(cli, "id %s added to %s; kill -HUP reinsd lets it in. The token is shown only this once", t.id, conf->file);
		else
			cli_note(cli, "for the tokens file of reinsd:\n%.*s", (int)strlen(line) - 1, line);
	}
	explicit_bzero(text, sizeof(text));
	return code;
}

/* ---- list, revoke ---- */

static int token_list(struct cli *cli, const struct conf *conf)
{
	static const char *const heads[] = { "KIND", "ID", "NAME", "ROLES", "EXPIRES", "WORKER", "QUEUES" };
	struct tokens *t;
	char err[600];
	int64_t now = clock_wall_us();
	if (tokens_read(conf->file, err, sizeof(err), &t)) {
		cli_note(cli, "%s", err);
		return EXIT_OTHER;
	}
	struct table *lines = table_new(heads, ARRAY_LEN(heads));
	for (size_t i = 0; i < t->n; i++) {
		const struct principal *p = t->all[i];
		/* ",a,b," is kept. */
		int queues_len = p->queues ? (int)strlen(p->queues) - 2 : 0;
		char roles[ROLES_TEXT_MAX + 1], ends[CLOCK_TEXT_LEN + 1] = "never";
		roles_format(p->roles, roles);
		if (p->ends_wall_us)
			clock_format_wall(p->ends_wall_us, ends);
		table_cell(lines, p->is_cert ? "cert" : "token");
		table_cell(lines, p->id);
		table_cell(lines, p->name ? p->name : "-");
		table_cell(lines, roles);
		table_cellf(lines, "%s%s", p->ends_wall_us && now >= p->ends_wall_us ? "EXPIRED " : "", ends);
		table_cell(lines, p->worker ? p->worker : "-");
		table_cellf(lines, "%.*s", queues_len ? queues_len : 3, queues_len ? p->queues + 1 : "all");
	}
	table_print(lines);
	table_free(lines);
	tokens_free(t);
	return EXIT_OK;
}

/* Notes each of the ids that it is. */
static bool is_named(const struct principal *p, char **ids, int n, bool *ret_found)
{
	bool named = false;
	for (int i = 0; i < n; i++)
		if (!p->is_cert && strcmp(p->id, ids[i]) == 0)
			named = ret_found[i] = true;
	return named;
}

/* All lines but those of the tokens named, comments included. */
static int keep_others(const struct buf *from, char **ids, int n, struct buf *to, bool *ret_found)
{
	const char *text = (const char *)buf_head(from);
	for (size_t at = 0; at < buf_len(from);) {
		const char *end = memchr(text + at, '\n', buf_len(from) - at);
		size_t len = end ? (size_t)(end - text) - at : buf_len(from) - at;
		size_t line_len = len && text[at + len - 1] == '\r' ? len - 1 : len;
		struct principal *p = NULL;
		char err[300];
		bool gone = principal_parse(text + at, line_len, err, sizeof(err), &p) == 0 && is_named(p, ids, n, ret_found);
		principal_unref(p);
		if (!gone && buf_add(to, text + at, min_sz(len + 1, buf_len(from) - at)))
			return -1;
		at += len + 1;
	}
	return 0;
}

/* Says each that is not there. */
static bool all_found(const struct cli *cli, const char *file, char **ids, int n, const bool *found)
{
	bool all = true;
	for (int i = 0; i < n; i++) {
		if (!found[i])
			cli_note(cli, "%s has no token with the id \"%.100s\"; nothing was changed. `reins token list` shows the ids", file, ids[i]);
		all = all && found[i];
	}
	return all;
}

static int token_revoke(struct cli *cli, const struct conf *conf, char **ids, int n)
{
	struct place p = { .lock = -1 };
	struct buf b, rest;
	if (!n)
		return cli_usage(cli, "which? Give the ids of tokens; `reins token list` shows them");
	buf_init(&b, TOKENS_FILE_MAX);
	buf_init(&rest, TOKENS_FILE_MAX);
	int code = lock_place(cli, conf->file, &p);
	if (code == EXIT_OK)
		code = read_text(cli, conf->file, &p, &b);
	if (code == EXIT_OK) {
		bool *found = xcalloc((size_t)n, sizeof(*found));
		bool kept = keep_others(&b, ids, n, &rest, found) == 0;
		bool all = kept && all_found(cli, conf->file, ids, n, found);
		if (!all || (!buf_len(&rest) && buf_add(&rest, NOBODY, strlen(NOBODY))))
			code = EXIT_OTHER;
		else
			code = replace(cli, conf->file, &p, &rest);
		free(found);
	}
	if (code == EXIT_OK)
		cli_note(cli, "taken away; kill -HUP reinsd ends what is open with %s", n == 1 ? "it" : "them");
	buf_done(&b);
	buf_done(&rest);
	if (p.lock >= 0)
		close(p.lock);
	return code;
}

static int run(struct cli *cli, const void *conf_, char **args, int n_args, int n_before)
{
	const struct conf *conf = conf_;
	const char *what = n_args ? args[0] : "";
	(void)n_before;
	bool new = !strcmp(what, "new"), list = !strcmp(what, "list"), revoke = !strcmp(what, "revoke");
	if (!new && !list && !revoke)
		return cli_usage(cli, "new, list or revoke must come first; see `reins token --help`");
	if (!revoke && n_args > 1)
		return cli_usage(cli, "too many arguments; see `reins token --help`");
	if (!new && !conf->file)
		return cli_usage(cli, "--file is missing: the tokens file of reinsd");
	return new ? token_new(cli, conf) : list ? token_list(cli, conf) : token_revoke(cli, conf, args + 1, n_args - 1);
}

const struct command cmd_token = {
	.name = "token",
	.summary = "make, list and revoke tokens for the server's --tokens-file",
	.program = &program,
	.conf_size = sizeof(struct conf),
	.run = run,
	.alone = true,
};
