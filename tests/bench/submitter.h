/* Submits tasks over several connections.
 *
 * Closed loop (rate 0): `in_flight` calls are on the way at any time; a latency counts from the send.
 * Open loop: calls leave at a steady rate whatever the server does; a latency counts from the moment at which the
 * call was due, so that a server (or this generator) that stood still is charged for every call that waited. */
#ifndef REINS_BENCH_SUBMITTER_H
#define REINS_BENCH_SUBMITTER_H

#include "tests/bench/rig.h"

#define SUBMITTER_OPEN_LOOP_MAX 20000 /* calls on the way in the open loop; beyond it calls are late */

struct submitter_config {
	size_t connections, in_flight;
	size_t batch;          /* 1: SubmitTask; more: SubmitTasks */
	int64_t tasks;         /* stop after these; 0: no such end */
	int64_t duration_ns;   /* stop sending after this time; 0: no such end */
	double rate;           /* tasks per second; 0: closed loop */
};

struct submitter_sums {
	int64_t sent, acked, refused; /* tasks */
	int64_t first_send_mono_ns, last_reply_mono_ns;
	struct hist latency;          /* per call */
	struct hist late;             /* open loop: send behind its due time */
};

struct submitter;

/* Connects; runs the loop until all connections stand. NULL: the run has failed. */
struct submitter *submitter_new(struct rig *r, const struct submitter_config *cfg) MUST_CHECK;
void submitter_start(struct submitter *s);
/* All was sent and answered. */
bool submitter_done(const struct submitter *s);
const struct submitter_sums *submitter_sums(const struct submitter *s);
void submitter_free(struct submitter *s);

/* An encoded SubmitTaskRequest with the rig's queue, handler and payload, malloc'ed. */
uint8_t *submitter_request(const struct rig *r, size_t *ret_len);

#endif
