/* A batch on its way.  Relies on the connection to bring results in order; decides at the sync what its
 * operations are told:
 *
 *   done            answers, or asked again where a row moved under a statement
 *   content         halved; the guilty one alone is stripped if it can be, then refused
 *   deadlock, …     the same batch again
 *   away            UNAVAILABLE, or back into the queue for kinds that are kept; the connection is given up
 *   connection lost back into the queue, marked as sent: asked again so that either outcome of the
 *                   first time gives the same answer */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/postgres/pg_rows.h"

#define RETRIES_MAX 10
#define TIMEOUTS_MAX 3
#define AGAIN 0x8000u
#define AGAIN_MAX 100

struct pg_batch *pg_batch_new(struct pg_store *s, const struct pg_kind *k, struct store_op *const *ops, size_t n,
			      bool resent)
{
	struct pg_batch *b = xcalloc(1, sizeof(*b));
	list_init(&b->node);
	b->store = s;
	b->kind = k;
	b->ops = xcalloc(n, sizeof(*b->ops));
	memcpy(b->ops, ops, n * sizeof(*ops));
	b->n = n;
	b->resent = resent;
	return b;
}

void pg_batch_free(struct pg_batch *b)
{
	if (!b)
		return;
	free(b->note);
	free(b->ops);
	free(b);
}

int pg_batch_send(struct pg_batch *b, PGconn *pq, struct pg_params *ps)
{
	b->n_chosen = b->current = 0;
	b->sqlstate[0] = b->text[0] = '\0';
	for (int i = 0; i < b->kind->n_stmts; i++) {
		const struct pg_stmt *st = &b->kind->stmts[i];
		pg_params_begin(ps, st->columns);
		if (!st->build(b, ps))
			continue;
		char name[32];
		snprintf(name, sizeof(name), "%s%d", b->kind->name, i);
		if (pg_params_end(ps) < 0)
			return b->n_chosen ? -ENOTCONN : -ENOMEM;
		if (PQsendQueryPrepared(pq, name, ps->n, ps->values, ps->lengths, ps->formats, 1) != 1)
			return -ENOTCONN;
		b->chosen[b->n_chosen++] = (uint8_t)i;
	}
	return PQpipelineSync(pq) == 1 ? 0 : -ENOTCONN;
}

void pg_batch_on_result(struct pg_batch *b, const PGresult *r)
{
	ExecStatusType st = PQresultStatus(r);
	if (st == PGRES_PIPELINE_ABORTED || b->sqlstate[0])
		return;
	if (st != PGRES_TUPLES_OK && st != PGRES_COMMAND_OK) {
		const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
		const char *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
		snprintf(b->sqlstate, sizeof(b->sqlstate), "%s", state && state[0] ? state : "08000");
		snprintf(b->text, sizeof(b->text), "%s: %s", b->sqlstate, text ? text : "no message");
		return;
	}
	if (b->current >= b->n_chosen)
		abort(); /* an answer that belongs to nobody must not reach somebody */
	int rc = b->kind->stmts[b->chosen[b->current]].read(b, r);
	if (pg_rows_short())
		rc = -ENOMEM;
	if (rc == -ENOMEM) {
		b->no_memory = true;
		snprintf(b->sqlstate, sizeof(b->sqlstate), "53200");
		snprintf(b->text, sizeof(b->text), "no memory for the answer");
	} else if (rc < 0) {
		snprintf(b->sqlstate, sizeof(b->sqlstate), "XX000");
		snprintf(b->text, sizeof(b->text), "%s: unexpected answer", b->kind->name);
	}
}

void pg_batch_on_end(struct pg_batch *b) { b->current++; }

void pg_op_again(struct store_op *op) { op->tries |= AGAIN; }

enum verdict { CONTENT, BROKEN, REPEAT, AWAY };

/* By the longest prefix of the SQLSTATE; what is not named is BROKEN: something in the database or in a
 * statement here, which may be one row's, so it is halved as well, but nothing is refused for it. */
static enum verdict classify(const char *state)
{
	static const struct {
		const char *prefix;
		enum verdict verdict;
	} rows[] = {
		{"40001", REPEAT}, {"40P01", REPEAT}, {"40003", REPEAT}, {"55P03", REPEAT}, {"57014", REPEAT},
		{"08", AWAY},      {"57", AWAY},      {"25", AWAY},      {"53", AWAY},      {"58", AWAY},
		{"26", AWAY},      {"0A", AWAY},      {"28", AWAY},      {"3D", AWAY},      {"22", CONTENT},
		{"23", CONTENT},   {"21", CONTENT},   {"54", CONTENT},
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (strncmp(state, rows[i].prefix, strlen(rows[i].prefix)) == 0)
			return rows[i].verdict;
	return BROKEN;
}

static struct pg_queue *queue_of(struct pg_batch *b) { return &b->store->queues[b->kind - pg_kinds]; }

static void arrived(struct pg_batch *b)
{
	if (b->on_way)
		queue_of(b)->in_flight--;
	b->on_way = false;
}

static void on_done(struct pg_batch *b)
{
	struct pg_store *s = b->store;
	if (b->kind - pg_kinds < STORE_KINDS)
		s->base.batches_done[b->kind - pg_kinds]++;
	for (size_t i = b->n; i--;) {
		struct store_op *op = b->ops[i];
		if (!(op->tries & AGAIN))
			continue;
		op->tries = (uint16_t)((op->tries & ~AGAIN) + 1);
		b->ops[i] = NULL;
		if (op->tries > AGAIN_MAX)
			pg_store_answer(s, op, STORE_UNAVAILABLE, "the row kept changing");
		else
			pg_store_requeue(s, op);
	}
	for (size_t i = 0; i < b->n; i++)
		if (b->ops[i])
			pg_store_answer(s, b->ops[i], STORE_OK, "");
	pg_batch_free(b);
}

static void wait_again(struct pg_batch *b)
{
	list_push_back(&queue_of(b)->waiting, &b->node);
}

static void halve(struct pg_batch *b)
{
	size_t half = b->n / 2;
	wait_again(pg_batch_new(b->store, b->kind, b->ops, half, b->resent));
	wait_again(pg_batch_new(b->store, b->kind, b->ops + half, b->n - half, b->resent));
	pg_batch_free(b);
}

static void on_content(struct pg_batch *b, bool broken)
{
	if (b->n > 1) {
		halve(b);
		return;
	}
	if (!broken && !b->stripped && b->kind->strip && b->kind->strip(b, b->text)) {
		b->stripped = true;
		wait_again(b);
		return;
	}
	pg_store_answer(b->store, b->ops[0], broken ? STORE_UNAVAILABLE : STORE_REFUSED, b->text);
	pg_batch_free(b);
}

void pg_batch_too_large(struct pg_batch *b)
{
	snprintf(b->text, sizeof(b->text), "too large for one statement");
	on_content(b, false);
}

static void on_away(struct pg_batch *b, const char *text)
{
	for (size_t i = b->n; i--;) {
		struct store_op *op = b->ops[i];
		if (b->kind->kept || op->sent)
			pg_store_requeue(b->store, op);
		else
			pg_store_answer(b->store, op, STORE_UNAVAILABLE, text);
	}
	pg_batch_free(b);
}

/* What took too long once does so again: a list that scans too much, a table that somebody has locked. */
static int patience(const struct pg_batch *b)
{
	if (strcmp(b->sqlstate, "57014") != 0)
		return RETRIES_MAX;
	return b->kind->reads ? 0 : TIMEOUTS_MAX;
}

/* The connection is as good as before, and nothing was changed. */
static void answer_short(struct pg_batch *b)
{
	for (size_t i = 0; i < b->n; i++) {
		pg_store_answer(b->store, b->ops[i], STORE_UNAVAILABLE, b->text);
		b->ops[i]->no_memory = true;
	}
	pg_batch_free(b);
}

void pg_batch_on_sync(struct pg_batch *b)
{
	arrived(b);
	if (!b->sqlstate[0]) {
		if (b->current != b->n_chosen)
			abort();
		on_done(b);
		return;
	}
	/* Answers read before a later statement failed are void. */
	for (size_t i = 0; i < b->n; i++) {
		store_op_done_fields(b->ops[i]);
		b->ops[i]->tries &= (uint16_t)~AGAIN;
	}
	if (b->no_memory && b->kind->reads) {
		answer_short(b);
		return;
	}
	switch (classify(b->sqlstate)) {
	case CONTENT:
	case BROKEN:
		on_content(b, classify(b->sqlstate) == BROKEN);
		return;
	case REPEAT:
		if (b->retries++ < patience(b))
			wait_again(b);
		else
			on_away(b, b->text);
		return;
	case AWAY:
		pg_store_lost(b->store, b, b->text);
		on_away(b, b->text);
	}
}

void pg_batch_on_lost(struct pg_batch *b)
{
	arrived(b);
	for (size_t i = b->n; i--;) {
		struct store_op *op = b->ops[i];
		store_op_done_fields(op);
		op->tries &= (uint16_t)~AGAIN;
		/* What only reads left nothing behind that must be settled: while the store is away nobody waits for it. */
		if (!b->kind->reads && op->sent < UINT16_MAX)
			op->sent++;
		pg_store_requeue(b->store, op);
	}
	pg_batch_free(b);
}
