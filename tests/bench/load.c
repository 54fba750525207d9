/* load: a load generator for reinsd.  The modes are a table; what they share is in rig.h. */
#include <stdio.h>
#include <string.h>

#include "tests/bench/rig.h"

#define C(field) offsetof(struct rig_conf, field)

static const struct setting table[] = {
	{ "server", SETTING_STRING, C(server), "ADDR", "127.0.0.1:7346", .group = "All modes", .help = "Address of reinsd." },
	{ "queue", SETTING_STRING, C(queue), "NAME", "bench", .help = "Queue of the tasks." },
	{ "handler", SETTING_STRING, C(handler), "NAME", "noop", .help = "Handler of the tasks." },
	{ "pid", SETTING_LIST, C(pids), "NAME=PID[+]", NULL,
	  .help = "Process whose CPU time and memory are reported; with + its children too." },
	{ "tls-dir", SETTING_STRING, C(tls_dir), "DIR", NULL,
	  .help = "TLS, each worker with a certificate of its own: a folder of deploy/tls with the authority's key; the server's "
		  "certificate is for localhost." },
	{ "output", SETTING_STRING, C(output), "FORMAT", "table", .help = "table or json (also -o)." },

	{ "tasks", SETTING_INT, C(tasks), NULL, "0", 0, 100000000, .group = "Submitting",
	  .help = "Tasks in all; 0: as many as fit into --seconds." },
	{ "seconds", SETTING_DURATION, C(duration_ns), "DURATION", "3s", 0, 86400 * NS_PER_S, .help = "How long." },
	{ "connections", SETTING_INT, C(connections), NULL, "1", 1, 1000, .help = "Connections that submit." },
	{ "in-flight", SETTING_INT, C(in_flight), NULL, "64", 1, 100000,
	  .help = "Calls on the way over all connections (closed loop); at most 1,000 a connection." },
	{ "batch", SETTING_INT, C(batch), NULL, "1", 1, 10000, .help = "Tasks in a call; more than 1: SubmitTasks." },
	{ "rate", SETTING_INT, C(rate), NULL, "0", 0, 10000000,
	  .help = "Tasks a second, whatever the server does (open loop); 0: closed loop." },
	{ "payload", SETTING_SIZE, C(payload_bytes), NULL, "100", 0, 1024 * 1024, .help = "Payload of each task." },

	{ "workers", SETTING_INT, C(workers), NULL, "4", 0, 10000, .group = "Workers", .help = "Sessions." },
	{ "slots", SETTING_INT, C(slots), NULL, "500", 1, 10000, .help = "Slots of each." },
	{ "order", SETTING_STRING, C(order), "ORDER", "concurrent",
	  .help = "e2e: concurrent (submit while the workers work) or fill (submit all, then connect the workers)." },
	{ "samples", SETTING_INT, C(samples), NULL, "500", 1, 1000000, .help = "latency: tasks, one at a time." },
	{ "pause", SETTING_DURATION, C(pause_ns), NULL, "5ms", 0, 60 * NS_PER_S, .help = "latency: longest pause between them." },
};

static const struct settings_program program = {
	.name = "load",
	.summary = "load puts reinsd under load and measures it. MODE is one of: submit (only submits), worker (only works,\n"
		   "for --seconds), e2e (submits and works; tasks a second from the first submit to the last acknowledged\n"
		   "outcome), latency (one task at a time on an idle system), sessions (idle workers: memory and CPU of each),\n"
		   "reconnect (workers that hold what they get, and come again when their master was killed: reconnect.py),\n"
		   "soak (e2e with the memory of the first --pid watched).",
	.usage = "load MODE [flags]",
	.table = table,
	.n = ARRAY_LEN(table),
};

static const struct {
	const char *name;
	int (*run)(struct rig *r);
} modes[] = {
	{ "submit", load_submit },   { "worker", load_worker },     { "e2e", load_e2e },
	{ "latency", load_latency }, { "sessions", load_sessions }, { "soak", load_soak },
	{ "reconnect", load_reconnect },
};

static int usage(const char *wrong)
{
	fprintf(stderr, "load: %s; load --help says more\n", wrong);
	return 64;
}

static int check(const struct rig_conf *c)
{
	if (strcmp(c->output, "table") != 0 && strcmp(c->output, "json") != 0)
		return usage("output: table or json");
	if (strcmp(c->order, "concurrent") != 0 && strcmp(c->order, "fill") != 0)
		return usage("order: concurrent or fill");
	if (c->in_flight > 1000 * c->connections)
		return usage("in-flight: more than 1,000 a connection");
	return 0;
}

static int (*find_mode(const char *name))(struct rig *)
{
	for (size_t i = 0; i < ARRAY_LEN(modes); i++)
		if (strcmp(name, modes[i].name) == 0)
			return modes[i].run;
	return NULL;
}

int main(int argc, char **argv)
{
	struct rig r = { .track = true };
	char **rest = NULL;
	int n_rest = 0;
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "-o") == 0)
			argv[i] = (char *)(uintptr_t) "--output";
	switch (settings_load(&program, argc, argv, &r.conf, &rest, &n_rest)) {
	case SETTINGS_RUN:
		break;
	case SETTINGS_EXIT_0:
		return 0;
	default:
		return 64;
	}
	int rc = check(&r.conf);
	int (*run)(struct rig *) = n_rest == 1 ? find_mode(rest[0]) : NULL;
	if (rc == 0 && !run)
		rc = usage("the first argument is a mode");
	if (rc == 0)
		rc = rig_init(&r, rest[0]) ? 1 : (run(&r), rig_done(&r));
	free(rest);
	settings_done(&program, &r.conf);
	return rc;
}
