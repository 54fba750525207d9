/* Events in Postgres: what goes when it is old, and connections that end. */
#include <stdio.h>

#include "server/store/postgres/pg_store.h"
#include "tests/store/follow.h"
#include "tests/store/pg_server.h"
#include "tests/store/suite.h"

static struct pg_server server;

static void begin(void) { pg_server_start(&server, false); }
static void end(void) { pg_server_stop(&server); }

static struct store *open_store(struct loop *loop)
{
	struct pg_store_config cfg;
	struct store *s;
	pg_store_config_default(&cfg);
	cfg.url = server.url;
	if (pg_store_new(loop, &cfg, &s) < 0)
		fail_msg("pg_store_new");
	return s;
}

static const struct factory postgres = {"postgres", open_store, begin, end};
const struct factory *factory = &postgres;

/* The number of the next event, as if so many had come. */
static void skip_to(int part)
{
	char sql[200];
	snprintf(sql, sizeof(sql), "SELECT setval('reins.event_number', %d::bigint << 17)", part);
	pg_server_sql(&server, sql);
}

static void trim(const char *age)
{
	char sql[200];
	snprintf(sql, sizeof(sql), "SELECT reins.trim_events('%s')", age);
	pg_server_sql(&server, sql);
}

static void check_page(struct reader r, bool gone, size_t n)
{
	struct store_events o = reader_page(&r, 1000, 0);
	assert_int_equal(o.ret_gone, gone);
	assert_int_equal(o.ret_n, n);
	store_op_done_fields(&o.op);
}

static void check_kept(const char *n)
{
	assert_string_equal(pg_server_sql(&server, "SELECT count(*) FROM reins.event"), n);
}

/* First it is said to be gone, then it goes: who reads in between is told, whatever was removed of it. */
static void what_is_old_goes(void **state)
{
	struct reader start = reader_from_now();
	insert("ev");
	insert("ev");
	struct reader second = reader_from_now();
	skip_to(1);
	insert("ev");
	struct reader third = reader_from_now();
	skip_to(5);
	insert("ev");
	trim("1h");
	check_page(start, false, 4);
	skip_to(6);
	insert("ev");
	trim("1h");
	check_page(start, true, 0);
	check_page(second, false, 3);
	check_page(third, false, 2);
	check_kept("5");
	trim("1h");
	check_kept("5"); /* somebody may be reading it */
	pg_server_sql(&server, "UPDATE reins.event_floor SET at = now() - interval '1 min'");
	trim("1h");
	check_kept("3");
	check_page(start, true, 0);
	check_page(second, false, 3);
	/* By age: the newest part stays however old it is. */
	pg_server_sql(&server, "UPDATE reins.event SET at = now() - interval '2 h'");
	trim("3h");
	check_page(second, false, 3);
	trim("1h");
	check_page(second, true, 0);
	check_page(third, true, 0);
	struct reader now = reader_from_now();
	check_page(now, false, 0);
	pg_server_sql(&server, "UPDATE reins.event_floor SET at = now() - interval '1 min'");
	trim("1h");
	check_kept("1");
	insert("ev");
	check_page(now, false, 1);
}

static const char *streams(const char *which)
{
	char sql[200];
	snprintf(sql, sizeof(sql), "SELECT count(*) FROM reins.event_stream WHERE ended_at IS %s NULL", which);
	return pg_server_sql(&server, sql);
}

/* What a connection wrote before it ended is read after it, and it leaves the position then. */
static void connections_end(void **state)
{
	trim("1h");
	struct reader before = reader_from_now();
	struct store *other = harness_another();
	struct reader r = reader_from_now();
	assert_int_equal(r.n_at, 6);
	for (int i = 0; i < 20; i++) {
		struct store_insert o = insert_of("ev");
		assert_int_equal(run_any(other, &o.op, STORE_INSERT), STORE_OK);
	}
	trim("1h");
	assert_string_equal(streams("NOT"), "0");
	harness_another_done(other);
	for (int i = 0; i < 100 && strcmp(streams("NOT"), "3") != 0; i++)
		trim("1h"); /* a server process takes its time to end */
	assert_string_equal(streams("NOT"), "3");
	assert_string_equal(streams(""), "3");
	struct store_events o = reader_page(&r, 5, 0);
	assert_int_equal(o.ret_n, 5);
	assert_int_equal(r.n_at, 6); /* more is to be read */
	store_op_done_fields(&o.op);
	o = reader_page(&r, 100, 0);
	assert_int_equal(o.ret_n, 15);
	assert_int_equal(r.n_at, 3);
	store_op_done_fields(&o.op);
	check_page(r, false, 0);
	check_page(before, false, 20);
	/* Long after, nothing is known of them any more; who knew them then has missed what they wrote. */
	pg_server_sql(&server, "UPDATE reins.event_stream SET ended_at = now() - interval '1 d' WHERE ended_at IS NOT NULL");
	trim("1h");
	assert_string_not_equal(streams("NOT"), "0"); /* those that wrote */
	pg_server_sql(&server, "DELETE FROM reins.event");
	struct reader knew = before;
	knew.at[knew.n_at++] = (struct store_place){before.known + 1, 0};
	trim("1h");
	assert_string_equal(streams("NOT"), "0");
	check_page(knew, true, 0);
	check_page(r, false, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_old_goes), cmocka_unit_test(connections_end)};
	return cmocka_run_group_tests_name("store/postgres events", tests, harness_begin, harness_end);
}
