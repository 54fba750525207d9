/* What the command writes: bytes to stdout or stderr, tables, times for people, JSON. */
#ifndef REINS_CLIENT_OUTPUT_H
#define REINS_CLIENT_OUTPUT_H

#include "common/base/base.h"
#include "google/protobuf/duration.pb-c.h"
#include "google/protobuf/timestamp.pb-c.h"

/* Writes all of it.  A reader that has gone (`reins list | head`) ends the process as SIGPIPE would; any other
 * failure ends it with a message and code 1: nobody would see the rest. */
void out_write(int fd, const void *data, size_t len);
/* One line to stdout, printf, of at most 16 KiB. */
void out_line(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* A message as ProtoJSON and a newline to stdout; one line each where many follow (`compact`), else indented. */
void out_json(const void *message, bool compact);

/* "5s", "3m12s", "4h05m", "12d": how long, at a glance. Negative is taken as 0. */
void out_format_span(int64_t us, char *ret_text, size_t cap);
/* Time since; "" if unset. */
void out_format_age(const Google__Protobuf__Timestamp *t, int64_t now_wall_us, char *ret_text, size_t cap);
/* "2026-11-29 12:00:00Z (5s ago)"; "" if unset or not a time. */
void out_format_time(const Google__Protobuf__Timestamp *t, int64_t now_wall_us, char *ret_text, size_t cap);
/* "2026-11-29T12:00:00.123Z", for programs; "" if unset or not a time. */
void out_format_instant(const Google__Protobuf__Timestamp *t, char *ret_text, size_t cap);
/* Text of others on a terminal: valid UTF-8, each control character a blank; cut at `columns` characters, the last
 * then being "…" (0: not cut). */
void out_clean(const char *s, size_t columns, char *ret_text, size_t cap);

/* A line about one thing: its name in a column, then the text, cleaned; nothing for no text. */
void out_fact(const char *name, const char *text);
void out_fact_time(const char *name, const Google__Protobuf__Timestamp *t, int64_t now_wall_us);

/* A table whose columns are as wide as their widest cell, two blanks between. */
struct table;
struct table *table_new(const char *const *heads, size_t n_columns) __attribute__((returns_nonnull));
/* One cell after the other, row by row; cleaned as by out_clean. */
void table_cell(struct table *t, const char *text);
void table_cellf(struct table *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* To stdout with its heads; rows are forgotten and the widths kept, so that the next page, which has no heads,
 * stands below the first. */
void table_print(struct table *t);
/* The same as text, for tests; malloc'ed. */
char *table_text(struct table *t);
void table_free(struct table *t);

#endif
