/* The core driven by text: one line holds the events of a step, the answer is its effects in words.
 *
 *   task t1 q=a prio=5 gpus=1 excl lease=60 failures=2 backoff=10    (attributes; remembered; not an event)
 *   task t2 handler=x custom=lic:2,fpga:1
 *   hello p1 w1 slots=2 gpus=0 q=a,b held=t1/1,t2/1 enforce inproc drain inst=5
 *   opened p1 w1 #1 [drained] adopt=t1/1 wish=t2/1 requeue=t3/1 fence=t4/1 wait=t5/1 | opened p1 w1 away
 *   hello p1 w1 handlers=x,y custom=lic:3 nocmd      (nocmd: runs no commands)
 *   hello p1 w1 resumes=3 [no=5] [other]             (the process had session 3; "welcome … resumed held=…" if it goes on. Number
 *                                                    of its hello; not given: the peer's. other: one may have opened a session)
 *   submit t1 [due=5]      inserted t1 created|exists|failed [pending] [due=5] [exp=9]    (pending: not given as asked)    ready t1,t2 [exp=9]    gone t1
 *   preempted t1 ok|full|newer|down        claimed t1/1 won|lost|away|stale [spec=1.5: MiB of its spec]
 *   accepted p1 t1/1       refused p1 t1/1       cancel t1/1        bye p1
 *   draining p1 [off] [detach=600]           wish w1 [off]
 *   hb p1 n=3 seen=1 held=t1/1
 *   outcome p1 t1/1 tok=7 ok|fail|back         recorded p1 t1/1 tok=7 recorded|duplicate|fenced|away [again] [in=5]
 *   taken t1/1 #1 pending|ended|fenced|away
 *   pause a [off] [why=disks]      queues [a,b] [paused=a,c]
 *   queues a,b | queues away    filled a t1,t2 [end] | filled a away    due t1,t2 [next=5] | due away
 *   expired t1,t2 [next=5] | expired away
 *   strays w1#3:t1/1 [of=m2 inc=1 beat=5] [detached=9] [wish] | strays away  (without `of`: sessions of this master's id)
 *   hb-of w1#3 silent|fresh      took-over m2 [not] inc=2 beat=5      beat      deposed
 *   keys w1#3:t1/1 w2 [next=7] | keys away  (an owner key; a worker's hash without an hb)
 *   runs w1#3:t1/1=no w2#1:t2/1=yes [next=7] | runs away
 *   store up|down    lease up|down    stalled 5    wait 5 (moves the time; alone on its line: a TIME event)
 *
 * Several events of one step are divided by "; ".  Times are seconds, fractions allowed. Task tN has seq N. */
#ifndef REINS_CORE_SCRIPT_H
#define REINS_CORE_SCRIPT_H

#include "server/core/core.h"

#define SCRIPT_TASKS 4096

enum { SHOW_BEAT = 1, SHOW_OWN = 2, SHOW_FILL = 4, SHOW_RELEASE = 8, SHOW_STRAYS = 16, SHOW_GONE = 32, SHOW_EXPIRE = 64,
       SHOW_KEYS = 128 };

struct script {
	struct core_config cfg;
	struct core *core;
	struct core_effects out;
	int64_t now;
	unsigned show; /* effects that are otherwise left out of the words */
	struct core_task tasks[SCRIPT_TASKS];
	bool eager[SCRIPT_TASKS]; /* its insert was asked for as RUNNING */
	char queue_names[SCRIPT_TASKS][16], handler_names[SCRIPT_TASKS][16], customs[SCRIPT_TASKS][64];
	char text[65536];
};

void script_init(struct script *s, const struct core_config *cfg); /* NULL: the defaults */
/* The same, and the core knows that the store has no ready rows. */
void script_start(struct script *s, const struct core_config *cfg);
void script_done(struct script *s);
/* Runs one line, checks the core, returns the effects in words ("" for none). */
const char *script_run(struct script *s, const char *line);
struct core_task *script_task(struct script *s, int n);

/* A step and its effects, in words. */
struct script_row {
	const char *in, *out;
};
/* Runs the rows; the test fails at the first whose effects are others. */
void script_go(struct script *s, const struct script_row *rows, size_t n);
#define SCRIPT_GO(s, ...)                                                   \
	do {                                                                \
		static const struct script_row rows_[] = { __VA_ARGS__ };   \
		script_go(s, rows_, ARRAY_LEN(rows_));                      \
	} while (0)

#endif
