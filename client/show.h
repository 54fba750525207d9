/* Tasks as text, and what a finished one means for our exit code. */
#ifndef REINS_CLIENT_SHOW_H
#define REINS_CLIENT_SHOW_H

#include "client/output.h"
#include "reins/v1/task.pb-c.h"

/* "RUNNING"; never NULL. */
const char *show_state_name(Reins__V1__Task__State state);
const char *show_end_name(Reins__V1__Attempt__End end);
/* -EINVAL; any case of letters. */
int show_parse_state(const char *text, Reins__V1__Task__State *ret) MUST_CHECK;
bool show_is_terminal(const Reins__V1__Task *t);
/* Its name, else its command or handler; at most `columns` characters (0: all that fits). */
void show_what(const Reins__V1__Task *t, size_t columns, char *ret_text, size_t cap);
/* How it ended in a few words: "exit code 3", "signal 9 (Killed)", "timed out", "not started"; "" while it has not. */
void show_ending(const Reins__V1__Task *t, char *ret_text, size_t cap);
/* 0 COMPLETED; 124 timed out; 128 + n signal; the program's code; 1 where there is none (never started, lost,
 * cancelled before it ran). */
int show_exit_code(const Reins__V1__Task *t);
/* All of it, one fact a line, to stdout. */
void show_task(const Reins__V1__Task *t, int64_t now_wall_us);

/* "step 12  loss=0.5 reward=3.2". */
void show_metrics(const Reins__V1__MetricPoint *p, char *ret_text, size_t cap);

struct table *show_task_table(void);
void show_task_row(struct table *t, const Reins__V1__Task *task, int64_t now_wall_us);

#endif
