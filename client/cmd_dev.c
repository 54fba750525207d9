/* reins dev: a whole Reins for one machine in one command.
 *
 *   start    the data directory is locked, the address tried, reinsd started and asked until it serves; then the worker,
 *            until reinsd knows it; then the lines that say how to go on
 *   serve    their logs are passed on
 *   stop     at a signal, or when one of the two has ended: the worker first, which lets what runs end for DRAIN and gives
 *            the rest back, then reinsd.  A second signal ends what runs at once; a third kills */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cli.h"
#include "client/dev_child.h"
#include "client/dev_place.h"
#include "client/output.h"
#include "common/pb/pb.h"
#include "grpc/health/v1/health.pb-c.h"
#include "reins/v1/admin_service.pb-c.h"

#define DRAIN "10s"
#define ASK_NS (2 * NS_PER_S)      /* for one answer while it starts */
#define PAUSE_NS (10 * NS_PER_MS)  /* between two questions */
#define LONG_NS (5 * NS_PER_S)     /* after which we say that it takes long */
#define HURRY_NS (5 * NS_PER_S)    /* from the second signal to SIGKILL */

enum { COLOR_SERVER = 36, COLOR_WORKER = 33 };

struct conf {
	char *data, *listen, *store, *lease;
	int64_t slots;
	struct setting_list server_flags, worker_flags;
};

static const struct setting table[] = {
	{ "data", SETTING_STRING, offsetof(struct conf, data), "DIR", "reins-dev",
	  .help = "Where tasks and logs are kept. Made if missing; the next start goes on with what is there.", .group = "What and where" },
	{ "listen", SETTING_STRING, offsetof(struct conf, listen), "ADDR:PORT", "127.0.0.1:7346",
	  .help = "Where reinsd listens. Port 0: one that is free." },
	{ "slots", SETTING_INT, offsetof(struct conf, slots), NULL, NULL, 0, 10000,
	  .help = "Tasks at a time. Not given: as many as there are CPUs." },
	{ "store", SETTING_STRING, offsetof(struct conf, store), "URL", .secret = true,
	  .help = "Keep tasks in postgres://USER@HOST:PORT/DATABASE instead of the data directory. Environment: REINS_STORE." },
	{ "lease", SETTING_STRING, offsetof(struct conf, lease), "URL", .secret = true,
	  .help = "Show leases in redis://HOST:PORT/DB instead of memory. Environment: REINS_LEASE." },
	{ "server-flag", SETTING_LIST, offsetof(struct conf, server_flags), "FLAG",
	  .help = "A further flag of reinsd, such as --server-flag=--log-level=debug.", .group = "For experts" },
	{ "worker-flag", SETTING_LIST, offsetof(struct conf, worker_flags), "FLAG",
	  .help = "A further flag of reins-worker, such as --worker-flag=--queues=a,b." },
};

static const struct settings_program program = {
	.name = "reins dev",
	.summary = "Runs a whole Reins on this machine: reinsd and one worker, in the foreground. No database, no set-up.\n"
		   "Ctrl-C ends both: what runs may end within " DRAIN ", then it is stopped and runs again at the next start.\n"
		   "Ctrl-C again ends it at once. Nothing that was accepted is lost either way.",
	.usage = "reins dev [flags]",
	.examples = "For example:\n"
		    "  reins dev                                  then, in another terminal:\n"
		    "  reins submit --wait -- echo hello\n",
	.table = table,
	.n = ARRAY_LEN(table),
	.env = true,
};

struct dev {
	struct cli *cli;
	const struct conf *conf;
	struct dev_address address;
	char *data;
	int lock_fd;
	char *server_path, *worker_path;
	struct client *client;
	struct dev_child *server, *worker;
	struct loop_timer kill_timer;
	bool stopping;
	int signals;
	int code;
};

/* ---- the ends ---- */

static void kill_both(struct dev *d)
{
	dev_child_signal(d->worker, SIGKILL);
	dev_child_signal(d->server, SIGKILL);
}

static void on_kill_timer(struct loop_timer *t)
{
	struct dev *d = container_of(t, struct dev, kill_timer);
	cli_note(d->cli, "they do not end; killing them");
	kill_both(d);
}

static void stop(struct dev *d)
{
	d->stopping = true;
	if (d->client)
		client_interrupt(d->client);
	struct dev_child *next = dev_child_runs(d->worker) ? d->worker : d->server;
	dev_child_signal(next, SIGTERM);
	if (d->signals >= 2 && next == d->server)
		dev_child_signal(next, SIGTERM);
}

static void on_signal(void *arg, int signo)
{
	struct dev *d = arg;
	d->signals++;
	if (signo == SIGINT && isatty(STDERR_FILENO))
		out_write(STDERR_FILENO, "\n", 1); /* the terminal wrote ^C */
	if (d->signals == 1 && !d->stopping) {
		cli_note(d->cli, "ending; what runs has " DRAIN " to end by itself, Ctrl-C again ends it at once");
		stop(d);
	} else if (d->signals <= 2) {
		cli_note(d->cli, "ending at once");
		/* The worker still first, so that it can say how its tasks ended. */
		d->signals = 2;
		stop(d);
		loop_timer_set(&d->kill_timer, loop_now_mono_ns(d->cli->loop) + HURRY_NS);
	} else {
		kill_both(d);
	}
}

static void on_end(struct dev *d, const struct dev_child *child, const char *name, int code, int signal)
{
	char how[64];
	if (signal)
		snprintf(how, sizeof how, "was ended by signal %d", signal);
	else
		snprintf(how, sizeof how, "ended with exit code %d", code);
	const char *why = dev_child_error(child);
	if (!d->stopping) {
		if (child == d->worker && !code && !signal)
			cli_note(d->cli, "the worker was drained and has ended, and so does all of it; the next start goes on");
		else if (*why)
			cli_note(d->cli, "%s %s: %s", name, how, why);
		else
			cli_note(d->cli, "%s %s; its last lines above say more", name, how);
		d->code = child == d->worker && !code && !signal ? EXIT_OK : EXIT_OTHER;
	} else if ((code || signal) && d->signals < 2) {
		cli_note(d->cli, "%s %s", name, how);
		d->code = EXIT_OTHER;
	}
	stop(d);
}

static void on_server_end(void *arg, int code, int signal)
{
	on_end(arg, ((struct dev *)arg)->server, "reinsd", code, signal);
}

static void on_worker_end(void *arg, int code, int signal)
{
	on_end(arg, ((struct dev *)arg)->worker, "reins-worker", code, signal);
}

/* ---- the start ---- */

/* "NAME=VALUE", malloc'ed; NULL if there is no value. */
static char *variable(const char *name, const char *value, const char *more)
{
	char *text;
	if (!value || asprintf(&text, "%s=%s%s", name, value, more) < 0)
		return NULL;
	return text;
}

/* What we set goes by the environment, so that a flag handed on may say otherwise, and passwords show nowhere. */
static int start(struct dev *d, const char *path, const char *label, int color, const struct setting_list *flags,
		 char *const *with, size_t n_with, void (*on_child_end)(void *, int, int), struct dev_child **ret)
{
	bool colored = isatty(STDERR_FILENO) && !(getenv("NO_COLOR") && *getenv("NO_COLOR"));
	char **argv = xcalloc(flags->len + 2, sizeof *argv);
	char **envp = dev_env(environ, with, n_with);
	argv[0] = (char *)(uintptr_t)path;
	for (size_t i = 0; i < flags->len; i++)
		argv[i + 1] = flags->at[i];
	const struct dev_child_config cc = { .loop = d->cli->loop, .label = label, .color = colored ? color : 0, .argv = argv,
		.envp = envp, .on_exit = on_child_end, .arg = d };
	int r = dev_child_start(&cc, ret);
	if (r < 0)
		cli_note(d->cli, "%s can't be started: %s", path, strerror(-r));
	free(argv);
	free(envp);
	return r;
}

static int start_server(struct dev *d)
{
	_cleanup_free_ char *own_store = NULL;
	if (asprintf(&own_store, "sqlite:%s/reins.db", d->data) < 0)
		return -ENOMEM;
	char *with[] = {
		variable("REINS_LISTEN", d->address.listen, ""),
		variable("REINS_STORE", d->conf->store ? d->conf->store : own_store, ""),
		variable("REINS_LEASE", d->conf->lease, ""),
	};
	int r = start(d, d->server_path, "reinsd", COLOR_SERVER, &d->conf->server_flags, with, ARRAY_LEN(with), on_server_end,
		      &d->server);
	for (size_t i = 0; i < ARRAY_LEN(with); i++)
		free(with[i]);
	return r;
}

static int start_worker(struct dev *d)
{
	char slots[24];
	snprintf(slots, sizeof slots, "%lld", (long long)d->conf->slots);
	char *with[] = {
		variable("REINS_SERVER", d->address.url, ""),
		variable("REINS_ID", "dev", ""),
		variable("REINS_STATE_DIR", d->data, "/worker"),
		variable("REINS_SLOTS", slots, ""),
		variable("REINS_DRAIN", getenv("REINS_DRAIN") ? NULL : "requeue", ""),
		variable("REINS_DRAIN_TIMEOUT", getenv("REINS_DRAIN_TIMEOUT") ? NULL : DRAIN, ""),
	};
	int r = start(d, d->worker_path, "worker", COLOR_WORKER, &d->conf->worker_flags, with, ARRAY_LEN(with), on_worker_end,
		      &d->worker);
	for (size_t i = 0; i < ARRAY_LEN(with); i++)
		free(with[i]);
	return r;
}

static bool serves(struct dev *d)
{
	Grpc__Health__V1__HealthCheckRequest req = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
	struct client_error e;
	void *reply;
	if (client_call(d->client, &client_health_check, &req, loop_now_mono_ns(d->cli->loop) + ASK_NS, &reply, &e) < 0)
		return false;
	const Grpc__Health__V1__HealthCheckResponse *h = reply;
	bool yes = h->status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
	pb_free(reply);
	return yes;
}

/* Who starts all of it wants it to work: a drain of the time before is over. */
static void resume_worker(struct dev *d)
{
	static char id[] = "dev";
	Reins__V1__ListWorkersRequest ask = REINS__V1__LIST_WORKERS_REQUEST__INIT;
	Reins__V1__DrainWorkerRequest req = REINS__V1__DRAIN_WORKER_REQUEST__INIT;
	struct client_error e;
	void *reply;
	int64_t deadline = loop_now_mono_ns(d->cli->loop) + ASK_NS;
	ask.worker_id = req.worker_id = id;
	req.resume = true;
	if (client_call(d->client, &client_list_workers, &ask, deadline, &reply, &e) < 0)
		return;
	const Reins__V1__ListWorkersResponse *r = reply;
	bool drained = r->n_workers == 1 && r->workers[0]->drain_mode;
	pb_free(reply);
	if (!drained || client_call(d->client, &client_drain_worker, &req, deadline, &reply, &e) < 0)
		return;
	pb_free(reply);
	cli_note(d->cli, "the worker had been drained; it takes tasks again");
}

static bool has_worker(struct dev *d)
{
	Reins__V1__GetServerInfoRequest req = REINS__V1__GET_SERVER_INFO_REQUEST__INIT;
	struct client_error e;
	void *reply;
	if (client_call(d->client, &client_get_server_info, &req, loop_now_mono_ns(d->cli->loop) + ASK_NS, &reply, &e) < 0)
		return false;
	bool yes = ((const Reins__V1__ServerInfo *)reply)->workers_connected > 0;
	pb_free(reply);
	return yes;
}

/* False: we are to stop. */
static bool wait_until(struct dev *d, bool (*holds)(struct dev *), const char *what)
{
	int64_t patience = loop_now_mono_ns(d->cli->loop) + LONG_NS;
	while (!d->stopping && !holds(d)) {
		if (d->stopping || client_sleep(d->client, PAUSE_NS) < 0)
			break;
		if (loop_now_mono_ns(d->cli->loop) > patience) {
			cli_note(d->cli, "%s; the lines above say why. Waiting on; Ctrl-C gives up", what);
			patience = INT64_MAX;
		}
	}
	return !d->stopping;
}

/* Is what `reins` means in a shell this program? */
static bool in_path(const char *self)
{
	_cleanup_free_ char *found = dev_find_in("", "reins", "client", getenv("PATH"));
	_cleanup_free_ char *real = found ? realpath(found, NULL) : NULL;
	return real && !strcmp(real, self);
}

static void say_ready(const struct dev *d)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	self[n > 0 ? n : 0] = 0;
	bool path = n > 0 && !in_path(self), server = strcmp(d->address.url, "http://127.0.0.1:7346") != 0;
	char *slash = strrchr(self, '/');
	out_line("\nReins is ready at %s%s.\nTasks and logs are kept in %s.\n\nTo go on, in another terminal:", d->address.url,
		 d->address.loopback ? ", open to everybody on this machine and to nobody else" : "",
		 d->conf->store ? "the store given" : d->data);
	if (path && slash)
		out_line("  export PATH='%.*s':\"$PATH\"", (int)(slash - self), self);
	if (server)
		out_line("  export REINS_SERVER=%s", d->address.url);
	out_line("  reins submit --wait -- echo hello\n  reins list\n  reins --help\n\nCtrl-C here ends it.\n");
}

/* ---- the whole ---- */

static int prepare(struct dev *d)
{
	char err[600];
	d->server_path = dev_find("reinsd", "server");
	d->worker_path = dev_find("reins-worker", "worker");
	if (!d->server_path || !d->worker_path) {
		cli_note(d->cli, "%s is neither beside this program nor in PATH; install all of Reins",
			 d->server_path ? "reins-worker" : "reinsd");
		return EXIT_OTHER;
	}
	if (dev_data_open(d->conf->data, &d->data, &d->lock_fd, err, sizeof err) < 0) {
		cli_note(d->cli, "%s", err);
		return EXIT_OTHER;
	}
	int r = dev_address_choose(d->conf->listen, &d->address, err, sizeof err);
	if (r < 0) {
		cli_note(d->cli, "%s", err);
		return r == -EINVAL ? EXIT_USAGE : EXIT_OTHER;
	}
	const struct client_config cc = { .server = d->address.url, .user_agent = "reins-dev/" REINS_VERSION };
	struct client_error e;
	if (client_new(d->cli->loop, &cc, &e, &d->client) < 0) {
		cli_note(d->cli, "%s", e.message);
		return EXIT_OTHER;
	}
	return EXIT_OK;
}

static void serve(struct dev *d)
{
	if (start_server(d) < 0) {
		d->code = EXIT_OTHER;
		return;
	}
	if (wait_until(d, serves, "reinsd does not serve yet")) {
		resume_worker(d);
		if (start_worker(d) < 0) {
			d->code = EXIT_OTHER;
			stop(d);
		} else if (wait_until(d, has_worker, "the worker has not reached reinsd yet")) {
			say_ready(d);
		}
	}
	while (dev_child_runs(d->server) || dev_child_runs(d->worker))
		loop_turn(d->cli->loop, true);
}

static int run(struct cli *cli, const void *conf, char **args, int n_args, int n_before)
{
	struct dev d = { .cli = cli, .conf = conf, .lock_fd = -1 };
	struct loop_signal *signals[3] = { NULL };
	const int watched[] = { SIGINT, SIGTERM, SIGHUP };
	(void)args;
	(void)n_before;
	if (!cli_wants(cli, n_args, 0, ""))
		return EXIT_USAGE;
	d.code = prepare(&d);
	loop_timer_init(&d.kill_timer, cli->loop, on_kill_timer);
	/* nohup's choice stands. */
	struct sigaction hup;
	size_t n = sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler == SIG_IGN ? 2 : 3;
	for (size_t i = 0; d.code == EXIT_OK && i < n; i++)
		if (loop_signal_new(cli->loop, watched[i], on_signal, &d, &signals[i]) < 0) {
			cli_note(cli, "cannot watch for signals");
			d.code = EXIT_OTHER;
		}
	if (d.code == EXIT_OK)
		serve(&d);
	loop_timer_stop(&d.kill_timer);
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		loop_signal_free(signals[i]);
	dev_child_free(d.worker);
	dev_child_free(d.server);
	client_free(d.client);
	if (d.lock_fd >= 0)
		close(d.lock_fd);
	free(d.data);
	free(d.server_path);
	free(d.worker_path);
	return d.code;
}

const struct command cmd_dev = {
	.name = "dev",
	.summary = "a whole Reins on this machine, in one command: start here",
	.program = &program,
	.conf_size = sizeof(struct conf),
	.run = run,
	.alone = true,
};
