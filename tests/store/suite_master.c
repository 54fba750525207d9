/* What store.h promises of masters: incarnations, beats, take-over, and what one that was passed by can't do any more. */
#include "tests/store/suite_parts.h"

static struct uuid process(uint8_t n) { return (struct uuid){.b = {0x40, n}}; }

static struct store_master_open master_open(const char *id, uint8_t n, bool again)
{
	struct store_master_open o = {.master = id, .process = process(n), .again = again};
	run(&o.op, STORE_MASTER_OPEN);
	return o;
}

/* 'o': it is still the one; 'r': replaced; 't': taken over. */
static char beat(const char *id, int64_t incarnation, uint8_t n)
{
	struct store_beat o = {.master = id, .incarnation = incarnation, .process = process(n)};
	run(&o.op, STORE_BEAT);
	assert_false(o.ret_replaced && o.ret_taken_over);
	return o.ret_replaced ? 'r' : o.ret_taken_over ? 't' : 'o';
}

/* As another master reads it: of a row that the master's worker runs. */
struct seen {
	int64_t incarnation, beat;
	bool wish;
};
static struct seen see(struct core_attempt at)
{
	struct seen seen = {0};
	struct store_strays o = {.master = "another", .after = at.task, .limit = 1};
	for (int k = 15; o.after.b[k]-- == 0; k--)
		; /* the id before it */
	run(&o.op, STORE_STRAYS);
	assert_true(o.ret_n == 1 && uuid_eq(&o.ret_rows[0].at.task, &at.task));
	seen = (struct seen){o.ret_rows[0].incarnation, o.ret_rows[0].beat, o.ret_rows[0].cancel_wish};
	store_op_done_fields(&o.op);
	return seen;
}

static struct core_attempt runs_at(const char *master, const char *worker)
{
	struct core_task t;
	struct store_session_open s = {.worker = worker, .instance = {1}, .master = master};
	run(&s.op, STORE_SESSION_OPEN);
	int64_t session = s.ret_session;
	store_op_done_fields(&s.op);
	return running(&t, worker, session);
}

static struct store_take_over take(const char *id, struct seen seen)
{
	struct store_take_over o = {.master = id, .incarnation = seen.incarnation, .beat = seen.beat};
	run(&o.op, STORE_TAKE_OVER);
	return o;
}

void incarnations(void **state)
{
	struct store_master_open a = master_open("m-inc", 1, false);
	assert_int_equal(beat("m-inc", a.ret_incarnation, 1), 'o');
	struct store_master_open b = master_open("m-inc", 2, false);
	assert_true(b.ret_incarnation > a.ret_incarnation);
	assert_string_equal(a.ret_store_id, b.ret_store_id);
	assert_int_equal(strlen(a.ret_store_id), UUID_TEXT_LEN);
	assert_int_equal(beat("m-inc", a.ret_incarnation, 1), 'r');
	assert_int_equal(beat("m-inc", b.ret_incarnation, 2), 'o');
	assert_int_equal(beat("m-nobody", 1, 1), 't'); /* the row is gone: it may be opened again */
}

/* Once taken over, its own process is its next incarnation, unless another process was faster. */
void reopens_its_own(void **state)
{
	struct store_master_open a = master_open("m-again", 1, false), b = master_open("m-again", 1, true);
	assert_false(b.ret_replaced);
	assert_true(b.ret_incarnation > a.ret_incarnation);
	assert_int_equal(beat("m-again", b.ret_incarnation, 1), 'o');
	struct store_master_open other = master_open("m-again", 2, false), c = master_open("m-again", 1, true);
	assert_true(c.ret_replaced && !other.ret_replaced);
	assert_int_equal(beat("m-again", other.ret_incarnation, 2), 'o');
	struct store_master_open first = master_open("m-again-new", 1, true);
	assert_false(first.ret_replaced);
	assert_int_equal(beat("m-again-new", first.ret_incarnation, 1), 'o');
}

void take_over(void **state)
{
	struct store_master_open m = master_open("m-still", 1, false);
	struct core_attempt at = runs_at("m-still", "w-still");
	struct seen before = see(at);
	assert_int_equal(before.incarnation, m.ret_incarnation);
	assert_int_equal(beat("m-still", m.ret_incarnation, 1), 'o');
	struct store_take_over o = take("m-still", before);
	assert_false(o.ret_taken); /* it has beaten since */
	assert_int_equal(beat("m-still", m.ret_incarnation, 1), 'o');
	struct seen seen = see(at);
	for (int i = 0; i < 2; i++) { /* again, or by another that saw the same: it stands already */
		o = take("m-still", seen);
		assert_true(o.ret_taken);
		assert_int_equal(o.ret_incarnation, seen.incarnation + 1);
	}
	struct seen taken = see(at);
	assert_int_equal(taken.incarnation, seen.incarnation + 1);
	assert_int_equal(taken.beat, seen.beat); /* by which others see that it is no sign of life */
	assert_int_equal(beat("m-still", m.ret_incarnation, 1), 't');
	assert_int_equal(see(at).beat, seen.beat);
	struct store_master_open again = master_open("m-still", 1, true);
	assert_true(!again.ret_replaced && again.ret_incarnation > taken.incarnation);
	assert_true(see(at).beat > seen.beat);
	assert_false(take("m-still", taken).ret_taken);
	assert_int_equal(beat("m-still", again.ret_incarnation, 1), 'o');
	assert_false(take("m-none", (struct seen){1, 1, false}).ret_taken);
	/* Another process under the id is not mistaken for it. */
	assert_true(take("m-still", see(at)).ret_taken);
	master_open("m-still", 2, false);
	assert_int_equal(beat("m-still", again.ret_incarnation, 1), 'r');
}

static bool claims(const struct core_task *t, struct store_assignment to, bool *ret_stale)
{
	struct store_claim o = {.task = *t, .to = to};
	run(&o.op, STORE_CLAIM);
	bool won = o.ret_won;
	*ret_stale = o.ret_stale;
	assert_false(o.ret_won && o.ret_stale);
	store_op_done_fields(&o.op);
	return won;
}

void stale_session(void **state)
{
	bool stale;
	int64_t old = session("w-moved"), now = session("w-moved");
	struct core_task t = insert(new_queue());
	assert_false(claims(&t, to_worker("w-moved", old), &stale));
	assert_true(stale);
	assert_int_equal(state_of(t.id), STORE_PENDING);
	assert_true(claims(&t, to_worker("w-moved", now), &stale));
	assert_false(stale);
	assert_false(claims(&t, to_worker("w-moved", now), &stale));
	assert_false(stale); /* just lost */
}

void stale_incarnation(void **state)
{
	bool stale;
	struct store_master_open m = master_open("m-past", 1, false);
	struct core_attempt at = runs_at("m-past", "w-past");
	int64_t s = session("w-past-2");
	struct store_assignment to = to_worker("w-past-2", s);
	to.master = "m-past";
	to.incarnation = m.ret_incarnation;
	struct core_task t[3];
	for (int i = 0; i < 3; i++)
		t[i] = insert(new_queue());
	assert_true(claims(&t[0], to, &stale));
	assert_true(take("m-past", see(at)).ret_taken);
	assert_false(claims(&t[1], to, &stale));
	assert_true(stale);
	assert_int_equal(state_of(t[1].id), STORE_PENDING);
	/* In one batch with others it fails alone. */
	struct store_claim many[2] = {{.task = t[1], .to = to}, {.task = t[2], .to = to_worker("w-past-2", s)}};
	run_many(many, 2, sizeof(many[0]), STORE_CLAIM);
	assert_true(!many[0].ret_won && many[0].ret_stale && many[1].ret_won && !many[1].ret_stale);
	for (int i = 0; i < 2; i++)
		store_op_done_fields(&many[i].op);
	to.incarnation = master_open("m-past", 1, true).ret_incarnation;
	assert_true(claims(&t[1], to, &stale));
}

/* A submit is accepted all the same: as PENDING. */
void stale_insert(void **state)
{
	int64_t old = session("w-eager-moved"), now = session("w-eager-moved");
	for (int i = 0; i < 4; i++) {
		bool keyed = i & 1, good = i & 2;
		struct store_insert o = insert_of(new_queue());
		o.idempotency_key = keyed ? (good ? "eager-good" : "eager-stale") : NULL;
		o.eager = to_worker("w-eager-moved", good ? now : old);
		run(&o.op, STORE_INSERT);
		assert_int_equal(o.ret_verdict, STORE_INSERT_CREATED);
		assert_int_equal(o.ret_given, good);
		assert_int_equal(state_of(o.task.id), good ? STORE_RUNNING : STORE_PENDING);
		struct core_task t = o.task;
		t.seq = o.ret_seq;
		assert_int_equal(try_claim(&t, "w-eager-moved", now), !good);
	}
}

void strays_show_the_wish(void **state)
{
	struct core_attempt at = runs_at("m-wish", "w-wish");
	assert_false(see(at).wish);
	struct store_cancel c = {.id = at.task};
	run(&c.op, STORE_CANCEL);
	assert_int_equal(c.ret_verdict, STORE_CANCEL_WISH);
	assert_true(see(at).wish);
}
