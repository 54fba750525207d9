/* One attempt under its supervisor: from the job to the proof that nothing of it is left. */
#ifndef REINS_SUPERVISOR_ATTEMPT_H
#define REINS_SUPERVISOR_ATTEMPT_H

#include "worker/supervisor/control.h"

/* `signal_fd`: a signalfd for SIGCHLD and SIGTERM, both blocked.  Takes the descriptors of `fds` (directory, job, and
 * stdin where the packet says so).  Returns when all is over and told; the process is to end then. */
void attempt_run(struct control *control, int signal_fd, const struct sup_job *packet, const struct control_fds *fds);

#endif
