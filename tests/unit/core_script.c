#include "tests/unit/core_script.h"
#include "server/core/core_view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define MAX_EVENTS 64
#define MAX_LIST 512

struct line { /* one event's words and the memory behind its lists */
	char text[4096];
	char *words[300];
	int n;
	struct core_task tasks[3][MAX_LIST];
	struct core_attempt at[3][MAX_LIST];
	struct core_adopted adopted[2][MAX_LIST];
	struct core_stray strays[MAX_LIST];
	struct core_owner owners[MAX_LIST];
	bool runs[MAX_LIST];
	const char *hashes[MAX_LIST];
	const char *names[2][MAX_LIST];
	struct core_paused paused[MAX_LIST];
	char name_text[2][4096];
	char custom[4096];
	struct uuid ids[MAX_LIST];
};

static const char *word(const struct line *l, int i)
{
	assert(i < l->n);
	return l->words[i];
}

static bool has(const struct line *l, const char *flag)
{
	for (int i = 1; i < l->n; i++)
		if (strcmp(l->words[i], flag) == 0)
			return true;
	return false;
}

static const char *opt(const struct line *l, const char *key)
{
	size_t n = strlen(key);
	for (int i = 1; i < l->n; i++)
		if (strncmp(l->words[i], key, n) == 0 && l->words[i][n] == '=')
			return l->words[i] + n + 1;
	return NULL;
}

static double number(const struct line *l, const char *key, double otherwise)
{
	const char *v = opt(l, key);
	return v ? strtod(v, NULL) : otherwise;
}

static int64_t seconds(double s) { return (int64_t)(s * 1e9 + 0.5); }

struct core_task *script_task(struct script *s, int n)
{
	assert(n >= 0 && n < SCRIPT_TASKS);
	struct core_task *t = &s->tasks[n];
	if (!t->queue) {
		t->queue = "a";
		t->seq = n;
		t->id.b[14] = (uint8_t)(n >> 8);
		t->id.b[15] = (uint8_t)n;
		t->max_attempts = 3;
	}
	return t;
}

static int task_number(const struct uuid *u) { return u->b[14] << 8 | u->b[15]; }

static struct core_attempt attempt(struct script *s, const char *text)
{
	assert(text[0] == 't');
	char *end;
	int n = (int)strtol(text + 1, &end, 10);
	return (struct core_attempt){ script_task(s, n)->id, *end == '/' ? (int32_t)strtol(end + 1, NULL, 10) : 0 };
}

static struct core_task row(struct script *s, const char *text)
{
	struct core_attempt at = attempt(s, text);
	struct core_task t = *script_task(s, task_number(&at.task));
	t.attempt = at.attempt;
	return t;
}

/* "t1/1,t2/1" → at[k] and tasks[k] */
static size_t list(struct script *s, struct line *l, int k, const char *text)
{
	size_t n = 0;
	for (const char *p = text; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
		assert(n < MAX_LIST);
		l->at[k][n] = attempt(s, p);
		l->tasks[k][n++] = row(s, p);
	}
	return n;
}

static size_t names(struct line *l, int k, const char *text)
{
	size_t n = 0;
	snprintf(l->name_text[k], sizeof(l->name_text[k]), "%s", text ? text : "");
	for (char *p = l->name_text[k], *next; p && *p; p = next) {
		next = strchr(p, ',');
		if (next)
			*next++ = '\0';
		l->names[k][n++] = p;
	}
	return n;
}

/* "lic:2,fpga:1" as the core has it: "lic=2 fpga=1". */
static void custom_text(const char *text, char *ret, size_t cap)
{
	snprintf(ret, cap, "%s", text);
	for (char *p = ret; *p; p++)
		*p = *p == ':' ? '=' : *p == ',' ? ' ' : *p;
}

static void split(struct line *l, const char *text, size_t len)
{
	assert(len < sizeof(l->text));
	memcpy(l->text, text, len);
	l->text[len] = '\0';
	l->n = 0;
	for (char *p = l->text; *p;) {
		while (*p == ' ')
			*p++ = '\0';
		if (!*p)
			break;
		l->words[l->n++] = p;
		p += strcspn(p, " ");
	}
}

static int verdict(const char *w, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(w, words[i]) == 0)
			return (int)i;
	fprintf(stderr, "script: no such word: %s\n", w);
	abort();
}
#define VERDICT(w, ...) verdict(w, (const char *const[]){ __VA_ARGS__ }, ARRAY_LEN(((const char *const[]){ __VA_ARGS__ })))

static uint64_t peer_of(const struct line *l) { return strtoull(word(l, 1) + 1, NULL, 10); }

static void set_task(struct script *s, struct line *l)
{
	struct core_attempt at = attempt(s, word(l, 1));
	struct core_task *t = script_task(s, task_number(&at.task));
	if (opt(l, "q")) {
		char *name = s->queue_names[task_number(&at.task)];
		snprintf(name, sizeof(s->queue_names[0]), "%s", opt(l, "q"));
		t->queue = name;
	}
	if (opt(l, "handler")) {
		char *name = s->handler_names[task_number(&at.task)];
		snprintf(name, sizeof(s->handler_names[0]), "%s", opt(l, "handler"));
		t->handler = name;
	}
	if (opt(l, "custom")) {
		t->custom = s->customs[task_number(&at.task)];
		custom_text(opt(l, "custom"), s->customs[task_number(&at.task)], sizeof(s->customs[0]));
	}
	t->priority = (int32_t)number(l, "prio", t->priority);
	t->seq = (int64_t)number(l, "seq", (double)t->seq);
	t->need.gpus = (int32_t)number(l, "gpus", t->need.gpus);
	t->need.cpu_millis = (int32_t)number(l, "cpu", t->need.cpu_millis);
	t->need.memory_bytes = (int64_t)number(l, "mem", (double)t->need.memory_bytes);
	t->exclusive = has(l, "excl") || t->exclusive;
	t->lease_ttl_ns = seconds(number(l, "lease", 0));
	t->failures = (int32_t)number(l, "failures", t->failures);
	t->backoff_initial_ns = seconds(number(l, "backoff", 0));
	t->backoff_max_ns = seconds(number(l, "backoff_max", 0));
	t->backoff_multiplier = number(l, "by", 2);
}

static void parse_hello(struct script *s, struct line *l, struct core_event *e)
{
	e->type = CORE_EV_HELLO;
	e->hello.worker = word(l, 2);
	e->hello.instance[0] = (uint8_t)number(l, "inst", 1);
	e->hello.capacity.slots = (int32_t)number(l, "slots", 1);
	e->hello.capacity.have.gpus = (int32_t)number(l, "gpus", 0);
	e->hello.capacity.have.cpu_millis = (int32_t)number(l, "cpu", 0);
	e->hello.capacity.have.memory_bytes = (int64_t)number(l, "mem", 0);
	e->hello.n_held = list(s, l, 0, opt(l, "held"));
	e->hello.held = l->at[0];
	e->hello.n_queues = names(l, 0, opt(l, "q"));
	e->hello.queues = l->names[0];
	e->hello.n_handlers = names(l, 1, opt(l, "handlers"));
	e->hello.handlers = l->names[1];
	e->hello.runs_commands = !has(l, "nocmd");
	if (opt(l, "custom")) {
		custom_text(opt(l, "custom"), l->custom, sizeof(l->custom));
		e->hello.capacity.custom = l->custom;
	}
	e->hello.enforces_lease = has(l, "enforce");
	e->hello.in_process = has(l, "inproc");
	e->hello.draining = has(l, "drain");
	e->hello.resumes = (int64_t)number(l, "resumes", 0);
	e->hello.number = (int64_t)number(l, "no", (double)e->peer);
	e->hello.no_other = !has(l, "other");
}

static size_t adopted(struct script *s, struct line *l, int k, size_t from, const char *text, bool wish)
{
	size_t n = list(s, l, 2, text);
	for (size_t i = 0; i < n; i++) {
		struct core_task t = l->tasks[2][i];
		int64_t lease = max_i64(s->cfg.lease_ttl_ns, t.lease_ttl_ns);
		l->adopted[k][from + i] = (struct core_adopted){ .task = t, .lease_ns = lease, .cancel_wish = wish };
	}
	return from + n;
}

static void parse_opened(struct script *s, struct line *l, struct core_event *e)
{
	e->type = CORE_EV_SESSION_OPENED;
	e->opened.worker = word(l, 2);
	e->opened.ok = !has(l, "away");
	if (!e->opened.ok)
		return;
	e->opened.drain_wish = has(l, "drained");
	e->opened.session = strtoll(word(l, 3) + 1, NULL, 10);
	size_t n = adopted(s, l, 0, 0, opt(l, "adopt"), false);
	e->opened.n_adopted = adopted(s, l, 0, n, opt(l, "wish"), true);
	e->opened.adopted = l->adopted[0];
	e->opened.n_waiting = adopted(s, l, 1, 0, opt(l, "wait"), false);
	e->opened.waiting = l->adopted[1];
	e->opened.n_requeued = list(s, l, 0, opt(l, "requeue"));
	e->opened.requeued = l->tasks[0];
	e->opened.n_fenced = list(s, l, 1, opt(l, "fence"));
	e->opened.fenced = l->at[1];
}

static void parse_store_answer(struct script *s, struct line *l, struct core_event *e, const char *verb)
{
	if (strcmp(verb, "queues") == 0) {
		e->type = CORE_EV_QUEUES;
		e->queues.ok = !has(l, "away");
		e->queues.n = l->n > 1 && e->queues.ok ? names(l, 0, word(l, 1)) : 0;
		e->queues.at = l->names[0];
		e->queues.n_paused = opt(l, "paused") ? names(l, 1, opt(l, "paused")) : 0;
		for (size_t i = 0; i < e->queues.n_paused; i++)
			l->paused[i] = (struct core_paused){ l->names[1][i], "" };
		e->queues.paused = l->paused;
	} else if (strcmp(verb, "filled") == 0) {
		e->type = CORE_EV_FILLED;
		e->filled.queue = word(l, 1);
		e->filled.ok = !has(l, "away");
		e->filled.exhausted = has(l, "end");
		e->filled.n = e->filled.ok && l->n > 2 && word(l, 2)[0] == 't' ? list(s, l, 0, word(l, 2)) : 0;
		e->filled.at = l->tasks[0];
	} else if (strcmp(verb, "expired") == 0) {
		e->type = CORE_EV_EXPIRED;
		e->expired.ok = !has(l, "away");
		e->expired.n = l->n > 1 && word(l, 1)[0] == 't' ? list(s, l, 0, word(l, 1)) : 0;
		for (size_t i = 0; i < e->expired.n; i++)
			l->ids[i] = l->at[0][i].task;
		e->expired.at = l->ids;
		e->expired.next_in_ns = opt(l, "next") ? seconds(number(l, "next", 0)) : -1;
	} else {
		e->type = CORE_EV_DUE;
		e->due.ok = !has(l, "away");
		e->due.n = l->n > 1 && word(l, 1)[0] == 't' ? list(s, l, 0, word(l, 1)) : 0;
		e->due.at = l->tasks[0];
		e->due.next_in_ns = opt(l, "next") ? seconds(number(l, "next", 0)) : -1;
	}
}

/* "w1#3:t1/1" */
static void parse_strays(struct script *s, struct line *l, struct core_event *e)
{
	e->type = CORE_EV_STRAYS;
	e->strays.ok = !has(l, "away");
	e->strays.at = l->strays;
	for (int i = 1; i < l->n; i++) {
		char *hash = strchr(l->words[i], '#');
		if (!hash)
			continue;
		*hash = '\0';
		struct core_stray *r = &l->strays[e->strays.n++];
		char *task;
		*r = (struct core_stray){ .worker = l->words[i], .session = strtoll(hash + 1, &task, 10) };
		r->at = attempt(s, task + 1);
		const struct core_task *t = script_task(s, task_number(&r->at.task));
		r->lease_ns = max_i64(s->cfg.lease_ttl_ns, t->lease_ttl_ns);
		r->exclusive = t->exclusive;
		r->own = !opt(l, "of");
		r->master = r->own ? "m" : opt(l, "of");
		r->incarnation = (int64_t)number(l, "inc", 1);
		r->beat = (int64_t)number(l, "beat", 0);
		r->detached_ns = seconds(number(l, "detached", 0));
		r->cancel_wish = has(l, "wish");
	}
}

/* "w1#3:t1/1", then '=' and a word that *ret_word points to, "" for none; false: something else. */
static bool parse_owner(struct script *s, char *text, struct core_owner *ret, const char **ret_word)
{
	char *hash = strchr(text, '#'), *task;
	if (!hash)
		return false;
	*hash = '\0';
	*ret = (struct core_owner){ .worker = text, .session = strtoll(hash + 1, &task, 10) };
	char *word = strchr(task, '=');
	if (word)
		*word++ = '\0';
	ret->at = attempt(s, task + 1);
	*ret_word = word ? word : "";
	return true;
}

static void parse_keys(struct script *s, struct line *l, struct core_event *e, bool runs)
{
	size_t n = 0, n_hashes = 0;
	bool ok = !has(l, "away");
	uint64_t next = (uint64_t)number(l, "next", 0);
	const char *word = "";
	for (int i = 1; i < l->n; i++) {
		if (parse_owner(s, l->words[i], &l->owners[n], &word))
			l->runs[n++] = strcmp(word, "yes") == 0;
		else if (ok && !strchr(l->words[i], '='))
			l->hashes[n_hashes++] = l->words[i];
	}
	e->type = runs ? CORE_EV_RUNS : CORE_EV_KEYS;
	if (runs) {
		e->runs.at = l->owners;
		e->runs.runs = l->runs;
		e->runs.n = n;
		e->runs.ok = ok;
		e->runs.next = next;
	} else {
		e->keys.at = l->owners;
		e->keys.n = n;
		e->keys.hashes = l->hashes;
		e->keys.n_hashes = n_hashes;
		e->keys.ok = ok;
		e->keys.next = next;
	}
}

static void parse_answer(struct script *s, struct line *l, struct core_event *e, const char *verb)
{
	if (strcmp(verb, "inserted") == 0) {
		e->type = CORE_EV_INSERTED;
		e->task = row(s, word(l, 1));
		e->task.attempt = s->eager[task_number(&e->task.id)] && !has(l, "pending");
		e->at.task = e->task.id;
		e->token = 100 + (uint64_t)task_number(&e->task.id);
		e->inserted = (enum core_insert_verdict)VERDICT(word(l, 2), "created", "exists", "failed");
		e->expires_in_ns = seconds(number(l, "exp", 0));
		e->due_in_ns = seconds(number(l, "due", 0));
	} else if (strcmp(verb, "preempted") == 0) {
		e->type = CORE_EV_PREEMPTED;
		e->at = attempt(s, word(l, 1));
		e->preempted = (enum core_preempt_verdict)VERDICT(word(l, 2), "ok", "full", "newer", "down");
	} else if (strcmp(verb, "claimed") == 0) {
		e->type = CORE_EV_CLAIMED;
		e->at = attempt(s, word(l, 1));
		e->task = row(s, word(l, 1));
		e->claimed = (enum core_claim_verdict)VERDICT(word(l, 2), "won", "lost", "away", "stale");
		e->spec = opt(l, "spec") ? blob_new(NULL, (size_t)(number(l, "spec", 0) * 1024 * 1024)) : NULL;
	} else if (strcmp(verb, "taken") == 0) {
		e->type = CORE_EV_TAKEN_BACK;
		e->at = attempt(s, word(l, 1));
		e->task = row(s, word(l, 1));
		e->session = strtoll(word(l, 2) + 1, NULL, 10);
		e->taken_back = (enum core_take_back_verdict)VERDICT(word(l, 3), "pending", "ended", "fenced", "away");
	} else if (strcmp(verb, "recorded") == 0) {
		e->type = CORE_EV_RECORDED;
		e->at = attempt(s, word(l, 2));
		e->task = row(s, word(l, 2));
		e->token = (uint64_t)number(l, "tok", 0);
		e->recorded.verdict =
			(enum core_record_verdict)VERDICT(word(l, 4), "recorded", "duplicate", "fenced", "away");
		e->recorded.pending_again = has(l, "again");
		e->recorded.retry_in_ns = seconds(number(l, "in", 0));
	} else if (strcmp(verb, "keys") == 0 || strcmp(verb, "runs") == 0) {
		parse_keys(s, l, e, verb[0] == 'r');
	} else if (strcmp(verb, "strays") == 0) {
		parse_strays(s, l, e);
	} else {
		parse_store_answer(s, l, e, verb);
	}
}

static void parse_peer(struct script *s, struct line *l, struct core_event *e, const char *verb)
{
	if (strcmp(verb, "hello") == 0) {
		parse_hello(s, l, e);
	} else if (strcmp(verb, "opened") == 0) {
		parse_opened(s, l, e);
	} else if (strcmp(verb, "hb") == 0) {
		e->type = CORE_EV_HEARTBEAT;
		e->heartbeat.number = (int64_t)number(l, "n", 1);
		e->heartbeat.last_dispatch = (int64_t)number(l, "seen", 0);
		e->heartbeat.n_held = list(s, l, 0, opt(l, "held"));
		e->heartbeat.held = l->at[0];
	} else if (strcmp(verb, "outcome") == 0) {
		e->type = CORE_EV_OUTCOME;
		e->at = attempt(s, word(l, 2));
		e->token = (uint64_t)number(l, "tok", 0);
		e->outcome.succeeded = has(l, "ok");
		e->outcome.given_back = has(l, "back");
	} else if (strcmp(verb, "accepted") == 0 || strcmp(verb, "refused") == 0) {
		e->type = verb[0] == 'a' ? CORE_EV_ACCEPTED : CORE_EV_REFUSED;
		e->at = attempt(s, word(l, 2));
		e->text = opt(l, "text");
	} else {
		e->type = verb[0] == 'd' ? CORE_EV_DRAINING : CORE_EV_PEER_GONE;
		e->draining.on = verb[0] == 'd' && !has(l, "off");
		e->draining.detach_ns = seconds(number(l, "detach", 0));
	}
}

/* False: the line was no event. */
static bool parse(struct script *s, struct line *l, struct core_event *e)
{
	const char *verb = word(l, 0);
	memset(e, 0, sizeof(*e));
	if (strcmp(verb, "task") == 0) {
		set_task(s, l);
		return false;
	}
	if (strcmp(verb, "wait") == 0) {
		s->now += seconds(strtod(word(l, 1), NULL));
		e->type = CORE_EV_TIME;
	} else if (l->n > 1 && word(l, 1)[0] == 'p' && word(l, 1)[1] >= '0' && word(l, 1)[1] <= '9') {
		e->peer = peer_of(l);
		if (strcmp(verb, "recorded") == 0)
			parse_answer(s, l, e, verb);
		else
			parse_peer(s, l, e, verb);
	} else if (strcmp(verb, "submit") == 0) {
		e->type = CORE_EV_SUBMIT;
		e->task = row(s, word(l, 1));
		e->task.seq = 0;
		e->token = 100 + (uint64_t)task_number(&e->task.id);
		e->due_in_ns = seconds(number(l, "due", 0));
	} else if (strcmp(verb, "ready") == 0) {
		e->type = CORE_EV_READY;
		e->ready.n = list(s, l, 0, word(l, 1));
		e->ready.at = l->tasks[0];
		e->expires_in_ns = seconds(number(l, "exp", 0));
	} else if (strcmp(verb, "gone") == 0 || strcmp(verb, "cancel") == 0) {
		e->type = verb[0] == 'g' ? CORE_EV_GONE : CORE_EV_CANCEL_WISH;
		e->at = attempt(s, word(l, 1));
	} else if (strcmp(verb, "store") == 0 || strcmp(verb, "lease") == 0) {
		e->type = verb[0] == 's' ? CORE_EV_STORE : CORE_EV_LEASE;
		e->up = has(l, "up");
	} else if (strcmp(verb, "pause") == 0) {
		e->type = CORE_EV_PAUSE;
		e->pause.queue = (struct core_paused){ word(l, 1), opt(l, "why") };
		e->pause.on = !has(l, "off");
	} else if (strcmp(verb, "wish") == 0) {
		e->type = CORE_EV_DRAIN_WISH;
		e->drain_wish.worker = word(l, 1);
		e->drain_wish.on = !has(l, "off");
	} else if (strcmp(verb, "beat") == 0) {
		e->type = CORE_EV_BEAT;
		e->beat_mono_ns = s->now;
	} else if (strcmp(verb, "deposed") == 0) {
		e->type = CORE_EV_DEPOSED;
	} else if (strcmp(verb, "hb-of") == 0) {
		char *hash = strchr(l->words[1], '#');
		*hash = '\0';
		e->type = CORE_EV_HB;
		e->hb.worker = word(l, 1);
		e->session = strtoll(hash + 1, NULL, 10);
		e->hb.fresh = has(l, "fresh");
	} else if (strcmp(verb, "took-over") == 0) {
		e->type = CORE_EV_TOOK_OVER;
		e->took_over.master = word(l, 1);
		e->took_over.taken = !has(l, "not");
		e->took_over.incarnation = (int64_t)number(l, "inc", 2);
		e->took_over.beat = (int64_t)number(l, "beat", 0);
	} else if (strcmp(verb, "stalled") == 0) {
		e->type = CORE_EV_STALLED;
		e->stalled_ns = seconds(strtod(word(l, 1), NULL));
	} else {
		parse_answer(s, l, e, verb);
	}
	return true;
}

/* ---- effects in words ---- */

static void say(struct script *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void say(struct script *s, const char *fmt, ...)
{
	size_t n = strlen(s->text);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->text + n, sizeof(s->text) - n, fmt, ap);
	va_end(ap);
}

static void say_list(struct script *s, const char *name, const struct core_attempt *at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		say(s, "%s%st%d/%d", i ? "," : " ", i ? "" : name, task_number(&at[i].task), at[i].attempt);
}

static void say_effect(struct script *s, const struct core_effect *f)
{
	static const char *const causes[] = { "lost", "unlisted", "refused", "recalled", "unsent" };
	static const char *const reasons[] = { "cancelled", "fenced", "recalled" };
	static const char *const verdicts[] = { "recorded", "duplicate", "fenced", "away" };
	static const char *const closes[] = { "replaced", "unavailable", "away", "limit", "protocol" };
	static const unsigned hidden[] = { [CORE_DO_OWN] = SHOW_OWN, [CORE_DO_RELEASE] = SHOW_RELEASE,
		[CORE_DO_LEASE_BEAT] = SHOW_BEAT, [CORE_DO_FILL] = SHOW_FILL, [CORE_DO_QUEUES] = SHOW_FILL,
		[CORE_DO_DUE] = SHOW_FILL, [CORE_DO_STRAYS] = SHOW_STRAYS,
		[CORE_DO_KEYS] = SHOW_KEYS, [CORE_DO_RUNS] = SHOW_KEYS,
		[CORE_DO_DISOWN] = SHOW_KEYS, [CORE_DO_DROP_HASH] = SHOW_KEYS,
		[CORE_DO_WORKER_GONE] = SHOW_GONE, [CORE_DO_DETACHED] = SHOW_GONE, [CORE_DO_EXPIRE] = SHOW_EXPIRE };
	if ((size_t)f->type < ARRAY_LEN(hidden) && hidden[f->type] && !(s->show & hidden[f->type]))
		return;
	int t = task_number(&f->at.task), a = f->at.attempt;
	int p = (int)f->peer;
	if (s->text[0])
		say(s, "; ");
	switch (f->type) {
	case CORE_DO_INSERT:
		s->eager[t] = f->worker != NULL;
		say(s, f->worker ? "insert t%d @%s#%d" : "insert t%d", t, f->worker, (int)f->session);
		break;
	case CORE_DO_PREEMPT: say(s, "preempt t%d/%d %s#%d", t, a, f->worker, (int)f->session); break;
	case CORE_DO_CLAIM: say(s, "claim t%d/%d %s#%d", t, a, f->worker, (int)f->session); break;
	case CORE_DO_OWN: say(s, "own t%d/%d %s", t, a, f->worker); break;
	case CORE_DO_DISPATCH: say(s, "send t%d/%d p%d n%d", t, a, p, (int)f->number); break;
	case CORE_DO_RECORD: say(s, "record t%d/%d tok=%d", t, a, (int)f->token); break;
	case CORE_DO_TAKE_BACK:
		say(s, "back t%d/%d #%d %s%s", t, a, (int)f->session, causes[f->cause], f->counted ? " counted" : "");
		break;
	case CORE_DO_DROP: say(s, "drop tok=%d", (int)f->token); break;
	case CORE_DO_SESSION_OPEN:
		say(s, "open %s p%d", f->worker, p);
		say_list(s, "held=", f->held, f->n_held);
		break;
	case CORE_DO_FILL:
		if (f->from_start)
			say(s, "fill %s start %d", f->queue, f->limit);
		else
			say(s, "fill %s after %d/%d %d", f->queue, f->priority, (int)f->seq, f->limit);
		break;
	case CORE_DO_QUEUES: say(s, "queues"); break;
	case CORE_DO_PAUSED: say(s, "paused %s", f->queue); break;
	case CORE_DO_DUE: say(s, "due"); break;
	case CORE_DO_EXPIRE: say(s, "expire"); break;
	case CORE_DO_STRAYS: say(s, "strays after t%d", t); break;
	case CORE_DO_ASK_HB: say(s, "hb? %s#%d", f->worker, (int)f->session); break;
	case CORE_DO_TAKE_OVER:
		say(s, "take over %s inc=%d beat=%d", f->master, (int)f->incarnation, (int)f->beat);
		break;
	case CORE_DO_DETACHED:
		say(s, "detached %s#%d %g", f->worker, (int)f->session, (double)f->detach_ns / 1e9);
		break;
	case CORE_DO_WORKER_GONE:
		say(s, "gone %s#%d %g", f->worker, (int)f->session, (double)f->heard_ago_ns / 1e9);
		break;
	case CORE_DO_RELEASE: say(s, "release t%d/%d %s", t, a, f->worker); break;
	case CORE_DO_LEASE_BEAT:
		say(s, "beat %s", f->worker);
		say_list(s, "held=", f->held, f->n_owned);
		say_list(s, "slots=", f->held + f->n_owned, f->n_held - f->n_owned);
		break;
	case CORE_DO_KEYS: say(s, "keys from %d", (int)f->cursor); break;
	case CORE_DO_RUNS:
		say(s, "runs");
		for (size_t i = 0; i < f->n_owners; i++)
			say(s, " %s#%d:t%d/%d", f->owners[i].worker, (int)f->owners[i].session,
			    task_number(&f->owners[i].at.task), f->owners[i].at.attempt);
		break;
	case CORE_DO_DISOWN: say(s, "disown t%d/%d %s#%d", t, a, f->worker, (int)f->session); break;
	case CORE_DO_DROP_HASH: say(s, "drop hash %s", f->worker); break;
	case CORE_DO_WELCOME:
		say(s, "welcome p%d %s#%d", p, f->worker, (int)f->session);
		if (f->lease_ns != s->cfg.lease_ttl_ns || f->heartbeat_ns != s->cfg.heartbeat_ns)
			say(s, " H=%g L=%g", (double)f->heartbeat_ns / 1e9, (double)f->lease_ns / 1e9);
		if (f->resumed) {
			say(s, " resumed");
			say_list(s, "held=", f->held, f->n_held);
		}
		break;
	case CORE_DO_HEARTBEAT_ACK:
		say(s, "hback p%d n=%d%s", p, (int)f->number, f->exclusive_not_renewed ? " not-exclusive" : "");
		break;
	case CORE_DO_STOP: say(s, "stop t%d/%d p%d %s", t, a, p, reasons[f->stop]); break;
	case CORE_DO_OUTCOME_ACK: say(s, "ack t%d/%d p%d %s", t, a, p, verdicts[f->verdict]); break;
	case CORE_DO_CLOSE_PEER: say(s, "close p%d %s", p, closes[f->close]); break;
	}
}

void script_init(struct script *s, const struct core_config *cfg)
{
	memset(s, 0, sizeof(*s));
	core_config_default(&s->cfg);
	if (cfg)
		s->cfg = *cfg;
	s->now = 1000 * NS_PER_S;
	s->core = core_new(&s->cfg, s->now);
	core_effects_init(&s->out);
}

void script_start(struct script *s, const struct core_config *cfg)
{
	script_init(s, cfg);
	script_run(s, "wait 0");
	script_run(s, "queues");
	script_run(s, "due");
}

void script_done(struct script *s)
{
	core_free(s->core);
	core_effects_done(&s->out);
}

const char *script_run(struct script *s, const char *text)
{
	static struct line lines[MAX_EVENTS];
	struct core_event ev[MAX_EVENTS] = {{0}};
	size_t n = 0;
	for (const char *p = text; p && *p;) {
		const char *end = strstr(p, "; ");
		assert(n < MAX_EVENTS);
		split(&lines[n], p, end ? (size_t)(end - p) : strlen(p));
		if (parse(s, &lines[n], &ev[n]))
			n++;
		p = end ? end + 2 : NULL;
	}
	s->text[0] = '\0';
	core_step(s->core, s->now, ev, n, &s->out);
	core_check(s->core);
	for (size_t i = 0; i < n; i++)
		if (ev[i].type == CORE_EV_CLAIMED)
			blob_unref(ev[i].spec);
	for (size_t i = 0; i < s->out.n; i++)
		say_effect(s, &s->out.at[i]);
	return s->text;
}

void script_go(struct script *s, const struct script_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const char *got = script_run(s, rows[i].in);
		if (strcmp(got, rows[i].out) != 0)
			print_error("row %zu: %s\n", i, rows[i].in);
		assert_string_equal(got, rows[i].out);
	}
}
