/* Two arrays of each kind, swapped at delivery, so that callbacks may add while one is read. */
#include "server/lease/answers.h"

#include <string.h>

void answers_init(struct answers *a, const struct lease_events *events, void *arg)
{
	*a = (struct answers){ .events = events, .arg = arg };
}

void answers_done(struct answers *a)
{
	free(a->at);
	free(a->spare);
	free(a->hbs);
	free(a->spare_hbs);
	*a = (struct answers){ .closed = true };
}

void answers_add(struct answers *a, uint64_t cookie, enum lease_verdict verdict)
{
	a->at = xgrow(a->at, a->len, &a->cap, sizeof(*a->at));
	a->at[a->len++] = (struct lease_answer){ .cookie = cookie, .verdict = verdict };
}

void answers_add_hb(struct answers *a, const struct lease_hb *hb)
{
	a->hbs = xgrow(a->hbs, a->n_hbs, &a->hbs_cap, sizeof(*a->hbs));
	a->hbs[a->n_hbs++] = *hb;
}

void answers_set_page(struct answers *a, const struct page *p, uint64_t cookie, uint64_t next)
{
	a->page = (struct lease_page){ .cookie = cookie, .ok = p != NULL };
	if (p) {
		a->page.next = next;
		a->page.owners = p->owners;
		a->page.n_owners = p->n_owners;
		a->page.hashes = (const char *const *)p->hashes;
		a->page.n_hashes = p->n_hashes;
	}
	a->has_page = true;
}

void answers_deliver(struct answers *a)
{
	size_t n = a->len, n_hbs = a->n_hbs;
	bool has_page = a->has_page;
	a->has_page = false;
	struct answers old = *a;
	a->at = old.spare, a->cap = old.spare_cap, a->len = 0;
	a->spare = old.at, a->spare_cap = old.cap;
	a->hbs = old.spare_hbs, a->hbs_cap = old.spare_hbs_cap, a->n_hbs = 0;
	a->spare_hbs = old.hbs, a->spare_hbs_cap = old.hbs_cap;
	if (n && !a->closed)
		a->events->on_preempted(a->arg, a->spare, n);
	for (size_t i = 0; i < n_hbs && !a->closed; i++)
		a->events->on_hb(a->arg, &a->spare_hbs[i]);
	if (has_page && !a->closed)
		a->events->on_page(a->arg, &old.page);
}
