/* Rows per second of insert, claim and record through the store, for two batch sizes, and the batches that formed.
 *   store_bench [URL] [TASKS]     without a URL: a private Postgres with fsync on */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/num.h"
#include "common/loop/loop.h"
#include "server/store/postgres/pg_store.h"
#include "tests/store/pg_server.h"

static struct loop *loop;
static struct store *store;
static size_t left, next_op, total, op_size;
static char *ops;
static enum store_kind kind;

static void submit_next(void)
{
	struct store_op *op = (struct store_op *)(void *)(ops + next_op++ * op_size);
	store_submit(store, op);
}

static void on_done(struct store_op *op)
{
	if (op->result != STORE_OK) {
		fprintf(stderr, "result %d: %s\n", op->result, op->text);
		exit(1);
	}
	left--;
	if (next_op < total)
		submit_next();
}

static void measure(const char *name, void *first, size_t size, size_t in_flight)
{
	ops = first;
	op_size = size;
	left = total;
	next_op = 0;
	int64_t batches = store->batches_done[kind], t0 = clock_mono_ns();
	for (size_t i = 0; i < total; i++) {
		struct store_op *op = (struct store_op *)(void *)(ops + i * size);
		op->kind = kind;
		op->done = on_done;
	}
	while (next_op < total && next_op < in_flight)
		submit_next();
	while (left)
		loop_turn(loop, true);
	double s = (double)(clock_mono_ns() - t0) / 1e9;
	batches = store->batches_done[kind] - batches;
	printf("  %-7s %8.0f rows/s  (%.0f rows a batch)\n", name, (double)total / s, (double)total / (double)batches);
}

static void bench(const char *url, int32_t batch, size_t in_flight)
{
	struct pg_store_config cfg;
	pg_store_config_default(&cfg);
	cfg.url = url;
	cfg.max_batch = batch;
	if (pg_store_new(loop, &cfg, &store) < 0)
		exit(1);
	while (!store->up)
		loop_turn(loop, true);
	printf("batches of %d, %zu in flight:\n", batch, in_flight);
	struct uuid7_maker ids = {0};
	struct store_insert *in = xcalloc(total, sizeof(*in));
	struct store_claim *cl = xcalloc(total, sizeof(*cl));
	struct store_record *re = xcalloc(total, sizeof(*re));
	uint8_t bytes[100] = {1};
	struct blob *spec = blob_new(bytes, sizeof(bytes));
	for (size_t i = 0; i < total; i++)
		in[i] = (struct store_insert){
			.task = {.id = uuid7_make(&ids, clock_wall_us()), .queue = "default"}, .name = "", .spec = spec};
	kind = STORE_INSERT;
	measure("insert", in, sizeof(*in), in_flight);
	for (size_t i = 0; i < total; i++) {
		cl[i] = (struct store_claim){.task = in[i].task, .to = {.worker = "worker-1", .session = 1, .lease_ns = 1}};
		cl[i].task.seq = in[i].ret_seq;
	}
	kind = STORE_CLAIM;
	measure("claim", cl, sizeof(*cl), in_flight);
	for (size_t i = 0; i < total; i++) {
		re[i] = (struct store_record){.at = {in[i].task.id, 1}, .worker = "worker-1", .outcome = STORE_SUCCEEDED};
		if (!cl[i].ret_won)
			exit(1);
		store_op_done_fields(&cl[i].op);
	}
	kind = STORE_RECORD;
	measure("record", re, sizeof(*re), in_flight);
	for (size_t i = 0; i < total; i++) {
		if (re[i].ret_verdict != CORE_RECORD_RECORDED)
			exit(1);
		store_op_done_fields(&re[i].op);
	}
	free(in);
	free(cl);
	free(re);
	blob_unref(spec);
	store_free(store);
}

int main(int argc, char **argv)
{
	static struct pg_server server;
	const char *url = argc > 1 ? argv[1] : "";
	int64_t n = 50000;
	if (argc > 2 && num_parse_i64(argv[2], &n) < 0)
		return 64;
	total = (size_t)n;
	if (!url[0])
		pg_server_start(&server, true);
	if (loop_new(&loop) < 0)
		return 1;
	bench(url[0] ? url : server.url, 64, 512);
	bench(url[0] ? url : server.url, 500, 4000);
	total = total / 50 + 1;
	bench(url[0] ? url : server.url, 1, 1);
	loop_turn(loop, false);
	loop_free(loop);
	if (!url[0])
		pg_server_stop(&server);
	return 0;
}
