#include "worker/supervisor/ending.h"

enum move {
	NOT,    /* nothing, or it can't be */
	BEGIN,  /* the first wish: SIGTERM, or SIGKILL where there is no grace */
	SOONER, /* a further wish: may only make it quicker */
	FREEZE, /* the lease's SIGTERM is due while another stop runs: its kill is fixed from here on */
	KILL,
	KILL_BY_LEASE,
	CLEAR,  /* the first process has ended by itself: the rest at once */
	DONE,
};

static const enum move table[ENDING_STATES][ENDING_EVENTS] = {
	/*                STOP    SIGNAL  TIMEOUT ORPHAN  LEASE_TERM LEASE_KILL     GRACE_OVER FIRST_EXIT EMPTY */
	[ENDING_RUN]  = {BEGIN,  BEGIN,  BEGIN,  BEGIN,  BEGIN,     KILL_BY_LEASE, NOT,       CLEAR,     NOT},
	[ENDING_TERM] = {SOONER, SOONER, NOT,    NOT,    FREEZE,    KILL,          KILL,      NOT,       DONE},
	[ENDING_KILL] = {NOT,    NOT,    NOT,    NOT,    NOT,       NOT,           NOT,       NOT,       DONE},
	[ENDING_DONE] = {NOT,    NOT,    NOT,    NOT,    NOT,       NOT,           NOT,       NOT,       NOT},
};

static const enum sup_stopped_by by[ENDING_EVENTS] = {
	[ENDING_STOP] = SUP_BY_AGENT,
	[ENDING_SIGNAL] = SUP_BY_SIGNAL,
	[ENDING_TIMEOUT] = SUP_BY_TIMEOUT,
	[ENDING_ORPHAN] = SUP_BY_ORPHAN,
	[ENDING_LEASE_TERM] = SUP_BY_LEASE,
	[ENDING_LEASE_KILL] = SUP_BY_LEASE,
};

static int64_t later(int64_t t, int64_t by_ns)
{
	return t > SUP_NEVER - by_ns ? SUP_NEVER : t + by_ns;
}

void ending_init(struct ending *e, int64_t kill_grace_ns)
{
	*e = (struct ending){.connected = true, .kill_boot_ns = SUP_NEVER, .timeout_boot_ns = SUP_NEVER,
		.kill_grace_ns = kill_grace_ns};
	e->deadlines.term_boot_ns = e->deadlines.kill_boot_ns = e->deadlines.orphan_boot_ns = SUP_NEVER;
}

void ending_renew(struct ending *e, const struct sup_deadlines *d)
{
	if (e->lease_stop)
		e->kill_boot_ns = min_i64(e->kill_boot_ns, d->kill_boot_ns);
	else
		e->deadlines = *d;
}

static void freeze(struct ending *e)
{
	e->lease_stop = true;
	e->kill_boot_ns = min_i64(e->kill_boot_ns, e->deadlines.kill_boot_ns);
}

static enum ending_action kill_now(struct ending *e)
{
	e->state = ENDING_KILL;
	return ENDING_SEND_KILL;
}

static enum ending_action begin(struct ending *e, enum ending_event event, int64_t kill_boot_ns, int64_t now)
{
	e->stopped_by = by[event];
	e->kill_boot_ns = kill_boot_ns;
	if (event == ENDING_LEASE_TERM) {
		e->kill_boot_ns = SUP_NEVER;
		freeze(e);
	}
	if (min_i64(e->kill_boot_ns, e->deadlines.kill_boot_ns) <= now)
		return kill_now(e);
	e->state = ENDING_TERM;
	return ENDING_SEND_TERM;
}

enum ending_action ending_step(struct ending *e, enum ending_event event, int64_t grace_ns, int64_t now)
{
	int64_t kill_boot_ns = later(now, grace_ns < 0 ? e->kill_grace_ns : grace_ns);
	switch (table[e->state][event]) {
	case NOT:
		return ENDING_NOTHING;
	case BEGIN:
		return begin(e, event, kill_boot_ns, now);
	case SOONER:
		e->kill_boot_ns = min_i64(e->kill_boot_ns, kill_boot_ns);
		return e->kill_boot_ns <= now ? kill_now(e) : ENDING_NOTHING;
	case FREEZE:
		freeze(e);
		return e->kill_boot_ns <= now ? kill_now(e) : ENDING_NOTHING;
	case KILL_BY_LEASE:
		e->stopped_by = by[event];
		return kill_now(e);
	case KILL:
	case CLEAR:
		return kill_now(e);
	case DONE:
		e->state = ENDING_DONE;
		return ENDING_FINISH;
	}
	return ENDING_NOTHING;
}

enum ending_event ending_due(const struct ending *e, int64_t now)
{
	const struct sup_deadlines *d = &e->deadlines;
	if (e->state != ENDING_RUN && e->state != ENDING_TERM)
		return ENDING_EVENTS;
	if (d->kill_boot_ns <= now)
		return ENDING_LEASE_KILL;
	if (d->term_boot_ns <= now && !e->lease_stop)
		return ENDING_LEASE_TERM;
	if (e->state == ENDING_TERM)
		return e->kill_boot_ns <= now ? ENDING_GRACE_OVER : ENDING_EVENTS;
	if (e->timeout_boot_ns <= now)
		return ENDING_TIMEOUT;
	if (d->orphan_boot_ns <= now && !e->connected)
		return ENDING_ORPHAN;
	return ENDING_EVENTS;
}

int64_t ending_lease_kill(const struct ending *e)
{
	if (e->state == ENDING_DONE)
		return SUP_NEVER;
	return e->lease_stop ? min_i64(e->kill_boot_ns, e->deadlines.kill_boot_ns) : e->deadlines.kill_boot_ns;
}

int64_t ending_next(const struct ending *e)
{
	const struct sup_deadlines *d = &e->deadlines;
	int64_t next = d->kill_boot_ns;
	if (e->state != ENDING_RUN && e->state != ENDING_TERM)
		return SUP_NEVER;
	if (!e->lease_stop)
		next = min_i64(next, d->term_boot_ns);
	if (e->state == ENDING_TERM)
		return min_i64(next, e->kill_boot_ns);
	next = min_i64(next, e->timeout_boot_ns);
	return e->connected ? next : min_i64(next, d->orphan_boot_ns);
}
