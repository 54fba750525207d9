/* Deposed: this master's beat stood still for so long that another has taken over its sessions, and judges them.
 *
 * What says that this master holds a session is forgotten: streams, sessions, and jobs from SENT on, also those whose
 * answer is still on its way from the store (it will find nobody, which every answer may).  Who is right about those
 * attempts are the rows, and the workers, who come again with their lists.  From here on it is as after a start of its own.
 *
 * What stays says nothing about sessions: the window, whose rows are PENDING in the store; jobs up to CLAIMING, whose
 * answers settle them (the session is gone, so that what was won after all goes back as never sent); and a session that is
 * being opened: if the store opens it, it is one of this master's, after the take-over. */
#include "server/core/internal.h"

static void forget_jobs(struct core *c, struct worker *w)
{
	list_each(it, &w->jobs) {
		struct job *j = container_of(it, struct job, at_worker);
		if (j->state >= JOB_SENT)
			job_free(c, j);
	}
}

static void forget_session(struct core *c, struct worker *w)
{
	hello_close(c, w->opening, CORE_CLOSE_UNAVAILABLE);
	hello_close(c, w->next, CORE_CLOSE_UNAVAILABLE);
	hello_free(c, w->next);
	w->next = NULL;
	worker_drop_peer(c, w, true, CORE_CLOSE_UNAVAILABLE);
	/* Not the end of its lease: nobody is told that it is gone. */
	w->session = 0;
	w->detached_until = 0;
	w->grace_end = NEVER;
	worker_timer(c, w);
	forget_jobs(c, w); /* and with the last one perhaps the worker */
	worker_maybe_forget(c, w);
}

void session_on_deposed(struct core *c, const struct core_event *ev)
{
	for (struct map_node *n = map_first(&c->workers), *next; n; n = next) {
		next = map_next(&c->workers, n);
		forget_session(c, container_of(n, struct worker, node));
	}
	recovery_restart(c);
}
