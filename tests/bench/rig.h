/* What all modes of the load generator share: settings, loop, address, the tasks seen, the report. */
#ifndef REINS_BENCH_RIG_H
#define REINS_BENCH_RIG_H

#include "common/grpc/client.h"
#include "common/loop/loop.h"
#include "common/net/endpoint.h"
#include "common/settings/settings.h"
#include "tests/bench/idset.h"
#include "tests/bench/mint.h"
#include "tests/bench/procs.h"
#include "tests/bench/report.h"

struct rig_conf {
	char *server, *queue, *handler, *order, *output, *tls_dir;
	int64_t connections, in_flight, batch, tasks, duration_ns, rate, payload_bytes;
	int64_t workers, slots, samples, pause_ns;
	struct setting_list pids;
};

struct rig {
	struct rig_conf conf;
	struct loop *loop;
	struct endpoint_addr addr;
	char authority[300];
	struct procs procs;
	struct procs_reading before[PROCS_MAX], after[PROCS_MAX];
	struct report report;
	struct idset ids;
	bool track;          /* note every task in `ids` */
	struct hist receipt; /* of these: submit to the receipt by a worker of ours */
	char failure[400];   /* the run can't go on: why; "" while it can */
	struct loop_timer wake;
	struct mint *mint;   /* NULL: in clear text */
};

/* 0, or -1 after a line on stderr. */
int rig_init(struct rig *r, const char *mode) MUST_CHECK;
/* Exit code: 0 when all was well. */
int rig_done(struct rig *r);
/* The first failure counts. */
void rig_fail(struct rig *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Turns the loop until done(arg) or `ns` from now; done NULL: the whole time.  -1: failed, or (with done) out of time. */
int rig_run(struct rig *r, int64_t ns, bool (*done)(void *arg), void *arg);
/* As rig_run, as long as progress(arg) changes at least once in `ns`. */
int rig_run_while_moving(struct rig *r, int64_t ns, bool (*done)(void *arg), int64_t (*progress)(void *arg), void *arg);
void rig_read_procs(struct rig *r, struct procs_reading *ret);
/* The reply and the Dispatch of a task come in either order; the second of them notes the time between. */
void rig_note_receipt(struct rig *r, const struct idset_entry *e);
/* Compares what was submitted with what was recorded, for `expected` tasks. */
void rig_check_ids(struct rig *r, int64_t expected);

/* ---- connections ---- */

struct rig_link {
	struct rig *rig;
	struct grpc_channel *channel;
	struct tls_context *tls;
	bool ready;
};
/* Connects, over TLS as `id` (for a client: "fleet") where the run is; `ready` turns true later. A connection that ends fails
 * the run. */
void rig_link_open(struct rig *r, struct rig_link *l, const char *id);
void rig_link_close(struct rig_link *l);
bool rig_links_ready(const struct rig_link *l, size_t n);

/* ---- modes ---- */
int load_submit(struct rig *r);
int load_worker(struct rig *r);
int load_e2e(struct rig *r);
int load_latency(struct rig *r);
int load_sessions(struct rig *r);
int load_reconnect(struct rig *r);
int load_soak(struct rig *r);

#endif
