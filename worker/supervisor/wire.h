/* What an agent and a supervisor say to each other, and what a supervisor leaves on disk.
 *
 * A supervisor (reins-supervisor, one per attempt) owns the program: it starts it, reads its pipes into the attempt's
 * log files, ends its tree, and knows its deadlines.  It outlives the agent.  They talk over a SOCK_SEQPACKET socket
 * on one machine, one struct of this file per packet, in host byte order.
 *
 * A spare is started with its end of a socket pair as descriptor 3 and waits for SUP_JOB; when the agent goes
 * first, it ends.  With a job it listens on `socket` in the attempt's directory as well; a newer connection replaces
 * the older (the state directory's lock lets only one agent live).  To each connection it says SUP_STATUS at once.
 *
 * Files in the attempt's directory that a supervisor writes (see also worker/log_file.h):
 *   supervisor  its pid and start time, one struct sup_identity; locked (flock) by the supervisor while it lives, so
 *               that who gets the lock knows it dead.  The agent makes it, empty, before the job is given; one that finds
 *               neither lock nor `status` removes it under the lock: who comes to its job so late finds no file, and starts
 *               nothing
 *   socket      where the next agent finds it
 *   status      struct sup_status, replaced by rename: at the start, at the first process's end, at the tree's
 *
 * An agent may be newer than the supervisor that it adopts, or older: structs only grow at their end, each says its
 * size, a reader takes what it knows and reads the rest as zero; what version 1 has is always there.  A packet of an
 * unknown type is passed over, any other that is not as here costs the connection.  SUP_VERSION changes when that is
 * not enough. */
#ifndef REINS_SUPERVISOR_WIRE_H
#define REINS_SUPERVISOR_WIRE_H

#include <stdint.h>

#define SUP_VERSION 1
#define SUP_FD 3
#define SUP_NEVER INT64_MAX
#define SUP_TEXT_MAX 512 /* NUL included */
#define SUP_PACKET_MAX 4096

enum sup_type {
	/* agent to supervisor */
	SUP_JOB = 1,   /* struct sup_job, once, with descriptors: attempt's directory, job, [stdin] */
	SUP_DEADLINES, /* struct sup_deadlines, at every renewal */
	SUP_STOP,      /* struct sup_stop; a second one may only make it quicker */
	SUP_SEEN,      /* struct sup_head, for each SUP_STATUS that was read: the log's growth may be told again */
	/* supervisor to agent */
	SUP_STATUS,    /* struct sup_status: the whole state, whenever it changes. News of the log alone wait for SUP_SEEN */
};

struct sup_head {
	uint32_t type; /* enum sup_type */
	uint32_t size; /* of the whole struct that begins with this head */
};

/* Times in CLOCK_BOOTTIME. SUP_NEVER: none. */
struct sup_deadlines {
	struct sup_head head;
	int64_t term_boot_ns;   /* exclusive lease: SIGTERM */
	int64_t kill_boot_ns;   /* exclusive lease: SIGKILL from then on */
	/* Without an agent: the tree is ended then.  Never read while an agent is connected; an agent that waits for its
	 * master for long renews it, else its own end is the tree's at once. */
	int64_t orphan_boot_ns;
};

/* The job itself is in a memfd: struct sup_job_file, then NUL-terminated strings in this order:
 *   directory to start in; search path; user to run as, by name or number ("" for none);
 *   n_join directories of cgroups; n_argv words of the program; n_env "NAME=value". */
struct sup_job {
	struct sup_head head;
	struct sup_deadlines deadlines;
	uint32_t has_stdin; /* a third descriptor follows; else /dev/null */
};

struct sup_job_file {
	uint32_t size;            /* of this struct; the strings begin there */
	uint32_t version;         /* SUP_VERSION */
	uint64_t strings_size;
	uint32_t n_argv, n_env;
	/* Directories of cgroups, absolute.  The first process joins all of them before it becomes the program.  The tree
	 * is ended by cgroup.kill of the one that has it (cgroup v2), and is empty when its cgroup.events says so; otherwise
	 * descendants are hunted.  All are removed when empty. */
	uint32_t n_join;
	int32_t kill_index;       /* which of them is cgroup v2; -1: none */
	int32_t oom_index;        /* which of them counts oom_kill, in memory.events (v2) or memory.oom_control (v1); -1: none */
	uint32_t no_new_privs;
	int64_t open_files;       /* soft RLIMIT_NOFILE; 0: as it is */
	int64_t core_bytes;       /* RLIMIT_CORE; -1: as it is */
	int64_t processes;        /* RLIMIT_NPROC; 0: as it is */
	int64_t timeout_ns;       /* of the run, from its start; 0: none */
	int64_t kill_grace_ns;    /* after SIGTERM for timeout, orphan, or a SUP_STOP that names none */
	int64_t log_head_bytes;   /* see worker/log_file.h; at least 1 */
	int64_t log_ring_bytes;   /* at least 2 */
	int64_t stuck_after_ns;   /* SIGKILL for this long and not empty: said so (SUP_STUCK), and tried on */
};

struct sup_stop {
	struct sup_head head;
	int32_t reason;      /* any number of the agent's; comes back in sup_status.stop_reason */
	int32_t pad;
	int64_t grace_ns;    /* from SIGTERM to SIGKILL; 0: SIGKILL at once; below 0: the job's kill_grace_ns */
	char text[SUP_TEXT_MAX]; /* comes back in sup_status.text */
};

enum sup_phase {
	SUP_STARTING = 1,
	SUP_RUNNING,       /* exec succeeded */
	SUP_LAUNCH_FAILED, /* exec did not; `text` says why. SUP_EMPTY follows, never SUP_EXITED */
	SUP_EXITED,        /* the first process has ended; what is left of the tree is being ended: at once, or when the
	                    * grace of a stop that had begun is over */
	SUP_EMPTY,         /* no process is left and the log is whole. launch_errno > 0 tells a launch that failed.  The
	                    * supervisor ends as soon as every status was answered with SUP_SEEN, the agent has
	                    * closed, or a second has passed */
};

enum sup_stopped_by {
	SUP_NOT_STOPPED,
	SUP_BY_AGENT,   /* SUP_STOP */
	SUP_BY_TIMEOUT,
	SUP_BY_LEASE,
	SUP_BY_ORPHAN,  /* orphan_boot_ns */
	SUP_BY_SIGNAL,  /* SIGTERM to the supervisor itself */
};

struct sup_status {
	struct sup_head head;
	uint32_t version;         /* SUP_VERSION of the supervisor */
	int32_t phase;            /* enum sup_phase */
	/* Who began to stop it before the first process ended; the first one counts. */
	int32_t stopped_by;       /* enum sup_stopped_by */
	int32_t stop_reason;      /* of SUP_STOP */
	int32_t launch_errno;     /* 0: exec did not fail */
	int32_t launch_own;       /* the failure is the worker's (no process, no directory, no cgroup), not the program's */
	int32_t exit_code, signal; /* from SUP_EXITED on; signal > 0: ended by it */
	int32_t oom_kills;        /* by the cgroup's counter, in SUP_EMPTY */
	int32_t stuck;            /* processes that SIGKILL has not ended for stuck_after_ns; 0: none. `text` says which */
	int32_t pid;              /* of the first process */
	int32_t pad;
	int64_t started_wall_us, exited_wall_us; /* 0: not yet */
	/* Offset after the last byte that is whole in the log's files or counted as dropped there.  In SUP_EMPTY: the end of
	 * all output; what the files lack before it was dropped (the disk was still full). */
	int64_t log_end;
	int64_t log_dropped;      /* bytes that could not be written (disk full), told in the files or not yet */
	/* What is stuck, else why the launch failed, else the text of the SUP_STOP that counted; valid UTF-8 not promised. */
	char text[SUP_TEXT_MAX];
};

struct sup_identity {
	uint32_t size;
	uint32_t version;
	int64_t pid;
	uint64_t start_ticks;     /* field 22 of /proc/PID/stat */
	char boot_id[40];         /* /proc/sys/kernel/random/boot_id */
};

#endif
