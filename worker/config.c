/* The settings of reins-worker. */
#include "worker/config.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/name.h"
#include "common/base/num.h"
#include "worker/allow.h"
#include "worker/environment.h"
#include "worker/devices.h"
#include "worker/resources.h"
#include "worker/state_dir.h"

#define PIDS_DEFAULT 4096
#define PIDS_MAX 4194304
#define ROW(n, t, f) .name = n, .type = t, .offset = offsetof(struct worker_config, f)

static const struct setting table[] = {
	{ROW("server", SETTING_LIST, servers), .value_name = "URL[,URL…]", .default_text = "127.0.0.1:7346", .split = true,
	 .help = "Masters, tried in this order: host:port, or https://host:port (tls:// is the same).", .group = "Connection"},
	{ROW("tls-ca", SETTING_STRING, tls_ca), .value_name = "FILE",
	 .help = "Certificates that a master's must come from (PEM). Default: the system's."},
	{ROW("tls-cert", SETTING_STRING, tls_cert), .value_name = "FILE",
	 .help = "This worker's own certificate (PEM); its SAN must name the worker's id: URI reins:worker:ID, or DNS ID."},
	{ROW("tls-key", SETTING_STRING, tls_key), .value_name = "FILE", .help = "Its key (PEM). All three are read again when they change, at the next connection."},
	{ROW("token", SETTING_STRING, token), .secret = true, .help = "Sent to the master as a bearer token. Programs don't see it."},
	{ROW("token-file", SETTING_STRING, token_file), .value_name = "FILE",
	 .help = "The token is in this file, which is read again before each connection."},
	{ROW("insecure", SETTING_BOOL, insecure), .help = "Send the token also in clear text over a network."},

	{ROW("id", SETTING_STRING, id), .value_name = "NAME",
	 .help = "Name of this worker, the same after every restart. Default: the host name.", .group = "Worker"},
	{ROW("slots", SETTING_INT, slots), .value_name = "N", .min = 0, .max = 10000,
	 .help = "Tasks at a time. 0: as many as there are CPUs."},
	{ROW("queues", SETTING_LIST, queues), .value_name = "NAME[,NAME…]", .split = true,
	 .help = "Takes tasks of these queues only. Default: of all."},
	{ROW("labels", SETTING_LIST, labels), .value_name = "KEY=VALUE[,…]", .split = true, .help = "Shown with the worker."},
	{ROW("state-dir", SETTING_STRING, state_dir), .value_name = "DIRECTORY",
	 .help = "Outcomes and the attempts' files. Default: $XDG_STATE_HOME/reins/ID or ~/.local/state/reins/ID."},
	{ROW("forget", SETTING_BOOL, forget),
	 .help = "Gives up what is left in --state-dir, and exits: programs that still run from there are ended, outcomes that no master "
		 "has answered are dropped. For attempts of a store that will not come back; a master of another store is left until then."},
	{ROW("kill-grace", SETTING_DURATION, kill_grace_ns), .default_text = "10s", .max = 3600 * NS_PER_S,
	 .help = "From SIGTERM to SIGKILL, when a program is to end."},
	{ROW("orphan-timeout", SETTING_DURATION, orphan_timeout_ns), .default_text = "60s", .min = NS_PER_MS, .max = 24 * 3600 * NS_PER_S,
	 .help = "A program whose worker process is gone is ended so long after its lease, unless another process takes it over."},
	{ROW("launch-failures", SETTING_INT, launch_failures), .default_text = "5", .min = 0, .max = 1000000,
	 .help = "Launches that fail in a row by this worker's own fault until it takes no more tasks; it tries one every minute then. 0: never."},

	{ROW("drain", SETTING_STRING, drain), .value_name = "wait|detach|requeue",
	 .help = "After SIGTERM, what still runs when --drain-timeout is over: is waited for; is left running, to be taken over by "
		 "the next process; or is stopped and given back. Default: detach; requeue for process 1, which programs can't outlive.",
	 .group = "Leaving"},
	{ROW("drain-timeout", SETTING_DURATION, drain_timeout_ns), .default_text = "1m", .max = 3600 * NS_PER_S,
	 .help = "After SIGTERM: what runs has so long to end by itself. A second SIGTERM ends this wait."},
	{ROW("detach-for", SETTING_DURATION, detach_for_ns), .default_text = "10m", .min = NS_PER_S, .max = 3600 * NS_PER_S,
	 .help = "With --drain=detach: programs wait so long for the next process; exclusive ones as long as their lease says."},

	{ROW("memory", SETTING_SIZE, memory), .value_name = "SIZE", .max = INT64_C(1) << 48,
	 .help = "Memory for programs. Default: nine tenths of the machine's if they can be held to a limit (see --cgroup), else none.",
	 .group = "Resources"},
	{ROW("cpus", SETTING_INT, cpus), .value_name = "N", .max = 1000000,
	 .help = "CPUs for programs. Default: as many as the worker may use. Where there is no cgroup with the cpu controller they are only counted."},
	{ROW("gpus", SETTING_STRING, gpus), .value_name = "WHICH", .default_text = "auto",
	 .help = "auto: those that nvidia-smi lists, else /dev/nvidiaN; none: they are left alone; N: so many; or a list of indexes "
		 "and UUIDs (\"0,2\"; one index: \"2,\"). Of these those that the worker's own CUDA_VISIBLE_DEVICES shows. Each is given to one "
		 "task at a time; a task that asks for none sees none."},
	{ROW("device-dir", SETTING_STRING, device_dir), .value_name = "DIRECTORY", .default_text = "/dev",
	 .help = "Where --gpus=auto looks for nvidia0, nvidia1, …"},
	{ROW("resources", SETTING_LIST, resources), .value_name = "NAME=COUNT[,…]", .split = true,
	 .help = "Anything else that can be counted and that tasks may ask for (licenses=2). At most 16."},
	{ROW("cgroup", SETTING_STRING, cgroup), .value_name = "WHERE", .default_text = "auto",
	 .help = "Where programs get their cgroups: auto: where the worker may make some; off: nowhere; or a cgroup v2 directory that "
		 "is the worker's to use."},
	{ROW("pids-limit", SETTING_STRING, pids), .value_name = "N", .default_text = "auto",
	 .help = "Processes and threads of one task, where there is a cgroup with the pids controller; 0: no limit. auto: 4096, and none "
		 "where the controller is one of cgroup v1, which makes each start slower by 10 ms and more."},
	{ROW("open-files", SETTING_INT, open_files), .value_name = "N", .max = 1048576,
	 .help = "Open files of a program (soft limit). 0: as the worker was started with."},

	{ROW("run-as", SETTING_STRING, run_as), .value_name = "USER",
	 .help = "User that programs run as. Only where the worker runs as root; they can't read the worker's files then.",
	 .group = "Security"},
	{ROW("allow", SETTING_LIST, allow), .value_name = "PATTERN[,…]", .split = true,
	 .help = "Programs that may be run: absolute paths, * for any part of a name (/usr/bin/*, not below it). Default: all. What an "
		 "allowed program runs is not looked at: with a shell or an interpreter all is allowed."},
	{ROW("inherit-env", SETTING_LIST, inherit_env), .value_name = "NAME[,…]", .split = true,
	 .help = "Variables of the worker that programs get beside PATH, HOME, USER, SHELL, LANG, LC_*, TZ, TMPDIR, LD_LIBRARY_PATH, "
		 "those of proxies and of their certificates, and REINS_SERVER. * for any part of a name."},
	{ROW("allow-privileges", SETTING_BOOL, allow_privileges),
	 .help = "Programs may gain privileges that the worker lacks, by set-user-id programs such as sudo."},

	{ROW("log-limit", SETTING_SIZE, log_limit), .default_text = "64MiB", .max = INT64_C(1) << 40,
	 .help = "Log kept of one attempt: three quarters for its start, one for its end; the middle is counted and dropped.",
	 .group = "Limits"},
	{ROW("metrics-limit", SETTING_INT, metrics_limit), .value_name = "N", .default_text = "100000", .max = INT64_C(1) << 40,
	 .help = "Points of metrics kept of one attempt; what comes after is counted and dropped."},
	{ROW("spool-limit", SETTING_SIZE, spool_limit), .default_text = "64MiB", .min = 1 << 16, .max = INT64_C(1) << 40,
	 .help = "Outcomes that no master has answered; above it no more tasks are taken."},

	{ROW("log-level", SETTING_STRING, log_level), .value_name = "LEVEL", .default_text = "info",
	 .help = "debug, info, warn, error or silent.", .group = "Program log"},
	{ROW("log-format", SETTING_STRING, log_format), .value_name = "FORMAT", .default_text = "text", .help = "text or json."},
};

const struct settings_program worker_program = {
	.name = "reins-worker",
	.summary = "reins-worker runs tasks on this machine. It connects to the master (reinsd) and keeps trying while\n"
		   "there is none; what a task did while nobody could be told is kept and told later.",
	.usage = "reins-worker [flags]",
	.examples = "For example:\n"
		    "  reins-worker                               the master is on this machine\n"
		    "  reins-worker --server https://master:7346 --id gpu-1 --tls-ca ca.pem \\\n"
		    "               --tls-cert worker-gpu-1.pem --tls-key worker-gpu-1-key.pem\n",
	.table = table,
	.n = ARRAY_LEN(table),
	.env = true,
};

const char *const worker_drain_names[WORKER_DRAINS] = {"wait", "detach", "requeue"};

enum worker_drain worker_config_drain(const struct worker_config *c)
{
	for (int i = 0; i < WORKER_DRAINS; i++)
		if (!strcmp(c->drain, worker_drain_names[i]))
			return (enum worker_drain)i;
	return WORKER_DRAIN_DETACH;
}

static bool is_drain(const char *s)
{
	for (int i = 0; i < WORKER_DRAINS; i++)
		if (!strcmp(s, worker_drain_names[i]))
			return true;
	return false;
}

static bool is_name(const char *s)
{
	return name_is(s, strlen(s), NAME_BYTES_MAX);
}

static int count_cpus(void)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
	return n > 0 ? n : 1;
}

static int read_pids(struct worker_config *c, char *err, size_t cap)
{
	c->pids_given = strcmp(c->pids, "auto") != 0;
	c->pids_limit = PIDS_DEFAULT;
	if (!c->pids_given || (num_parse_i64(c->pids, &c->pids_limit) == 0 && c->pids_limit >= 0 && c->pids_limit <= PIDS_MAX))
		return 0;
	snprintf(err, cap, "--pids-limit \"%.64s\": auto, or a number from 0 to %d", c->pids, PIDS_MAX);
	return -1;
}

int worker_config_finish(struct worker_config *c, char *err, size_t cap)
{
	if (!c->id) {
		char host[256] = "";
		if (gethostname(host, sizeof(host) - 1) < 0 || !is_name(host)) {
			snprintf(err, cap, "the host name \"%s\" can't be a worker's id: give one with --id", host);
			return -1;
		}
		c->id = xstrdup(host);
	}
	if (!is_name(c->id)) {
		snprintf(err, cap, "--id \"%.255s\": 1 to 255 of [A-Za-z0-9._/-] are allowed", c->id);
		return -1;
	}
	if (!c->drain)
		c->drain = xstrdup(worker_drain_names[getpid() == 1 ? WORKER_DRAIN_REQUEUE : WORKER_DRAIN_DETACH]);
	if (!is_drain(c->drain)) {
		snprintf(err, cap, "--drain \"%.64s\": wait, detach or requeue", c->drain);
		return -1;
	}
	if (!c->slots)
		c->slots = count_cpus();
	if (!c->servers.len || c->queues.len > 1000 || c->labels.len > 64) {
		snprintf(err, cap, "one --server at least, 1000 --queues and 64 --labels at most");
		return -1;
	}
	for (size_t i = 0; i < c->queues.len; i++)
		if (!is_name(c->queues.at[i])) {
			snprintf(err, cap, "--queues \"%.255s\": 1 to 255 of [A-Za-z0-9._/-] are allowed", c->queues.at[i]);
			return -1;
		}
	for (size_t i = 0; i < c->labels.len; i++) {
		size_t key = strcspn(c->labels.at[i], "="), all = strlen(c->labels.at[i]);
		if (!key || key > 63 || key == all || all - key - 1 > 255) {
			snprintf(err, cap, "--labels \"%.330s\": KEY=VALUE with a key of 1 to 63 bytes and a value of at most 255",
				 c->labels.at[i]);
			return -1;
		}
	}
	if (c->token && c->token_file) {
		snprintf(err, cap, "--token and --token-file: one of them");
		return -1;
	}
	if (!c->tls_cert != !c->tls_key) {
		snprintf(err, cap, "--tls-cert and --tls-key go together");
		return -1;
	}
	if (allow_check(&c->allow, err, cap) < 0 || environment_check(&c->inherit_env, err, cap) < 0)
		return -1;
	if (read_pids(c, err, cap) < 0 || devices_check(c->gpus, err, cap) < 0 || resources_check(&c->resources, err, cap) < 0)
		return -1;
	if (!c->state_dir && !(c->state_dir = state_dir_default_path(c->id))) {
		snprintf(err, cap, "neither XDG_STATE_HOME nor HOME is set: give a --state-dir");
		return -1;
	}
	return 0;
}
