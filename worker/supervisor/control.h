/* The socket to the agent, and the one on which the next agent finds us.  Never blocks: a status that does not fit waits,
 * and is then sent as it is by that time. */
#ifndef REINS_SUPERVISOR_CONTROL_H
#define REINS_SUPERVISOR_CONTROL_H

#include "common/base/base.h"
#include "worker/supervisor/wire.h"

struct control {
	int fd;         /* to the agent; -1: none */
	int listen_fd;  /* -1: not yet */
	bool changed;   /* more than the log's end changed since the last status was sent */
	bool grown;     /* the log's end did */
	bool unseen;    /* SUP_SEEN has not come since */
	uint32_t unanswered; /* statuses that were sent, less SUP_SEENs that came */
	bool blocked;   /* the socket took nothing: wait until it can be written */
};

/* What has come in, of any size up to SUP_PACKET_MAX; read as zero beyond what was sent. */
union control_packet {
	struct sup_head head;
	struct sup_job job;
	struct sup_deadlines deadlines;
	struct sup_stop stop;
	char bytes[SUP_PACKET_MAX];
};

struct control_fds {
	int fds[3];     /* directory, job, stdin; -1: none */
	int n;
};

void control_init(struct control *c, int fd);
/* Takes what waits on listen_fd. True: the agent is another one. */
bool control_accept(struct control *c);
/* The next packet that is in order. 1; 0: none now, or the connection is gone (fd is -1 then).  `ret_fds`, which may be
 * NULL, gets the descriptors that came with it, for the caller to close; without it they are closed. */
int control_read(struct control *c, union control_packet *ret_packet, struct control_fds *ret_fds) MUST_CHECK;
/* Sends the status if there is something to tell, and it may be told now. */
void control_flush(struct control *c, const struct sup_status *s);
/* A SUP_SEEN has come. */
void control_seen(struct control *c);
/* Says that nothing more will be sent, and reads on until the agent has seen everything or closes, so that what it has
 * not read yet is not lost to it; until the deadline at most. */
void control_close(struct control *c, int64_t until_boot_ns);
void control_drop(struct control *c);

#endif
