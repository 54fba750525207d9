/* reins-supervisor: owns one attempt's program.  Linked with libc only.
 *
 * Started by the agent with one end of a SOCK_SEQPACKET pair as descriptor 3 (wire.h); waits for its job, or for the
 * agent's end. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/supervisor/attempt.h"

enum { EXIT_USAGE = 64, EXIT_SYSTEM = 71 };

/* Only what it needs: neither a directory nor a terminal nor a pipe of the agent's is held. */
static int let_go(void)
{
	int null = open("/dev/null", O_RDWR);
	if (null < 0 || chdir("/") < 0)
		return -errno;
	for (int i = 0; i < SUP_FD; i++)
		if (dup2(null, i) < 0)
			return -errno;
	if (null >= SUP_FD)
		close(null);
	syscall(SYS_close_range, SUP_FD + 1, ~0U, 0);
	return fcntl(SUP_FD, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
}

static int set_signals(void)
{
	static const int ignored[] = {SIGINT, SIGHUP, SIGPIPE, SIGQUIT, SIGXFSZ, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU};
	sigset_t mask;
	for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
		signal(ignored[i], SIG_IGN);
	/* Ignored by a parent, it would make children vanish before they are waited for. */
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGTERM);
	if (sigprocmask(SIG_SETMASK, &mask, NULL) < 0)
		return -errno;
	int fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

/* False: the agent has gone, or does not speak our language, or wants us gone. */
static bool wait_for_job(struct control *c, int signal_fd, union control_packet *p, struct control_fds *ret_fds)
{
	while (c->fd >= 0) {
		struct pollfd fds[2] = {{.fd = c->fd, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};
		struct signalfd_siginfo info;
		if (poll(fds, 2, -1) < 0)
			continue;
		if (control_read(c, p, ret_fds))
			return p->head.type == SUP_JOB;
		if (read(signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info) && info.ssi_signo == SIGTERM)
			return false;
	}
	return false;
}

int main(int argc, char **argv)
{
	static union control_packet packet;
	struct control control;
	struct control_fds fds;
	int type;
	socklen_t len = sizeof(type);
	if (argc != 1 || getsockopt(SUP_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_SEQPACKET) {
		fputs("reins-supervisor is started by reins-worker\n", stderr);
		return EXIT_USAGE;
	}
	setsid(); /* fails where it is one already */
	int signal_fd = let_go() < 0 ? -1 : set_signals();
	if (signal_fd < 0)
		return EXIT_SYSTEM;
	control_init(&control, SUP_FD);
	if (wait_for_job(&control, signal_fd, &packet, &fds))
		attempt_run(&control, signal_fd, &packet.job, &fds);
	return 0;
}
