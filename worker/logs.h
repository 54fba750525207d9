/* The log of one attempt on its way to the master: read from the files that its supervisor writes (log_file.h), with one
 * count of bytes over stdout and stderr.
 *
 * Two tracks.  What is to be stored goes out in order, without gap or repeat, and again from where the master has it after a
 * reconnect: while the program runs only the head file, at the end the gap behind it and what is left of the ring.  What
 * lies behind the head of a log that somebody follows goes out live besides, as far as it is taken.
 *
 * The loop never waits for the disk: a read that would block goes to the thread pool, and on_ready says when
 * to ask again.  Memory and descriptors don't grow with the number of logs: a piece lies in the reader's buffer, and
 * of the files only a few are kept open. */
#ifndef REINS_WORKER_LOGS_H
#define REINS_WORKER_LOGS_H

#include "common/base/base.h"
#include "common/base/list.h"
#include "common/loop/loop.h"
#include "worker/log_read.h"

#define LOGS_PIECE_MAX (64 * 1024)
#define LOGS_PIECE_COST_MIN 1024 /* see WorkerLimits.log_window_bytes */

struct attempt_log;
struct log_job;

/* What all logs of a worker share. */
struct logs_reader {
	struct loop *loop;
	/* logs_next, which said that there is nothing, is to be asked again. */
	void (*on_ready)(struct attempt_log *l);
	/* Sent and not said to be stored, of one log and of all; 0: any amount. */
	int64_t window, window_sum;

	/* private */
	int64_t in_flight;
	struct list open;    /* log_cursor.open_node, the one used last at the end */
	size_t n_open;
	struct list want_job, want_room; /* attempt_log.waiting */
	int jobs;            /* under way, or read and not taken */
	struct loop_timer again;
	uint8_t *buf;
};

struct log_cursor {
	int fd; /* of place.file; -1 */
	struct log_place place;
	struct list open_node;
	struct log_job *job;
};

struct attempt_log {
	struct logs_reader *reader;
	int dir_fd;        /* the caller's; -1: no files */
	int64_t end;       /* all before is in the files, or lost for good */
	int64_t dropped;   /* bytes that could not be written, as the supervisor counts them */
	int64_t sent;      /* this session has got all before */
	int64_t stored;    /* the master has stored all before */
	bool closed;

	/* private */
	int64_t head_end;  /* -1: not known */
	bool followed;
	int64_t live_at;   /* -1: not begun */
	struct log_cursor head, live;
	/* Pieces in flight, before and after `mark`; a place that is stored, and one that is not yet, to begin again from. */
	int64_t cost_old, cost_new, mark;
	struct log_place place_old, place_new;
	struct list waiting;
};

/* What to send next.  `data` is valid until the next call for any log. */
struct logs_piece {
	int stream;        /* 1: stdout, 2: stderr */
	int64_t offset;
	const uint8_t *data;
	size_t len;        /* 0: a gap */
	int64_t dropped;
	int64_t at_wall_us;
	bool live;
	struct log_place next; /* private */
};

/* What the head and the ring may hold of a log that is limited to so many bytes: three quarters and one. */
void logs_split(int64_t limit, int64_t *ret_head, int64_t *ret_ring);

void logs_reader_init(struct logs_reader *r, struct loop *loop, void (*on_ready)(struct attempt_log *l));
/* No job runs. */
bool logs_reader_idle(const struct logs_reader *r);
/* All logs are done, and it is idle. */
void logs_reader_done(struct logs_reader *r);

/* Empty, and without files until logs_open. */
void logs_init(struct attempt_log *l, struct logs_reader *r);
void logs_done(struct attempt_log *l);
/* The attempt's directory stays the caller's, and open until logs_done. */
void logs_open(struct attempt_log *l, int dir_fd);
/* As sup_status tells them; a smaller end than before is passed over. */
void logs_grown(struct attempt_log *l, int64_t end, int64_t dropped);
/* No more bytes come; all of it is to be sent, gaps too. */
void logs_close(struct attempt_log *l, int64_t end);
/* The master has all bytes before `offset`. */
void logs_stored(struct attempt_log *l, int64_t offset);
/* A new session: send again from `offset` on, and follow no more. */
void logs_rewind(struct attempt_log *l, int64_t offset);
/* Somebody reads along, or nobody does any more. */
void logs_follow(struct attempt_log *l, bool on);
/* False: nothing to send now.  Ask again after logs_grown, logs_close, logs_stored, logs_rewind, logs_follow, on_ready. */
bool logs_next(struct attempt_log *l, struct logs_piece *ret);
/* `p` went out. */
void logs_sent(struct attempt_log *l, const struct logs_piece *p);
/* Closed, and this session has got it up to its end. */
bool logs_all_sent(const struct attempt_log *l);

#endif
