/* Program logs: one line per event on stderr, with the object it is about.
 * Library code does not log; programs do, once per event.
 *
 *   2026-11-29T12:00:00.123Z INFO  worker: session opened worker=gpu-1 session=7
 *
 * `object` is text that the caller made, "worker=gpu-1 session=7": values without blanks.  A file that
 * logs about one kind of object keeps that text in the object, or has a macro that makes it:
 *   #define log_worker(level, w, ...) log_line(level, "worker", (w)->log_object, __VA_ARGS__)
 *
 * A line is one write of at most LOG_LINE_MAX bytes; a longer one is cut and says so.  A stderr that
 * nobody reads (a full pipe) never blocks the program: the line is dropped, and the next one that
 * gets through is preceded by the count of the lost. */
#ifndef REINS_LOG_H
#define REINS_LOG_H

#include "common/base/base.h"

#define LOG_LINE_MAX 4096 /* what a pipe with POLLOUT takes without blocking */

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_SILENT };
enum log_format { LOG_TEXT, LOG_JSON };

/* Before the first call: LOG_INFO, LOG_TEXT. */
void log_setup(enum log_level min, enum log_format format);
bool log_enabled(enum log_level level);
/* "debug", "info", "warn", "error", "silent"; -EINVAL otherwise. */
int log_parse_level(const char *s, enum log_level *ret) MUST_CHECK;

/* Writes one line: area, message (printf), object fields given before as "key=value key=value" (may be NULL).
 * Control characters, marks that turn the direction of text, and invalid UTF-8 are escaped: what a peer
 * sent can't forge a line.  As JSON the fields of the object are members beside time, level, area and
 * message. */
void log_line(enum log_level level, const char *area, const char *object, const char *fmt, ...) PRINTF_LIKE(4, 5);

#define log_debug(area, object, ...) \
	do { if (log_enabled(LOG_DEBUG)) log_line(LOG_DEBUG, area, object, __VA_ARGS__); } while (0)
#define log_info(area, object, ...) log_line(LOG_INFO, area, object, __VA_ARGS__)
#define log_warn(area, object, ...) log_line(LOG_WARN, area, object, __VA_ARGS__)
#define log_error(area, object, ...) log_line(LOG_ERROR, area, object, __VA_ARGS__)

/* At most one line per `per_s` seconds for a noisy condition.  True: log now, and say that *ret_dropped
 * were left out since the last.  A zeroed struct is ready for use. */
struct log_limit {
	int64_t next_mono_ns;
	int64_t dropped;
};
bool log_limit_pass(struct log_limit *l, int64_t now_mono_ns, int per_s, int64_t *ret_dropped);

/* For conditions of many kinds that come again and again: a text that was logged is not logged again for a
 * minute, and one that is new waits for no other's minute. Bounded: LOG_REPEATS texts are known at a time, and what comes
 * within `gap_ns` after a line isn't logged (against who makes up texts). True: log now; *ret_dropped of the same
 * text were left out since. A zeroed struct is ready for use. */
#define LOG_REPEATS 16
struct log_repeats {
	struct {
		char text[160]; /* its beginning; different texts that begin alike count as one */
		int64_t again_mono_ns;
		int64_t dropped;
	} known[LOG_REPEATS];
	size_t next;
	int64_t gap_mono_ns;
};
bool log_repeats_pass(struct log_repeats *r, int64_t now_mono_ns, int64_t gap_ns, const char *text, int64_t *ret_dropped);

#endif
