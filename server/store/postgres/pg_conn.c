/* One connection.  Owns the PGconn, its watched socket, one timer (backoff, connect limit or watchdog,
 * by state) and the FIFO of batches in the pipeline.
 *
 *   WAITING ─timer─▶ RESOLVING ─▶ CONNECTING ─▶ SETUP ─▶ PREPARING ─▶ READY
 *      ▲                 │            │           │          │         │
 *      └─────────────────┴────────────┴───────────┴──────────┴─────────┘ lost
 *
 * A connection is never reset: the next try is a new PGconn.  Names are resolved by libuv's threads, since
 * libpq would block the loop on them. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "server/store/postgres/pg.h"

#define BACKOFF_MIN (100 * NS_PER_MS)
#define BACKOFF_MAX (2 * NS_PER_S)
#define OPTIONS_MAX 64
#define TLS_READS 4 /* a record is 16 KiB, libpq reads 8 KiB at least */

enum state { WAITING, RESOLVING, CONNECTING, SETUP, PREPARING, READY };

struct resolve { /* outlives the connection when that goes away first */
	uv_getaddrinfo_t uv;
	struct pg_conn *conn;
};

struct pg_conn {
	struct loop *loop;
	const struct pg_store_config *cfg;
	const struct pg_conn_ops *ops;
	void *arg;
	int number;
	enum state state;
	PGconn *pq;
	int fd;
	struct loop_poll *poll;
	struct loop_timer timer;
	struct resolve *resolving;
	struct list batches;
	size_t n_batches;
	int preparing;
	struct pg_setup setup;
	PGresult *last; /* of the set-up's present statement */
	int64_t backoff_ns, progress_mono_ns;
	unsigned tries; /* which host is next */
	bool doomed, newer;
	bool blocked; /* the socket is full: libpq moves all that waits at each write, so little should wait */
	char text[200];
	char address[64];
};

static void lose(struct pg_conn *c, const char *text);
static void on_socket(void *arg, int events);

/* libpq's messages have several lines. */
static void one_line(char *ret, size_t cap, const char *text)
{
	size_t n = 0;
	for (; *text && n + 1 < cap; text++) {
		char ch = *text == '\n' || *text == '\t' ? ' ' : *text;
		if (ch != ' ' || (n && ret[n - 1] != ' '))
			ret[n++] = ch;
	}
	while (n && ret[n - 1] == ' ')
		n--;
	ret[n] = '\0';
}

static void drop(struct pg_conn *c)
{
	loop_timer_stop(&c->timer);
	loop_poll_free(c->poll);
	c->poll = NULL;
	PQclear(c->last);
	c->last = NULL;
	PQfinish(c->pq);
	c->pq = NULL;
	pg_setup_done(&c->setup);
	if (c->resolving) {
		c->resolving->conn = NULL;
		uv_cancel((uv_req_t *)&c->resolving->uv);
		c->resolving = NULL;
	}
	c->doomed = c->blocked = false;
}

static void lose(struct pg_conn *c, const char *text)
{
	char why[sizeof(c->text)];
	one_line(why, sizeof(why), text);
	drop(c);
	c->state = WAITING;
	c->tries++;
	int64_t half = c->backoff_ns / 2;
	loop_timer_set(&c->timer, loop_now_mono_ns(c->loop) + half + (int64_t)(rng_process_next() % (uint64_t)half));
	c->backoff_ns = min_i64(c->backoff_ns * 2, BACKOFF_MAX);
	/* The oldest batch's operations come to the front of the queue. */
	struct list lost;
	list_init(&lost);
	list_splice_back(&lost, &c->batches);
	c->n_batches = 0;
	while (!list_empty(&lost)) {
		struct list *n = lost.prev;
		list_remove(n);
		pg_batch_on_lost(container_of(n, struct pg_batch, node));
	}
	c->ops->on_lost(c->arg, c, why);
}

static void lose_by_pq(struct pg_conn *c)
{
	char text[200];
	one_line(text, sizeof(text), PQerrorMessage(c->pq));
	lose(c, text[0] ? text : "the connection was closed");
}

/* libpq may close its socket and open another while it connects: watched anew at each step. */
static int watch(struct pg_conn *c, int events)
{
	int fd = PQsocket(c->pq);
	if (c->state == CONNECTING || fd != c->fd) {
		loop_poll_free(c->poll);
		c->poll = NULL;
		c->fd = fd;
		if (fd < 0)
			return -EBADF;
		int rc = loop_poll_new(c->loop, fd, on_socket, c, &c->poll);
		if (rc < 0)
			return rc;
	}
	loop_poll_set(c->poll, events);
	return 0;
}

void pg_conn_flush(struct pg_conn *c)
{
	if (!c->pq || c->state < SETUP)
		return;
	if (c->doomed) {
		lose(c, c->text);
		return;
	}
	int rc = PQflush(c->pq);
	if (rc < 0) {
		lose_by_pq(c);
		return;
	}
	if (c->blocked && !rc)
		c->ops->on_room(c->arg);
	c->blocked = rc > 0;
	if (watch(c, LOOP_READ | (rc ? LOOP_WRITE_READY : 0)) < 0)
		lose(c, "the socket can't be watched");
}

/* ---- set-up ---- */

static void prepare_all(struct pg_conn *c)
{
	if (PQenterPipelineMode(c->pq) != 1) {
		lose_by_pq(c);
		return;
	}
	c->state = PREPARING;
	c->preparing = 0;
	for (int k = 0; k < PG_KINDS; k++)
		for (int i = 0; i < pg_kinds[k].n_stmts; i++) {
			char name[32];
			snprintf(name, sizeof(name), "%s%d", pg_kinds[k].name, i);
			if (PQsendPrepare(c->pq, name, pg_kinds[k].stmts[i].sql, 0, NULL) != 1) {
				lose_by_pq(c);
				return;
			}
			c->preparing++;
		}
	if (PQpipelineSync(c->pq) != 1)
		lose_by_pq(c);
	else
		pg_conn_flush(c);
}

static void setup_step(struct pg_conn *c)
{
	const char *sql;
	char text[200];
	int rc = pg_setup_next(&c->setup, c->last, &sql, text, sizeof(text));
	PQclear(c->last);
	c->last = NULL;
	c->newer |= c->setup.newer;
	if (rc < 0)
		lose(c, text);
	else if (rc == 0)
		prepare_all(c);
	else if (PQsendQuery(c->pq, sql) != 1)
		lose_by_pq(c);
	else
		pg_conn_flush(c);
}

static void setup_results(struct pg_conn *c)
{
	while (c->state == SETUP && !PQisBusy(c->pq)) {
		PGresult *r = PQgetResult(c->pq);
		if (!r) {
			setup_step(c);
			return;
		}
		ExecStatusType st = PQresultStatus(r);
		if (st != PGRES_TUPLES_OK && st != PGRES_COMMAND_OK) {
			char text[200];
			one_line(text, sizeof(text), PQresultErrorMessage(r));
			PQclear(r);
			lose(c, text);
			return;
		}
		PQclear(c->last);
		c->last = r;
	}
}

static void connect_step(struct pg_conn *c)
{
	switch (PQconnectPoll(c->pq)) {
	case PGRES_POLLING_READING:
		if (watch(c, LOOP_READ) < 0)
			lose(c, "the socket can't be watched");
		return;
	case PGRES_POLLING_WRITING:
		if (watch(c, LOOP_WRITE_READY) < 0)
			lose(c, "the socket can't be watched");
		return;
	case PGRES_POLLING_OK:
		if (PQsetnonblocking(c->pq, 1) != 0 || watch(c, LOOP_READ) < 0) {
			lose_by_pq(c);
			return;
		}
		c->state = SETUP;
		c->setup = (struct pg_setup){.statement_timeout_ns = c->cfg->statement_timeout_ns};
		setup_step(c);
		return;
	default:
		lose_by_pq(c);
	}
}

/* ---- finding the address ---- */

struct options {
	const char *names[OPTIONS_MAX + 8], *values[OPTIONS_MAX + 8];
	int n;
};

static const char *option(const PQconninfoOption *all, const char *name)
{
	for (; all->keyword; all++)
		if (strcmp(all->keyword, name) == 0)
			return all->val && all->val[0] ? all->val : NULL;
	return NULL;
}

/* The i-th of a comma-separated list, counted round; false: the list is empty. */
static bool nth(const char *list, unsigned i, char *ret, size_t cap)
{
	if (!list)
		return false;
	unsigned n = 1;
	for (const char *p = list; *p; p++)
		n += *p == ',';
	for (i %= n; i; i--)
		list = strchr(list, ',') + 1;
	snprintf(ret, cap, "%.*s", (int)strcspn(list, ","), list);
	return true;
}

static void add(struct options *o, const char *name, const char *value)
{
	for (int i = 0; i < o->n; i++)
		if (strcmp(o->names[i], name) == 0)
			return;
	o->names[o->n] = name;
	o->values[o->n++] = value;
}

static void on_notice(void *arg, const char *text) {}

static void connect_now(struct pg_conn *c)
{
	char *err = NULL;
	PQconninfoOption *all = PQconninfoParse(c->cfg->url, &err);
	if (!all) {
		lose(c, err ? err : "no memory");
		PQfreemem(err);
		return;
	}
	char host[256], port[16];
	struct options o = {.n = 0};
	if (nth(option(all, "host"), c->tries, host, sizeof(host)))
		add(&o, "host", host);
	if (c->address[0])
		add(&o, "hostaddr", c->address);
	if (nth(option(all, "port"), c->tries, port, sizeof(port)))
		add(&o, "port", port);
	for (PQconninfoOption *p = all; p->keyword && o.n < OPTIONS_MAX; p++)
		if (p->val && p->val[0] && strcmp(p->keyword, "hostaddr") != 0)
			add(&o, p->keyword, p->val);
	add(&o, "application_name", "reinsd");
	add(&o, "client_encoding", "UTF8");
	add(&o, "gssencmode", "disable");
	add(&o, "keepalives_idle", "10");
	add(&o, "keepalives_interval", "5");
	add(&o, "keepalives_count", "3");
	add(&o, "tcp_user_timeout", "15000");
	o.names[o.n] = NULL;
	c->pq = PQconnectStartParams(o.names, o.values, 0);
	PQconninfoFree(all);
	if (!c->pq) {
		lose(c, "no memory");
		return;
	}
	c->state = CONNECTING;
	PQsetNoticeProcessor(c->pq, on_notice, NULL);
	if (PQstatus(c->pq) == CONNECTION_BAD)
		lose_by_pq(c);
	else if (watch(c, LOOP_WRITE_READY) < 0)
		lose(c, "the socket can't be watched");
}

static void on_resolved(uv_getaddrinfo_t *uv, int status, struct addrinfo *found)
{
	struct resolve *r = container_of(uv, struct resolve, uv);
	struct pg_conn *c = r->conn;
	free(r);
	if (c) {
		c->resolving = NULL;
		unsigned n = 0;
		for (struct addrinfo *a = found; a; a = a->ai_next)
			n++;
		struct addrinfo *a = found;
		for (unsigned i = n ? c->tries % n : 0; i; i--)
			a = a->ai_next;
		if (status < 0 || !a ||
		    getnameinfo(a->ai_addr, a->ai_addrlen, c->address, sizeof(c->address), NULL, 0, NI_NUMERICHOST) != 0) {
			char text[200];
			snprintf(text, sizeof(text), "the host's name can't be resolved: %s",
				 status < 0 ? uv_strerror(status) : "no address");
			lose(c, text);
		} else {
			connect_now(c);
		}
	}
	uv_freeaddrinfo(found);
}

static void begin(struct pg_conn *c)
{
	c->state = RESOLVING;
	c->address[0] = '\0';
	loop_timer_set(&c->timer, loop_now_mono_ns(c->loop) + c->cfg->connect_timeout_ns);
	PQconninfoOption *all = PQconninfoParse(c->cfg->url, NULL);
	char host[256] = "";
	bool given = all && nth(option(all, "hostaddr"), c->tries, c->address, sizeof(c->address));
	if (all && !given)
		nth(option(all, "host"), c->tries, host, sizeof(host));
	PQconninfoFree(all);
	struct in6_addr ignored;
	if (!host[0] || host[0] == '/' || host[0] == '@') {
		connect_now(c);
	} else if (inet_pton(AF_INET, host, &ignored) == 1 || inet_pton(AF_INET6, host, &ignored) == 1) {
		snprintf(c->address, sizeof(c->address), "%.63s", host);
		connect_now(c);
	} else {
		struct resolve *r = xcalloc(1, sizeof(*r));
		struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
		r->conn = c;
		int rc = uv_getaddrinfo(loop_uv(c->loop), &r->uv, on_resolved, host, NULL, &hints);
		if (rc < 0) {
			free(r);
			lose(c, uv_strerror(rc));
		} else {
			c->resolving = r;
		}
	}
}

/* ---- the pipeline ---- */

static void on_prepared(struct pg_conn *c, const PGresult *r)
{
	ExecStatusType st = PQresultStatus(r);
	if (st == PGRES_COMMAND_OK) {
		c->preparing--;
	} else if (st != PGRES_PIPELINE_SYNC) {
		if (!c->doomed)
			pg_conn_give_up(c, PQresultErrorMessage(r));
	} else if (c->preparing) {
		pg_conn_give_up(c, "not every statement was prepared");
	} else {
		c->state = READY;
		loop_timer_stop(&c->timer);
		c->ops->on_ready(c->arg, c);
	}
}

static void on_batch_result(struct pg_conn *c, const PGresult *r)
{
	struct pg_batch *b = container_of(c->batches.next, struct pg_batch, node);
	if (!r) {
		pg_batch_on_end(b);
	} else if (PQresultStatus(r) == PGRES_PIPELINE_SYNC) {
		list_remove(&b->node);
		c->n_batches--;
		/* Not at the set-up already: a server that takes connections and fails every statement is asked ever more rarely. */
		if (!b->sqlstate[0])
			c->backoff_ns = BACKOFF_MIN;
		pg_batch_on_sync(b);
		c->ops->on_room(c->arg);
	} else {
		pg_batch_on_result(b, r);
	}
}

static void pipeline_results(struct pg_conn *c)
{
	while (!c->doomed && (c->state == PREPARING || c->n_batches) && !PQisBusy(c->pq)) {
		PGresult *r = PQgetResult(c->pq);
		if (!r && PQstatus(c->pq) == CONNECTION_BAD)
			break;
		c->progress_mono_ns = loop_now_mono_ns(c->loop);
		if (c->state == READY)
			on_batch_result(c, r);
		else if (r)
			on_prepared(c, r);
		PQclear(r);
	}
}

/* False: the connection is gone. */
static bool take_input(struct pg_conn *c)
{
	if (PQconsumeInput(c->pq) != 1) {
		/* What came before the end may hold answers and the reason. */
		if (c->state >= PREPARING)
			pipeline_results(c);
		lose_by_pq(c);
		return false;
	}
	if (c->state == SETUP)
		setup_results(c);
	else
		pipeline_results(c);
	return c->pq;
}

static void on_socket(void *arg, int events)
{
	struct pg_conn *c = arg;
	if (c->state == CONNECTING) {
		connect_step(c);
		return;
	}
	if (!take_input(c))
		return;
	/* The rest of a TLS record waits in memory, of which the socket tells nothing. */
	for (int i = 0; i < TLS_READS && PQsslInUse(c->pq) && PQisBusy(c->pq); i++)
		if (!take_input(c))
			return;
	if (c->doomed)
		lose(c, c->text);
	else if (PQstatus(c->pq) == CONNECTION_BAD)
		lose_by_pq(c);
	else
		pg_conn_flush(c);
}

/* Without a byte, with statements on their way: the server would have ended one that takes too long itself. */
static int64_t patience(const struct pg_conn *c) { return c->cfg->statement_timeout_ns + c->cfg->statement_timeout_ns / 2; }

static void on_timer(struct loop_timer *t)
{
	struct pg_conn *c = container_of(t, struct pg_conn, timer);
	if (c->state == WAITING) {
		begin(c);
	} else if (c->state < READY) {
		lose(c, "no connection within the connect timeout");
	} else if (c->n_batches) {
		int64_t limit = c->progress_mono_ns + patience(c);
		int64_t before = c->progress_mono_ns;
		if (loop_now_mono_ns(c->loop) < limit) {
			loop_timer_set(t, limit);
			return;
		}
		/* It may be this process that stood still. */
		loop_timer_set(t, loop_now_mono_ns(c->loop) + patience(c) - c->cfg->statement_timeout_ns);
		on_socket(c, LOOP_READ);
		if (c->state == READY && c->n_batches && c->progress_mono_ns == before) {
			c->ops->on_silent(c->arg);
			lose(c, "no answer within the statement timeout");
		}
	}
}

struct pg_conn *pg_conn_new(struct loop *loop, const struct pg_store_config *cfg, int number,
			    const struct pg_conn_ops *ops, void *arg)
{
	struct pg_conn *c = xcalloc(1, sizeof(*c));
	c->loop = loop;
	c->cfg = cfg;
	c->number = number;
	c->ops = ops;
	c->arg = arg;
	c->fd = -1;
	c->backoff_ns = BACKOFF_MIN;
	list_init(&c->batches);
	loop_timer_init(&c->timer, loop, on_timer);
	return c;
}

void pg_conn_free(struct pg_conn *c)
{
	if (!c)
		return;
	assert(list_empty(&c->batches));
	drop(c);
	free(c);
}

void pg_conn_start(struct pg_conn *c) { loop_timer_set(&c->timer, loop_now_mono_ns(c->loop)); }
bool pg_conn_ready(const struct pg_conn *c) { return c->state == READY && !c->doomed; }
bool pg_conn_blocked(const struct pg_conn *c) { return c->blocked; }
size_t pg_conn_in_flight(const struct pg_conn *c) { return c->n_batches; }
struct list *pg_conn_batches(struct pg_conn *c) { return &c->batches; }
const char *pg_conn_warning(const struct pg_conn *c) { return c->setup.warning; }
bool pg_conn_unlabelled(const struct pg_conn *c) { return c->setup.unlabelled; }
bool pg_conn_newer_schema(const struct pg_conn *c) { return c->newer; }
const char *pg_conn_store_id(const struct pg_conn *c) { return c->setup.store_id; }

int pg_conn_send(struct pg_conn *c, struct pg_batch *b, struct pg_params *ps)
{
	int rc = pg_batch_send(b, c->pq, ps);
	if (rc < 0)
		return rc;
	int64_t now = loop_now_mono_ns(c->loop);
	if (!c->n_batches)
		c->progress_mono_ns = now;
	if (!loop_timer_active(&c->timer))
		loop_timer_set(&c->timer, now + patience(c));
	list_push_back(&c->batches, &b->node);
	c->n_batches++;
	return 0;
}

void pg_conn_give_up(struct pg_conn *c, const char *text)
{
	c->doomed = true;
	one_line(c->text, sizeof(c->text), text);
}
