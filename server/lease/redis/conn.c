/* Owns the stream, hiredis' parser, the wire and one timer, whose meaning is the state's: the next try
 * (WAITING), the end of patience with a connection in the making, or with the oldest command (UP). */
#include "server/lease/redis/conn.h"

#include "common/base/rng.h"
#include "common/stream/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#define BACKOFF_MIN (100 * NS_PER_MS)
#define BACKOFF_MAX (2 * NS_PER_S)
#define BURST 10 /* timeouts that the oldest command waits at most while replies to others come in */
#define ADDRESSES 8
#define READ_SIZE ((size_t)64 << 10)
#define READS_PER_EVENT 16
/* No reply of ours is longer; against a peer that isn't Redis. */
#define REPLY_MAX ((size_t)1 << 20)
#define ARRAY_MAX 16
#define NAMES_MAX 65536 /* in the second half of SCAN's reply */

enum conn_state { WAITING, RESOLVING, CONNECTING, GREETING, UP };
enum greeting { GREET_AUTH, GREET_SELECT, GREET_PROBE, GREET_LOAD };

/* Outlives a connection that is freed while the resolver works. */
struct resolve {
	uv_getaddrinfo_t req;
	struct redis_conn *conn;
};

struct redis_conn {
	struct loop *loop;
	struct redis_conn_config cfg;
	struct redis_url url;
	char *probe_key;
	const struct redis_conn_events *events;
	void *arg;
	enum conn_state state;
	struct redis_wire wire;
	struct stream *stream;
	redisReader *reader;
	uint8_t *read_buf;
	struct loop_timer timer;
	struct loop_dirty dirty;
	struct loop_grave grave;
	struct resolve *resolve;
	struct sockaddr_storage addrs[ADDRESSES];
	socklen_t addr_lens[ADDRESSES];
	size_t n_addrs, next_addr;
	int64_t backoff_ns;
	int64_t replied_mono_ns; /* the last reply of this connection */
};

/* ---- losing and trying anew ---- */

static void drop_stream(struct redis_conn *c)
{
	stream_close(c->stream);
	c->stream = NULL;
	if (c->reader)
		redisReaderFree(c->reader);
	c->reader = NULL;
	loop_unmark(&c->dirty);
}

static void lost(struct redis_conn *c, bool timed_out, const char *text)
{
	bool greeting = c->state != UP;
	drop_stream(c);
	c->state = WAITING;
	for (const struct redis_op *op; (op = redis_wire_head(&c->wire)); redis_wire_pop(&c->wire))
		if (!greeting)
			(void)c->events->on_reply(c->arg, op, NULL);
	redis_wire_clear(&c->wire);
	int64_t half = c->backoff_ns / 2;
	loop_timer_set(&c->timer, loop_now_mono_ns(c->loop) + half + (int64_t)(rng_process_next() % (uint64_t)half));
	c->backoff_ns = min_i64(c->backoff_ns * 2, BACKOFF_MAX);
	c->events->on_state(c->arg, false, timed_out, text);
}

/* While replies come Redis is alive and works off a burst; but nobody waits for ever. */
static int64_t patience_ends(const struct redis_conn *c, const struct redis_op *op)
{
	int64_t t = c->cfg.timeout_ns;
	return min_i64(max_i64(op->sent_mono_ns, c->replied_mono_ns) + t, op->sent_mono_ns + BURST * t);
}

static void arm(struct redis_conn *c)
{
	const struct redis_op *op = redis_wire_head(&c->wire);
	if (op && op->sent_mono_ns)
		loop_timer_set(&c->timer, patience_ends(c, op));
	else
		loop_timer_stop(&c->timer);
}

/* ---- replies ---- */

static redisReplyObjectFunctions guarded;
static void *(*create_array)(const redisReadTask *, int);

static void *create_small_array(const redisReadTask *task, int elements)
{
	int max = !task->parent ? ARRAY_MAX : !task->parent->parent ? NAMES_MAX : 0;
	return elements <= max ? create_array(task, elements) : NULL;
}

static redisReader *reader_new(void)
{
	redisReader *r = redisReaderCreate();
	if (!r)
		abort();
	if (!create_array) {
		guarded = *r->fn;
		create_array = guarded.createArray;
		guarded.createArray = create_small_array;
	}
	r->fn = &guarded;
	return r;
}

static bool is_sha(const redisReply *r)
{
	return r->type == REDIS_REPLY_STRING && r->len == REDIS_SHA_LEN &&
	       strspn(r->str, "0123456789abcdef") == REDIS_SHA_LEN;
}

/* NULL: as expected, else what was wrong. */
static const char *greeted(struct redis_conn *c, const struct redis_op *op, const redisReply *r)
{
	if (r->type == REDIS_REPLY_ERROR)
		return r->str;
	switch ((enum greeting)op->kind) {
	case GREET_AUTH:
	case GREET_SELECT:
		return r->type == REDIS_REPLY_STATUS ? NULL : "not a Redis server";
	case GREET_PROBE:
		return r->type == REDIS_REPLY_INTEGER ? NULL : "not a Redis server";
	case GREET_LOAD:
		if (!is_sha(r))
			return "not a Redis server";
		memcpy(c->wire.sha[op->cookie], r->str, REDIS_SHA_LEN + 1);
		return NULL;
	}
	return NULL;
}

static void greeting_reply(struct redis_conn *c, const struct redis_op *op, const redisReply *r)
{
	const char *wrong = greeted(c, op, r);
	if (wrong) {
		char text[256];
		snprintf(text, sizeof(text), "%s", wrong);
		lost(c, false, text);
		return;
	}
	redis_wire_pop(&c->wire);
	if (redis_wire_head(&c->wire))
		return;
	c->state = UP;
	loop_timer_stop(&c->timer);
	c->events->on_state(c->arg, true, false, "connected");
}

static void command_reply(struct redis_conn *c, const struct redis_op *op, const redisReply *r)
{
	bool forgotten = r->type == REDIS_REPLY_ERROR && op->script != SCRIPTS && !op->by_body &&
			 strncmp(r->str, "NOSCRIPT", 8) == 0;
	if (forgotten && redis_wire_again(&c->wire) == 0) {
		redis_wire_pop(&c->wire);
		redis_conn_kick(c);
		return;
	}
	/* Not at the greeting already: a Redis that is too slow for every command is asked ever more rarely. */
	if (r->type != REDIS_REPLY_ERROR)
		c->backoff_ns = BACKOFF_MIN;
	bool drop = c->events->on_reply(c->arg, op, r);
	redis_wire_pop(&c->wire);
	if (drop) {
		char text[256];
		snprintf(text, sizeof(text), "%s", r->type == REDIS_REPLY_ERROR ? r->str : "unexpected reply");
		lost(c, false, text);
	}
}

static void one_reply(struct redis_conn *c, const redisReply *r)
{
	const struct redis_op *head = redis_wire_head(&c->wire);
	if (!head || head->len > c->wire.sent) {
		char text[256];
		snprintf(text, sizeof(text), "%s", r->type == REDIS_REPLY_ERROR ? r->str : "a reply that nothing asked for");
		lost(c, false, text);
		return;
	}
	struct redis_op op = *head;
	if (c->state == GREETING)
		greeting_reply(c, &op, r);
	else
		command_reply(c, &op, r);
}

/* False: the connection is gone. */
static bool feed(struct redis_conn *c, size_t len)
{
	if (redisReaderFeed(c->reader, (const char *)c->read_buf, len) != REDIS_OK) {
		lost(c, false, "out of memory for replies");
		return false;
	}
	void *reply = NULL;
	int r;
	c->replied_mono_ns = loop_now_mono_ns(c->loop);
	while ((r = redisReaderGetReply(c->reader, &reply)) == REDIS_OK && reply) {
		one_reply(c, reply);
		freeReplyObject(reply);
		reply = NULL;
		if (!c->reader)
			return false;
	}
	if (r != REDIS_OK || c->reader->len - c->reader->pos > REPLY_MAX) {
		lost(c, false, "not a reply of Redis");
		return false;
	}
	return true;
}

/* False: the connection is gone. */
static bool read_replies(struct redis_conn *c)
{
	for (int i = 0; i < READS_PER_EVENT; i++) {
		ssize_t n = stream_read(c->stream, c->read_buf, READ_SIZE);
		if (n == -EAGAIN)
			return true;
		if (n <= 0) {
			lost(c, false, n == 0 ? "Redis closed the connection" : stream_error(c->stream));
			return false;
		}
		if (!feed(c, (size_t)n))
			return false;
	}
	stream_want(c->stream, LOOP_READ | (c->wire.sent < buf_len(&c->wire.bytes) ? LOOP_WRITE_READY : 0));
	return true;
}

/* ---- the stream ---- */

static void greet(struct redis_conn *c, enum greeting kind, uint64_t cookie, uint32_t argc, const char *const *argv)
{
	redis_wire_begin(&c->wire, (uint8_t)kind, cookie, SCRIPTS, argc);
	for (uint32_t i = 0; i < argc; i++)
		redis_wire_str(&c->wire, argv[i]);
	if (redis_wire_end(&c->wire) < 0)
		abort(); /* limits below a dozen commands are refused at creation */
}

static void on_open(void *arg)
{
	struct redis_conn *c = arg;
	char db[24];
	c->state = GREETING;
	c->reader = reader_new();
	if (c->url.password && c->url.user)
		greet(c, GREET_AUTH, 0, 3, (const char *const[]){ "AUTH", c->url.user, c->url.password });
	else if (c->url.password)
		greet(c, GREET_AUTH, 0, 2, (const char *const[]){ "AUTH", c->url.password });
	snprintf(db, sizeof(db), "%lld", (long long)c->url.db);
	if (c->url.db)
		greet(c, GREET_SELECT, 0, 2, (const char *const[]){ "SELECT", db });
	for (uint64_t i = 0; i < SCRIPTS; i++)
		greet(c, GREET_LOAD, i, 3, (const char *const[]){ "SCRIPT", "LOAD", redis_scripts[i] });
	greet(c, GREET_PROBE, 0, 2, (const char *const[]){ "DEL", c->probe_key });
	stream_want(c->stream, LOOP_READ);
	redis_conn_kick(c);
}

static void on_ready(void *arg, int events)
{
	struct redis_conn *c = arg;
	if ((events & LOOP_READ) && !read_replies(c))
		return;
	if (c->state == UP)
		arm(c);
	if (events & LOOP_WRITE_READY)
		redis_conn_kick(c);
}

static void on_broken(void *arg, int err, const char *text)
{
	lost(arg, false, text);
}

static const struct stream_events stream_events = { .on_open = on_open, .on_ready = on_ready, .on_broken = on_broken };

static void flush(struct loop_dirty *d)
{
	struct redis_conn *c = container_of(d, struct redis_conn, dirty);
	if (!c->reader)
		return;
	redis_wire_stamp(&c->wire, loop_now_mono_ns(c->loop));
	size_t left;
	while ((left = buf_len(&c->wire.bytes) - c->wire.sent) > 0) {
		/* iovec has no const; the stream only reads. */
		struct iovec v = { .iov_base = (void *)(uintptr_t)(buf_head(&c->wire.bytes) + c->wire.sent), .iov_len = left };
		ssize_t n = stream_writev(c->stream, &v, 1);
		if (n == -EAGAIN)
			break;
		if (n < 0) {
			lost(c, false, stream_error(c->stream));
			return;
		}
		c->wire.sent += (size_t)n;
	}
	stream_want(c->stream, LOOP_READ | (left ? LOOP_WRITE_READY : 0));
	if (c->state == UP && !loop_timer_active(&c->timer))
		arm(c);
}

static void connect_next(struct redis_conn *c)
{
	size_t i = c->next_addr++ % c->n_addrs;
	c->state = CONNECTING;
	loop_timer_set(&c->timer, loop_now_mono_ns(c->loop) + c->cfg.connect_timeout_ns);
	int r = stream_connect(c->loop, (const struct sockaddr *)&c->addrs[i], c->addr_lens[i], c->url.tls ? c->cfg.tls : NULL,
			       c->url.host, &stream_events, c, &c->stream);
	if (r < 0) {
		c->stream = NULL;
		lost(c, false, strerror(-r));
	}
}

/* ---- names ---- */

static void add_address(struct redis_conn *c, const struct sockaddr *addr, socklen_t len)
{
	if (c->n_addrs == ADDRESSES || len > sizeof(c->addrs[0]))
		return;
	memcpy(&c->addrs[c->n_addrs], addr, len);
	c->addr_lens[c->n_addrs++] = len;
}

static bool literal_address(struct redis_conn *c)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	in.sin_port = in6.sin6_port = htons((uint16_t)strtoul(c->url.port, NULL, 10));
	if (inet_pton(AF_INET, c->url.host, &in.sin_addr) == 1)
		add_address(c, (const struct sockaddr *)&in, sizeof(in));
	else if (inet_pton(AF_INET6, c->url.host, &in6.sin6_addr) == 1)
		add_address(c, (const struct sockaddr *)&in6, sizeof(in6));
	return c->n_addrs > 0;
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *found)
{
	struct resolve *r = container_of(req, struct resolve, req);
	struct redis_conn *c = r->conn;
	free(r);
	if (c) {
		c->resolve = NULL;
		for (const struct addrinfo *a = found; a && status == 0; a = a->ai_next)
			add_address(c, a->ai_addr, a->ai_addrlen);
	}
	uv_freeaddrinfo(found);
	if (!c)
		return;
	if (c->n_addrs) {
		connect_next(c);
		return;
	}
	char text[400];
	snprintf(text, sizeof(text), "%s: %s", c->url.host, status ? uv_strerror(status) : "no address");
	lost(c, false, text);
}

static void start(struct redis_conn *c)
{
	/* A name is looked up each time: after a failover it may lead elsewhere. Its addresses take turns. */
	c->n_addrs = 0;
	if (literal_address(c)) {
		connect_next(c);
		return;
	}
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct resolve *r = xcalloc(1, sizeof(*r));
	r->conn = c;
	c->state = RESOLVING;
	int err = uv_getaddrinfo(loop_uv(c->loop), &r->req, on_resolved, c->url.host, c->url.port, &hints);
	if (err < 0) {
		free(r);
		lost(c, false, uv_strerror(err));
		return;
	}
	c->resolve = r;
}

/* ---- the timer ---- */

static void fire(struct loop_timer *t)
{
	struct redis_conn *c = container_of(t, struct redis_conn, timer);
	char text[80], limit[40];
	if (c->state == WAITING) {
		start(c);
		return;
	}
	/* A loop that stood still sees its timers before its sockets: what has come counts. */
	if (c->reader && !read_replies(c))
		return;
	bool up = c->state == UP;
	const struct redis_op *op = redis_wire_head(&c->wire);
	if (up && !(op && op->sent_mono_ns && patience_ends(c, op) <= loop_now_mono_ns(c->loop))) {
		arm(c);
		return;
	}
	int64_t ms = (up ? c->cfg.timeout_ns : c->cfg.connect_timeout_ns) / NS_PER_MS;
	snprintf(limit, sizeof(limit), "%lldms", (long long)ms);
	snprintf(text, sizeof(text), "%s within %s", up ? "no reply" : "not connected", limit);
	lost(c, true, text);
}

/* ---- life ---- */

struct redis_conn *redis_conn_new(struct loop *loop, const struct redis_conn_config *cfg, const struct redis_conn_events *events,
				  void *arg)
{
	struct redis_conn *c = xcalloc(1, sizeof(*c));
	c->loop = loop;
	c->cfg = *cfg;
	c->cfg.url = NULL;
	c->cfg.probe_key = NULL;
	c->url = (struct redis_url){ .host = xstrdup(cfg->url->host), .port = xstrdup(cfg->url->port), .db = cfg->url->db,
				     .tls = cfg->url->tls };
	if (cfg->url->user)
		c->url.user = xstrdup(cfg->url->user);
	if (cfg->url->password)
		c->url.password = xstrdup(cfg->url->password);
	c->probe_key = xstrdup(cfg->probe_key);
	c->events = events;
	c->arg = arg;
	c->backoff_ns = BACKOFF_MIN;
	c->read_buf = xcalloc(READ_SIZE, 1);
	redis_wire_init(&c->wire, max_sz(cfg->max_pending, 16), max_sz(cfg->max_bytes, READ_SIZE));
	loop_timer_init(&c->timer, loop, fire);
	loop_dirty_init(&c->dirty, LOOP_LEASE, flush);
	loop_timer_set(&c->timer, loop_now_mono_ns(loop));
	return c;
}

static void bury(struct loop_grave *g)
{
	struct redis_conn *c = container_of(g, struct redis_conn, grave);
	redis_wire_done(&c->wire);
	redis_url_done(&c->url);
	free(c->probe_key);
	free(c->read_buf);
	free(c);
}

void redis_conn_free(struct redis_conn *c)
{
	loop_timer_stop(&c->timer);
	drop_stream(c);
	if (c->resolve) {
		c->resolve->conn = NULL;
		uv_cancel((uv_req_t *)&c->resolve->req);
		c->resolve = NULL;
	}
	loop_bury(c->loop, &c->grave, bury);
}

bool redis_conn_up(const struct redis_conn *c)
{
	return c->state == UP;
}

struct redis_wire *redis_conn_wire(struct redis_conn *c)
{
	return &c->wire;
}

void redis_conn_kick(struct redis_conn *c)
{
	loop_mark(c->loop, &c->dirty);
}
