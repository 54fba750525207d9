/* Owns the file, and what of this turn is to be written.  A write to a file ends in memory; one that fails (a full disk) is
 * tried again with the next lines, and says so once a minute. */
#include "server/auth/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/auth/tokens.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/log/log.h"
#include "common/pb/utf8.h"

struct audit {
	struct loop *loop;
	char *path;
	int fd;
	struct buf out;
	struct loop_dirty dirty;
	struct log_limit tell;
	struct audit_stats stats;
	int64_t lost_untold;
};

static int open_file(const char *path, char *err, size_t cap)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
	if (fd < 0)
		snprintf(err, cap, "%s: %s", path, strerror(errno));
	return fd;
}

static void write_out(struct audit *a)
{
	while (buf_len(&a->out)) {
		ssize_t n = write(a->fd, buf_head(&a->out), buf_len(&a->out));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int err = errno;
			int64_t dropped;
			if (log_limit_pass(&a->tell, loop_now_mono_ns(a->loop), 60, &dropped))
				log_error("audit", NULL, "%s: %s; %zu bytes wait", a->path, strerror(err), buf_len(&a->out));
			return;
		}
		buf_consume(&a->out, (size_t)n);
	}
}

static void on_write(struct loop_dirty *d)
{
	write_out(container_of(d, struct audit, dirty));
}

int audit_new(struct loop *loop, const char *path, char *ret_err, size_t cap, struct audit **ret)
{
	int fd = path ? open_file(path, ret_err, cap) : -1;
	if (path && fd < 0)
		return -EINVAL;
	struct audit *a = xcalloc(1, sizeof(*a));
	a->loop = loop;
	a->path = path ? xstrdup(path) : NULL;
	a->fd = fd;
	buf_init(&a->out, AUDIT_BUFFER);
	loop_dirty_init(&a->dirty, LOOP_WRITE, on_write);
	*ret = a;
	return 0;
}

void audit_free(struct audit *a)
{
	if (!a)
		return;
	loop_unmark(&a->dirty);
	if (a->fd >= 0) {
		write_out(a);
		close(a->fd);
	}
	buf_done(&a->out);
	free(a->path);
	free(a);
}

int audit_reopen(struct audit *a, char *ret_err, size_t cap)
{
	if (!a->path)
		return 0;
	int fd = open_file(a->path, ret_err, cap);
	if (fd < 0)
		return -EINVAL;
	write_out(a);
	close(a->fd);
	a->fd = fd;
	return 0;
}

/* As valid JSON, whatever the peer sent. */
static char *line_text(const struct audit_line *l, int64_t lost)
{
	char when[CLOCK_TEXT_LEN + 1], principal[4 * TOKENS_NAME_MAX];
	clock_format_wall(clock_wall_us(), when);
	utf8_make_valid(l->principal, strlen(l->principal), principal, sizeof(principal), NULL); /* a certificate's may be any bytes */
	json_t *o = json_pack("{ss ss ss ss ss ss ss}", "time", when, "principal", principal, "peer", l->peer, "method", l->method,
			      "target", l->target, "code", l->code, "request_id", l->request_id);
	if (o && lost)
		json_object_set_new(o, "lost_before", json_integer(lost));
	char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
	json_decref(o);
	return text;
}

void audit_add(struct audit *a, const struct audit_line *l)
{
	a->stats.lines++;
	if (!a->path) {
		log_info("audit", NULL, "%s by \"%s\" from %s: %s %s request=%s", l->method, l->principal, l->peer, l->code, l->target, l->request_id);
		return;
	}
	_cleanup_free_ char *text = line_text(l, a->lost_untold);
	size_t n = text ? strlen(text) : 0;
	uint8_t *at = n ? buf_reserve(&a->out, n + 1) : NULL; /* all of it or nothing */
	if (at) {
		memcpy(at, text, n);
		at[n] = '\n';
		buf_commit(&a->out, n + 1);
		a->lost_untold = 0;
	} else {
		a->stats.lost++;
		a->lost_untold++;
	}
	loop_mark(a->loop, &a->dirty); /* also to try again what a full disk did not take */
}

struct audit_stats audit_stats(const struct audit *a) { return a->stats; }
