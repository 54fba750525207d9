/* A program that misbehaves: victim MODE [ARGUMENT].  It makes files in its directory to say how far it is.  Whatever it
 * does, it ends by itself after some time, so that a test that failed leaves nothing for long. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LONG_S 180
#define BOMB_S 30

static void say(const char *name)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		_exit(70);
	close(fd);
}

static time_t begun;

static void sleep_for_long(void)
{
	while (time(NULL) < begun + LONG_S)
		sleep(1);
	_exit(71);
}

/* A daemon that nothing gentle ends, with stdout in its hand. */
static void daemonize(const char *name)
{
	if (fork())
		return;
	setsid();
	if (fork())
		_exit(0);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	say(name);
	sleep_for_long();
}

static volatile sig_atomic_t terms;

static void note_term(int signo)
{
	say("termed");
}

static void count_term(int signo)
{
	terms = terms + 1;
	say("termed");
}

static void wait_for(const char *name)
{
	while (access(name, F_OK) < 0)
		usleep(2000);
}

/* `n` processes that fork as fast as they can; the limit of processes ends the growth, not the trying. */
static void bomb(int n)
{
	for (int i = 0; i < n; i++)
		if (fork() == 0) {
			setsid();
			signal(SIGTERM, SIG_IGN);
			while (time(NULL) < begun + BOMB_S)
				if (fork() < 0)
					say("full");
			_exit(71);
		}
	sleep_for_long();
}

/* Each process starts the next and ends: at any moment one or two live, never for long. */
static void chase(void)
{
	say("chasing");
	while (time(NULL) < begun + BOMB_S) {
		setsid();
		if (fork())
			_exit(0);
	}
}

int main(int argc, char **argv)
{
	begun = time(NULL);
	const char *mode = argc > 1 ? argv[1] : "", *arg = argc > 2 ? argv[2] : "0";
	char *end;
	errno = 0;
	long given = strtol(arg, &end, 10);
	if (errno || *end || given < 0 || given > INT_MAX) {
		fprintf(stderr, "victim: \"%s\" is no number from 0 on\n", arg);
		return 64;
	}
	int number = (int)given;
	if (!strcmp(mode, "daemon")) {
		daemonize("daemon");
		wait_for("daemon");
		return number;
	}
	if (!strcmp(mode, "stubborn")) { /* a tree of its own that ignores SIGTERM, and itself does too */
		daemonize("daemon");
		wait_for("daemon");
		signal(SIGTERM, note_term);
		say("ready");
		sleep_for_long();
	}
	if (!strcmp(mode, "stopped")) { /* stops itself; ends by SIGTERM if it gets to run */
		say("ready");
		raise(SIGSTOP);
		sleep_for_long();
	}
	if (!strcmp(mode, "noting")) { /* notes SIGTERM, and stays */
		signal(SIGTERM, note_term);
		say("ready");
		sleep_for_long();
	}
	if (!strcmp(mode, "count")) { /* how often SIGTERM comes to a process of its group; ends when told */
		signal(SIGTERM, count_term);
		say("ready");
		wait_for("go");
		return terms;
	}
	if (!strcmp(mode, "eat")) {
		for (;;) {
			volatile char *p = malloc(1 << 20); /* nothing that a compiler takes for unused */
			for (int i = 0; p && i < 1 << 20; i += 512)
				p[i] = 1;
		}
	}
	if (!strcmp(mode, "fds")) { /* how many descriptors beyond the first three are open; what is blocked or ignored */
		int open_fds = 0;
		sigset_t blocked;
		for (int fd = 3; fd < 1024; fd++)
			open_fds += fcntl(fd, F_GETFD) >= 0;
		sigprocmask(SIG_SETMASK, NULL, &blocked);
		for (int n = 1; n < NSIG; n++) {
			struct sigaction sa = {.sa_handler = SIG_DFL};
			open_fds += sigismember(&blocked, n) == 1;
			sigaction(n, NULL, &sa);
			open_fds += sa.sa_handler == SIG_IGN; /* handlers do not survive exec; a sanitizer sets its own */
		}
		return open_fds;
	}
	if (!strcmp(mode, "bomb"))
		bomb(number);
	if (!strcmp(mode, "chase"))
		chase();
	if (!strcmp(mode, "subreaper")) { /* keeps its orphans from us while it lives */
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		daemonize("daemon");
		wait_for("daemon");
		say("ready");
		sleep_for_long();
	}
	if (!strcmp(mode, "bytes")) /* one at a time */
		for (int i = 0, n = number; i < n; i++)
			if (write(1 + i % 2, i % 2 ? "e" : "o", 1) != 1)
				return 1;
	if (!strcmp(mode, "lines")) {
		for (int i = 0, n = number; i < n; i++) {
			printf("out %d\n", i);
			fprintf(stderr, "err %d\n", i);
		}
		return 0;
	}
	if (!strcmp(mode, "binary")) {
		unsigned char all[256];
		for (int i = 0; i < 256; i++)
			all[i] = (unsigned char)i;
		for (int i = 0, n = number; i < n; i++)
			fwrite(all, 1, sizeof(all), stdout);
		return 0;
	}
	return 0;
}
