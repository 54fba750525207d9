/* The lease table in Redis when Redis is away, full, slow, forgetful, or not Redis at all. */
#include "server/lease/redis/redis.h"
#include "server/lease/redis/scan.h"
#include "server/lease/redis/scripts.h"
#include "server/lease/redis/url.h"

#include "common/base/rng.h"
#include "common/stream/stream.h"
#include "tests/unit/lease_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct redis_server server;

static struct fixture *open_with(const struct fixture_options *o)
{
	static struct fixture f;
	redis_server_do(&server, "FLUSHALL");
	fixture_open(&f, FIXTURE_REDIS, &server, o);
	return &f;
}

static int64_t calls_of(const char *command)
{
	char name[64];
	redisReply *r = redis_server_ask(&server, "INFO commandstats");
	snprintf(name, sizeof(name), "cmdstat_%s:calls=", command);
	const char *at = strstr(r->str, name);
	int64_t n = at ? strtoll(at + strlen(name), NULL, 10) : 0;
	freeReplyObject(r);
	return n;
}

static int64_t dropped(struct fixture *f)
{
	struct lease_stats s;
	lease_stats(f->l, &s);
	return s.dropped;
}

/* Every key that there is, by its exact name. */
static void key_names(void **state)
{
	struct fixture *f = open_with(NULL);
	static const char *const names[] = {
		"reins:worker:{gpu-1}:hb",
		"reins:worker:{gpu-1}:task",
		"reins:task:{01020304-0506-7708-890a-000001000000}:workerId",
	};
	own(f, 1, 1, "gpu-1", 1);
	beat(f, "gpu-1", 1, NS_PER_S, &(const struct lease_held){ task_id(1), 1, false }, 1);
	redisReply *r = redis_server_ask(&server, "KEYS *");
	assert_int_equal(r->elements, ARRAY_LEN(names));
	freeReplyObject(r);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		r = redis_server_ask(&server, "EXISTS %s", names[i]);
		assert_int_equal(r->integer, 1);
		freeReplyObject(r);
	}
	r = redis_server_ask(&server, "TYPE %s", names[1]);
	assert_string_equal(r->str, "hash");
	freeReplyObject(r);
	fixture_close(f);
}

/* ---- sweeping ---- */

/* Whatever lies beside our keys, or under their names: it is not on a page, and not touched. */
static void sweep_among_others(void **state)
{
	struct fixture *f = open_with(NULL);
	static const char *const names[] = {
		"reins:task:{}:workerId", "reins:task:{1}:workerId", "reins:task:{01020304-0506-7708-890a-00000100000g}:workerId",
		"reins:worker:{}:task", "reins:worker:{a b}:task", "reins:worker:{x", "reins:", "other:worker:{w1}:task",
		"other:task:{01020304-0506-7708-890a-000002000000}:workerId", "task", "reins:worker:{\xff}:task",
	};
	static const char *const values[] = {
		"", " ", "w1", "w1 1", " 1 1", "w1  1", "w1 1 ", "w1 1 1x", "w1 1 -1", "w1 1 2147483648", "w1 9223372036854775808 1",
		"a b 1 1", "\xff 1 1",
	};
	own(f, 1, 1, "w1", 7);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		redis_server_do(&server, "SET %s 1", names[i]);
	redis_server_do(&server, "LPUSH reins:task:{01020304-0506-7708-890a-000003000000}:workerId x");
	redis_server_do(&server, "SET reins:worker:{w9}:task x"); /* no hash, but where one would be: it goes, as ours */
	redis_server_do(&server, "SETRANGE reins:task:{01020304-0506-7708-890a-000004000000}:workerId 3000000 x");
	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		redis_server_do(&server, "SET reins:task:{01020304-0506-7708-890a-000005000000}:workerId %s", values[i]);
		const struct lease_page *p = scan(f, 0);
		assert_true(p->ok);
		assert_int_equal(p->n_owners, 1);
		assert_int_equal(p->n_hashes, 2);
	}
	assert_int_equal(f->n_states, 1);
	assert_true(lease_is_up(f->l));
	fixture_close(f);
}

/* A prefix is a text, whatever it means as a pattern. */
static void sweep_pattern(void **state)
{
	static const char *const prefixes[] = { "reins:", "", "a*b:", "[x]?:", "back\\slash:", "^-]:" };
	char pattern[128], name[128];
	redis_server_do(&server, "FLUSHALL");
	for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
		snprintf(name, sizeof(name), "%stask:{1}:workerId", prefixes[i]);
		redis_server_do(&server, "SET %s 1", name);
		snprintf(name, sizeof(name), "%sworker:{1}:task", prefixes[i]);
		redis_server_do(&server, "SET %s 1", name);
		snprintf(name, sizeof(name), "%sworker:{1}:hb", prefixes[i]);
		redis_server_do(&server, "SET %s 1", name);
	}
	redis_server_do(&server, "SET aXXb:worker:{1}:task 1");
	redis_server_do(&server, "SET xY:worker:{1}:task 1");
	for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
		redis_scan_pattern(prefixes[i], strlen(prefixes[i]), pattern);
		redisReply *r = redis_server_ask(&server, "KEYS %s", pattern);
		assert_int_equal(r->elements, *prefixes[i] ? 2 : 2 * ARRAY_LEN(prefixes) + 2);
		freeReplyObject(r);
	}
	redis_server_do(&server, "FLUSHALL");
}

/* A page costs the same in a table of other people's keys. */
static void sweep_large_table(void **state)
{
	enum { N = 100000 };
	struct fixture *f = open_with(NULL);
	redis_server_do(&server, "EVAL %s 0 %d", "for i = 1, ARGV[1] do redis.call('SET', 'other:' .. i, 1) end", N);
	own(f, 1, 1, "w1", 7);
	redis_server_do(&server, "CONFIG RESETSTAT");
	size_t pages = 0, found = 0;
	uint64_t next = 0;
	do {
		const struct lease_page *p = scan(f, next);
		assert_true(p->ok);
		next = p->next;
		found += p->n_owners;
		pages++;
	} while (next);
	assert_true(found >= 1);
	assert_in_range(pages, N / 512, N / 64);
	assert_int_equal(calls_of("scan"), pages);
	assert_in_range(calls_of("getrange"), 1, 2);
	redis_server_do(&server, "FLUSHALL");
	fixture_close(f);
}

static void sweep_while_away(void **state)
{
	struct fixture *f = open_with(&(struct fixture_options){ .timeout_ns = 50 * NS_PER_MS });
	own(f, 1, 1, "w1", 7);
	kill(server.pid, SIGSTOP);
	assert_false(scan(f, 0)->ok);
	UNTIL(f, !f->up);
	assert_false(scan(f, 0)->ok);
	own(f, 1, 1, "w1", 7);
	lease_disown(f->l, &(const struct lease_owner){ task_id(1), 1, "w1", 7 }, 1);
	lease_drop_hash(f->l, "w1");
	assert_int_equal(dropped(f), 3);
	kill(server.pid, SIGCONT);
	UNTIL(f, f->up);
	assert_int_equal(scan(f, 0)->n_owners, 1);
	/* Who may not look is not refused the rest. */
	redis_server_do(&server, "ACL SETUSER default -scan");
	assert_false(scan(f, 0)->ok);
	redis_server_do(&server, "ACL SETUSER default +scan -getrange");
	assert_int_equal(scan(f, 0)->n_owners, 0);
	redis_server_do(&server, "ACL SETUSER default +getrange");
	assert_true(lease_is_up(f->l));
	assert_int_equal(scan(f, 0)->n_owners, 1);
	fixture_close(f);
}

/* What a reply says, as text of the protocol, to the names that are taken from it; -1: it is refused. */
static int names_in(const char *text)
{
	struct redis_scan s;
	redis_scan_init(&s);
	redis_scan_begin(&s, 0);
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;
	redisReaderFeed(reader, text, strlen(text));
	assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
	int n = redis_scan_names(&s, "r:", 2, reply) ? (int)s.n : -1;
	if (reply)
		freeReplyObject(reply);
	redisReaderFree(reader);
	redis_scan_done(&s);
	return n;
}

static void sweep_replies(void **state)
{
	assert_int_equal(names_in("*2\r\n$1\r\n0\r\n*0\r\n"), 0);
	assert_int_equal(names_in("*2\r\n$20\r\n18446744073709551615\r\n*1\r\n$17\r\nr:worker:{w}:task\r\n"), 1);
	assert_int_equal(names_in("*2\r\n$1\r\n0\r\n*3\r\n:1\r\n$-1\r\n$17\r\nx:worker:{w}:task\r\n"), 0);
	static const char *const wrong[] = {
		"*2\r\n$20\r\n18446744073709551616\r\n*0\r\n", "*2\r\n$0\r\n\r\n*0\r\n", "*2\r\n$2\r\n-1\r\n*0\r\n",
		"*2\r\n:0\r\n*0\r\n", "*1\r\n$1\r\n0\r\n", "*2\r\n$1\r\n0\r\n$1\r\n0\r\n", ":0\r\n", "-ERR no\r\n", "$-1\r\n", "",
	};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(names_in(wrong[i]), -1);
}

static void script_flush(void **state)
{
	struct fixture *f = open_with(NULL);
	int64_t ttl;
	struct lease_slot s = slot_of(1, "w1", 7, 9);
	assert_int_equal(preempt(f, &s), LEASE_OK);
	redis_server_do(&server, "CONFIG RESETSTAT");
	redis_server_do(&server, "SCRIPT FLUSH");
	s = slot_of(2, "w1", 7, 9);
	assert_int_equal(preempt(f, &s), LEASE_OK);
	assert_int_equal(calls_of("eval"), 1); /* the body, once */
	assert_int_equal(preempt(f, &s), LEASE_OK);
	assert_int_equal(calls_of("eval"), 1);
	redis_server_do(&server, "SCRIPT FLUSH");
	own(f, 1, 3, "w1", 7);
	assert_string_equal(look_field(f, "w1", 1, &ttl), "3");
	redis_server_do(&server, "SCRIPT FLUSH");
	release(f, 1, 3, "w1");
	assert_string_equal(look_field(f, "w1", 1, &ttl), "");
	assert_string_equal(look_owner(f, 1, &ttl), "");
	redis_server_do(&server, "SCRIPT FLUSH");
	beat(f, "w1", 8, NS_PER_S, NULL, 0);
	redis_server_do(&server, "SCRIPT FLUSH");
	assert_int_equal(query(f, "w1")->session, 8);

	struct lease_slot many[300];
	for (unsigned i = 0; i < ARRAY_LEN(many); i++) {
		many[i] = slot_of(i, "w9", 1, 300);
		f->verdicts[i] = NO_VERDICT;
	}
	size_t before = f->n_answers;
	redis_server_do(&server, "SCRIPT FLUSH");
	lease_preempt(f->l, many, ARRAY_LEN(many));
	UNTIL(f, f->n_answers == before + ARRAY_LEN(many));
	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		assert_int_equal(f->verdicts[i], LEASE_OK);
	assert_int_equal(dropped(f), 0);
	assert_int_equal(f->n_states, 1);
	fixture_close(f);
}

static void flushall(void **state)
{
	struct fixture *f = open_with(NULL);
	int64_t ttl;
	const struct lease_held held[] = { { task_id(1), 1, false }, { task_id(2), 2, false } };
	beat(f, "w1", 7, 10 * NS_PER_S, held, 2);
	redis_server_do(&server, "FLUSHALL");
	beat(f, "w1", 7, 10 * NS_PER_S, held, 2);
	assert_string_equal(look_hb(f, "w1", &ttl), "m1 7");
	assert_int_equal(look_held(f, "w1"), 2);
	assert_string_equal(look_owner(f, 1, &ttl), "w1 7 1");
	assert_string_equal(look_owner(f, 2, &ttl), "w1 7 2");
	fixture_close(f);
}

static void out_of_memory(void **state)
{
	struct fixture *f = open_with(NULL);
	struct lease_slot s = slot_of(1, "w1", 7, 9);
	redis_server_do(&server, "CONFIG SET maxmemory-policy noeviction");
	redis_server_do(&server, "CONFIG SET maxmemory 1");
	assert_int_equal(preempt(f, &s), LEASE_DOWN);
	assert_false(lease_is_up(f->l));
	UNTIL(f, !f->up);
	assert_non_null(strstr(f->state_text, "OOM"));
	beat(f, "w1", 7, NS_PER_S, NULL, 0);
	release(f, 1, 1, "w1"); /* deleting works, and doesn't count as well again */
	assert_int_equal(dropped(f), 1);
	assert_false(lease_is_up(f->l));
	redis_server_do(&server, "CONFIG SET maxmemory 0");
	beat(f, "w1", 7, NS_PER_S, NULL, 0);
	assert_true(lease_is_up(f->l));
	UNTIL(f, f->up);
	assert_int_equal(preempt(f, &s), LEASE_OK);
	fixture_close(f);
}

static void foreign_key(void **state)
{
	struct fixture *f = open_with(NULL);
	struct lease_slot s = slot_of(1, "w1", 7, 9), other = slot_of(2, "w2", 7, 9);
	redis_server_do(&server, "LPUSH reins:worker:{w1}:hb x");
	assert_int_equal(preempt(f, &s), LEASE_DOWN);
	assert_int_equal(query(f, "w1")->presence, LEASE_UNKNOWN);
	assert_int_equal(preempt(f, &other), LEASE_OK);
	assert_int_equal(f->n_states, 1);
	assert_true(lease_is_up(f->l));
	static const char *const odd[] = { "nonsense", "m1", " 9", "m1 9x", "m1 99999999999999999999", "m1 -3" };
	for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
		redis_server_do(&server, "SET reins:worker:{w3}:hb %s", odd[i]);
		assert_int_equal(query(f, "w3")->presence, LEASE_UNKNOWN);
	}
	redis_server_do(&server, "SET reins:worker:{w3}:hb nonsense");
	s = slot_of(3, "w3", 7, 9);
	assert_int_equal(preempt(f, &s), LEASE_OK);
	assert_int_equal(query(f, "w3")->session, 7);
	fixture_close(f);
}

/* A replica after a failover: the connection is left, and a new one is good only when writes go through. */
static void read_only(void **state)
{
	struct fixture *f = open_with(NULL);
	struct lease_slot s = slot_of(1, "w1", 7, 9);
	redis_server_do(&server, "REPLICAOF 127.0.0.1 1");
	assert_int_equal(preempt(f, &s), LEASE_DOWN);
	UNTIL(f, !f->up);
	assert_non_null(strstr(f->state_text, "READONLY"));
	for (int i = 0; i < 3; i++)
		assert_int_equal(preempt(f, &s), LEASE_DOWN);
	assert_int_equal(f->n_states, 2);
	redis_server_do(&server, "REPLICAOF NO ONE");
	UNTIL(f, f->up);
	assert_int_equal(preempt(f, &s), LEASE_OK);
	fixture_close(f);
}

static void stopped(void **state)
{
	struct fixture *f = open_with(&(struct fixture_options){ .timeout_ns = 50 * NS_PER_MS });
	struct lease_slot s = slot_of(1, "w1", 7, 9);
	struct lease_stats stats;
	kill(server.pid, SIGSTOP);
	assert_int_equal(preempt(f, &s), LEASE_DOWN);
	UNTIL(f, !f->up);
	lease_stats(f->l, &stats);
	assert_true(stats.timeouts >= 1);
	assert_int_equal(stats.pending, 0);
	assert_non_null(strstr(f->state_text, "no reply within 50ms"));
	assert_int_equal(preempt(f, &s), LEASE_DOWN); /* at once: nothing is queued for a Redis that is away */
	assert_int_equal(query(f, "w1")->presence, LEASE_UNKNOWN);
	own(f, 1, 1, "w1", 7);
	assert_int_equal(dropped(f), 1);
	kill(server.pid, SIGCONT);
	UNTIL(f, f->up);
	assert_int_equal(preempt(f, &s), LEASE_OK);
	lease_stats(f->l, &stats);
	assert_int_equal(stats.connects, 2);
	fixture_close(f);
}

/* A loop that stood still for longer than the timeout finds the reply in the socket: no reason to doubt Redis. */
static void loop_stood_still(void **state)
{
	struct fixture *f = open_with(&(struct fixture_options){ .timeout_ns = 50 * NS_PER_MS });
	struct lease_slot s = slot_of(1, "w1", 7, 9);
	kill(server.pid, SIGSTOP); /* so that the reply comes while the loop stands still, not before */
	lease_preempt(f->l, &s, 1);
	loop_turn(f->loop, false);
	kill(server.pid, SIGCONT);
	nanosleep(&(struct timespec){ .tv_nsec = 200 * NS_PER_MS }, NULL);
	UNTIL(f, f->verdicts[1] != NO_VERDICT);
	assert_int_equal(f->verdicts[1], LEASE_OK);
	assert_int_equal(f->n_states, 1);
	fixture_close(f);
}

static void killed(void **state)
{
	struct fixture *f = open_with(NULL);
	struct lease_slot s = slot_of(1, "w1", 7, 9);
	int64_t ttl;
	lease_preempt(f->l, &s, 1);
	redis_server_kill(&server);
	UNTIL(f, !f->up);
	assert_true(f->verdicts[1] == LEASE_DOWN || f->verdicts[1] == LEASE_OK);
	assert_int_equal(preempt(f, &s), LEASE_DOWN);
	redis_server_restart(&server);
	UNTIL(f, f->up);
	assert_int_equal(preempt(f, &s), LEASE_OK); /* scripts are known again */
	assert_string_equal(look_field(f, "w1", 1, &ttl), "0");
	fixture_close(f);
}

static void never_there(void **state)
{
	struct fixture f;
	struct lease_slot s = slot_of(1, "w1", 7, 9);
	fixture_open(&f, FIXTURE_REDIS, NULL, &(struct fixture_options){ .url = "redis://127.0.0.1:1", .stay_down = true });
	assert_int_equal(preempt(&f, &s), LEASE_DOWN);
	UNTIL(&f, f.n_states == 1);
	assert_false(f.up);
	struct lease_stats stats;
	fixture_close(&f);
	/* A name that doesn't resolve, and the table freed while the resolver works. */
	fixture_open(&f, FIXTURE_REDIS, NULL, &(struct fixture_options){ .url = "redis://no-such-host.invalid", .stay_down = true });
	UNTIL(&f, f.n_states == 1);
	assert_non_null(strstr(f.state_text, "no-such-host.invalid"));
	lease_stats(f.l, &stats);
	assert_int_equal(stats.connects, 0);
	fixture_close(&f);
}

static void by_name(void **state)
{
	char url[64];
	snprintf(url, sizeof(url), "redis://localhost:%d/3", server.port);
	struct fixture *f = open_with(&(struct fixture_options){ .url = url });
	struct lease_slot s = slot_of(1, "w1", 7, 9);
	int64_t ttl;
	assert_int_equal(preempt(f, &s), LEASE_OK);
	assert_string_equal(look_hb(f, "w1", &ttl), "");
	redis_server_do(&server, "SELECT 3");
	assert_string_equal(look_hb(f, "w1", &ttl), "m1 7");
	redis_server_do(&server, "SELECT 0");
	fixture_close(f);
}

static void passwords(void **state)
{
	char url[96];
	redis_server_do(&server, "ACL SETUSER reins on >p:s/t@1 ~reins:* +@all");
	snprintf(url, sizeof(url), "redis://reins:p:s%%2ft@1@127.0.0.1:%d", server.port);
	struct fixture *f = open_with(&(struct fixture_options){ .url = url });
	struct lease_slot s = slot_of(1, "w1", 7, 9);
	assert_int_equal(preempt(f, &s), LEASE_OK);
	fixture_close(f);
	snprintf(url, sizeof(url), "redis://reins:sesame@127.0.0.1:%d", server.port);
	f = open_with(&(struct fixture_options){ .url = url, .stay_down = true });
	UNTIL(f, f->n_states == 1);
	assert_false(f->up);
	assert_non_null(strstr(f->state_text, "WRONGPASS"));
	assert_null(strstr(f->state_text, "sesame"));
	fixture_close(f);
	redis_server_do(&server, "CONFIG SET requirepass open");
	f = open_with(&(struct fixture_options){ .stay_down = true });
	UNTIL(f, f->n_states == 1);
	assert_non_null(strstr(f->state_text, "NOAUTH"));
	fixture_close(f);
	snprintf(url, sizeof(url), "redis://:open@127.0.0.1:%d", server.port);
	f = open_with(&(struct fixture_options){ .url = url });
	fixture_close(f);
	redis_server_do(&server, "CONFIG SET requirepass %s", "");
}

static void urls(void **state)
{
	struct redis_url u;
	char err[200];
	assert_int_equal(redis_url_parse("rediss://:a%40b@[::1]:77/12", &u, err, sizeof(err)), 0);
	assert_string_equal(u.host, "::1");
	assert_string_equal(u.port, "77");
	assert_string_equal(u.password, "a@b");
	assert_null(u.user);
	assert_int_equal(u.db, 12);
	assert_true(u.tls);
	redis_url_done(&u);
	assert_int_equal(redis_url_parse("redis://h/", &u, err, sizeof(err)), 0);
	assert_string_equal(u.host, "h");
	assert_string_equal(u.port, "6379");
	redis_url_done(&u);
	static const char *const bad[] = {
		"",          "http://h",       "redis://",         "redis://:6379",   "redis://h:0",      "redis://h:65536",
		"redis://h:x", "redis://h/x",  "redis://h/-1",     "redis://h/1/2",   "redis://hush@h",   "redis://u:@h",
		"redis://[::1", "redis://[::1]x", "redis://u:hush%@h", "redis://u:hush%4@h", "redis://u:hush%00@h",
		"redis://u:hush@h?x=1", "redis://u:hush@h:port",
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (redis_url_parse(bad[i], &u, err, sizeof(err)) == 0)
			fail_msg("accepted: %s", bad[i]);
		assert_null(strstr(err, "hush"));
	}
	struct loop *loop;
	struct lease *l = NULL;
	assert_int_equal(loop_new(&loop), 0);
	struct lease_redis_config cfg = { .url = "rediss://h", .prefix = "reins:" };
	assert_true(lease_redis_new(loop, &cfg, NULL, NULL, err, sizeof(err), &l) < 0);
	assert_non_null(strstr(err, "TLS"));
	loop_free(loop);
}

/* ---- a server that is not Redis ---- */

struct fake {
	struct listener *listener;
	struct stream *stream;
	char greeting[1024];
	const char *first;      /* sent at accept instead of waiting for the greeting */
	const void *answer;     /* to whatever comes after the greeting */
	size_t answer_len;
	const char *unsent;
	size_t n_unsent;
	int requests;
	bool close_after;
};

static void fake_send(struct fake *k, const void *data, size_t len)
{
	struct iovec v = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	ssize_t n = len ? stream_writev(k->stream, &v, 1) : 0;
	size_t sent = n > 0 ? (size_t)n : 0;
	k->unsent = (const char *)data + sent;
	k->n_unsent = n < 0 && n != -EAGAIN ? 0 : len - sent;
	stream_want(k->stream, LOOP_READ | (k->n_unsent ? LOOP_WRITE_READY : 0));
}

static void fake_close(struct fake *k)
{
	stream_close(k->stream);
	k->stream = NULL;
}

static void fake_ready(void *arg, int what)
{
	struct fake *k = arg;
	char data[65536];
	ssize_t n, all = 0;
	if (k->n_unsent)
		fake_send(k, k->unsent, k->n_unsent);
	while ((n = stream_read(k->stream, data, sizeof(data))) > 0)
		all += n;
	if (n != -EAGAIN) {
		fake_close(k);
		return;
	}
	if (all == 0)
		return;
	if (k->requests++ == 0) {
		fake_send(k, k->greeting, strlen(k->greeting));
		return;
	}
	fake_send(k, k->answer, k->answer_len);
	if (k->close_after)
		fake_close(k);
}

static void fake_broken(void *arg, int err, const char *text)
{
	fake_close(arg);
}

static const struct stream_events fake_events = { .on_ready = fake_ready, .on_broken = fake_broken };

static void fake_accept(void *arg, struct stream *s)
{
	struct fake *k = arg;
	fake_close(k);
	k->stream = s;
	k->requests = 0;
	k->n_unsent = 0;
	stream_set_events(s, &fake_events, k);
	stream_want(s, LOOP_READ);
	if (k->first)
		fake_send(k, k->first, strlen(k->first));
}

static void fake_open(struct fake *k, struct fixture *f)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_storage bound;
	socklen_t len;
	char url[64];
	/* The table of a fixture that was opened on a port where nobody listens is exchanged for one on the fake's. */
	fixture_open(f, FIXTURE_REDIS, NULL, &(struct fixture_options){ .url = "redis://127.0.0.1:1", .stay_down = true });
	const struct listener_config cfg = { .addr = (struct sockaddr *)&a, .addr_len = sizeof(a) };
	assert_int_equal(listener_new(f->loop, &cfg, fake_accept, k, &k->listener), 0);
	listener_address(k->listener, &bound, &len);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d", ntohs(((struct sockaddr_in *)(void *)&bound)->sin_port));
	fixture_exchange(f, url);
	if (!k->greeting[0])
		for (int i = 0; i <= SCRIPTS; i++)
			snprintf(k->greeting + strlen(k->greeting), sizeof(k->greeting) - strlen(k->greeting), "%s",
				 i == SCRIPTS ? ":0\r\n" : "$40\r\n0123456789abcdef0123456789abcdef01234567\r\n");
}

static void fake_done(struct fake *k, struct fixture *f)
{
	fake_close(k);
	listener_free(k->listener);
	fixture_close(f);
}

static void not_redis(void **state)
{
	static const char *const greetings[] = {
		"HTTP/1.1 400 Bad Request\r\n\r\n", "-ERR max number of clients reached\r\n", "$40\r\nabc\r\n", "\r\n\r\n", "*-1\r\n",
		"$-1\r\n", "*1000000000\r\n", "$99999999999999999999\r\n", "*2\r\n$1\r\na\r\n*1\r\n", "+OK\r\n", ":1\r\n",
		"$40\r\n0123456789abcdef0123456789abcdef0123456\0\r\n", "$-5\r\n", "-\r\n", "%1\r\n+a\r\n+b\r\n",
		"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
	};
	for (size_t i = 0; i < 2 * ARRAY_LEN(greetings); i++) {
		struct fixture f;
		struct fake k = { 0 };
		const char *text = greetings[i / 2];
		if (i % 2)
			k.first = text; /* before anything was asked */
		snprintf(k.greeting, sizeof(k.greeting), "%s", text);
		fake_open(&k, &f);
		UNTIL(&f, k.stream && (k.requests || k.first));
		struct lease_slot s = slot_of(1, "w1", 7, 9);
		assert_int_equal(preempt(&f, &s), LEASE_DOWN);
		assert_false(lease_is_up(f.l));
		fake_done(&k, &f);
	}
}

static char last_text[256];

static int answered(const void *answer, size_t len, bool close_after, bool *ret_up)
{
	struct fixture f;
	struct fake k = { .answer = answer, .answer_len = len, .close_after = close_after };
	fake_open(&k, &f);
	UNTIL(&f, f.n_states == 1 && f.up);
	struct lease_slot s = slot_of(1, "w1", 7, 9);
	int v = preempt(&f, &s);
	loop_turn(f.loop, false);
	*ret_up = lease_is_up(f.l);
	memcpy(last_text, f.state_text, sizeof(last_text));
	fake_done(&k, &f);
	return v;
}

static void wrong_answers(void **state)
{
	static const struct {
		const char *answer;
		int verdict;
		bool close, up;
	} cases[] = {
		{ "$1\r\n0\r\n", LEASE_OK, false, true },
		{ "$1\r\n2\r\n", LEASE_FULL, false, true },
		{ "$1\r\n9\r\n", LEASE_DOWN, false, true },
		{ "$2\r\n00\r\n", LEASE_DOWN, false, true }, /* for more slots than were asked for */
		{ "$0\r\n\r\n", LEASE_DOWN, false, true },
		{ "$1\r\n0\r\n:0\r\n", LEASE_OK, false, false }, /* one more than was asked */
		{ "$1\r\n0\r\n+hello\r\n", LEASE_OK, false, false },
		{ "$1\r\n0\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n", LEASE_OK, false, false },
		{ ":0\r\n", LEASE_DOWN, false, true },
		{ "+OK\r\n", LEASE_DOWN, false, true },
		{ "$-1\r\n", LEASE_DOWN, false, true },
		{ "*0\r\n", LEASE_DOWN, false, true },
		{ "*2\r\n:0\r\n*1\r\n:0\r\n", LEASE_DOWN, false, true },
		{ "-\r\n", LEASE_DOWN, false, false },
		{ "-LOADING Redis is loading\r\n", LEASE_DOWN, false, false },
		{ "-BUSY running a script\r\n", LEASE_DOWN, false, false },
		{ "-OOM command not allowed when used memory > 'maxmemory'.\r\n", LEASE_DOWN, false, false },
		{ "-READONLY You can't write against a read only replica.\r\n", LEASE_DOWN, false, false },
		{ "-MASTERDOWN Link with MASTER is down\r\n", LEASE_DOWN, false, false },
		{ "-MOVED 3999 127.0.0.1:6381\r\n", LEASE_DOWN, false, false },
		{ "-ASK 3999 127.0.0.1:6381\r\n", LEASE_DOWN, false, false },
		{ "-CLUSTERDOWN The cluster is down\r\n", LEASE_DOWN, false, false },
		{ "-NOREPLICAS Not enough good replicas to write.\r\n", LEASE_DOWN, false, false },
		{ ">2\r\n+a\r\n+b\r\n", LEASE_DOWN, false, false },
		/* longer than any array of ours */
		{ "*17\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
		  LEASE_DOWN, false, false },
		/* the second comes before the body was sent */
		{ "-NOSCRIPT one\r\n:0\r\n", LEASE_DOWN, false, false },
		{ "", LEASE_DOWN, true, false },
		{ "$10\r\nhalf", LEASE_DOWN, true, false },
		{ ":", LEASE_DOWN, true, false },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		bool up;
		int v = answered(cases[i].answer, strlen(cases[i].answer), cases[i].close, &up);
		if (v != cases[i].verdict || up != cases[i].up)
			fail_msg("case %zu: verdict %d, up %d", i, v, up);
	}
	/* A string without an end. */
	static char big[3 << 20];
	bool up;
	memset(big, 'x', sizeof(big));
	memcpy(big, "$2000000000\r\n", 13);
	assert_int_equal(answered(big, sizeof(big), false, &up), LEASE_DOWN);
	assert_false(up);
	assert_string_equal(last_text, "not a reply of Redis"); /* and not: no end within the timeout */
}

static void random_answers(void **state)
{
	struct rng r;
	uint64_t seed = rng_process_next();
	print_message("# seed %llu\n", (unsigned long long)seed);
	rng_seed(&r, seed);
	static const char alphabet[] = "+-:$*>0123459\r\n\r\n\r\nOK \xff";
	for (int i = 0; i < 300; i++) {
		char text[64];
		bool up;
		size_t len = 1 + rng_below(&r, sizeof(text));
		for (size_t j = 0; j < len; j++)
			text[j] = alphabet[rng_below(&r, sizeof(alphabet))];
		int v = answered(text, len, true, &up);
		assert_in_range(v, LEASE_OK, LEASE_DOWN);
	}
}

static int start_redis(void **state)
{
	redis_server_start(&server);
	return 0;
}

static int stop_redis(void **state)
{
	redis_server_stop(&server);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(key_names),     cmocka_unit_test(script_flush), cmocka_unit_test(flushall),
		cmocka_unit_test(sweep_among_others), cmocka_unit_test(sweep_pattern), cmocka_unit_test(sweep_large_table),
		cmocka_unit_test(sweep_while_away), cmocka_unit_test(sweep_replies),
		cmocka_unit_test(out_of_memory), cmocka_unit_test(foreign_key),  cmocka_unit_test(read_only),
		cmocka_unit_test(stopped),       cmocka_unit_test(loop_stood_still), cmocka_unit_test(killed),       cmocka_unit_test(never_there),
		cmocka_unit_test(by_name),       cmocka_unit_test(passwords),    cmocka_unit_test(urls),
		cmocka_unit_test(not_redis),     cmocka_unit_test(wrong_answers), cmocka_unit_test(random_answers),
	};
	return cmocka_run_group_tests(tests, start_redis, stop_redis);
}
