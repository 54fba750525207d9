#include "server/lease/page.h"

#include <string.h>

void page_init(struct page *p)
{
	*p = (struct page){ 0 };
}

void page_clear(struct page *p)
{
	for (size_t i = 0; i < p->n_owners; i++)
		free((char *)(uintptr_t)p->owners[i].worker);
	for (size_t i = 0; i < p->n_hashes; i++)
		free(p->hashes[i]);
	p->n_owners = p->n_hashes = 0;
}

void page_done(struct page *p)
{
	page_clear(p);
	free(p->owners);
	free(p->hashes);
	page_init(p);
}

static char *copy(const char *text, size_t len)
{
	char *s = xcalloc(1, len + 1);
	memcpy(s, text, len);
	return s;
}

void page_add_owner(struct page *p, const struct uuid *task, int32_t attempt, int64_t session, const char *worker, size_t len)
{
	p->owners = xgrow(p->owners, p->n_owners, &p->owners_cap, sizeof(*p->owners));
	p->owners[p->n_owners++] =
		(struct lease_owner){ .task = *task, .attempt = attempt, .worker = copy(worker, len), .session = session };
}

void page_add_hash(struct page *p, const char *worker, size_t len)
{
	p->hashes = xgrow(p->hashes, p->n_hashes, &p->hashes_cap, sizeof(*p->hashes));
	p->hashes[p->n_hashes++] = copy(worker, len);
}
