/* The table behind the interface: calls take effect at once, their answers wait for the flush. */
#include "server/lease/memory/memory.h"

#include "server/lease/answers.h"
#include "server/lease/page.h"

#include <assert.h>
#include <errno.h>

struct lease_memory {
	struct lease base;
	struct loop *loop;
	struct loop_dirty dirty;
	struct loop_grave grave;
	struct lease_table *table;
	struct answers answers;
	size_t max_pending;
	struct page page;
	bool scanning; /* a page is wanted: gathered in the flush */
	uint64_t scan_from, scan_cookie;
	struct lease_stats stats;
};

static struct lease_memory *self(struct lease *l)
{
	return container_of(l, struct lease_memory, base);
}

static void memory_preempt(struct lease *l, const struct lease_slot *items, size_t n)
{
	struct lease_memory *m = self(l);
	int64_t now = loop_now_mono_ns(m->loop);
	for (size_t i = 0; i < n; i++) {
		bool over = m->answers.len >= m->max_pending;
		answers_add(&m->answers, items[i].cookie, over ? LEASE_DOWN : lease_table_preempt(m->table, now, &items[i]));
	}
	loop_mark(m->loop, &m->dirty);
}

static void memory_own(struct lease *l, const struct lease_owner *items, size_t n)
{
	struct lease_memory *m = self(l);
	for (size_t i = 0; i < n; i++)
		if (lease_table_own(m->table, loop_now_mono_ns(m->loop), &items[i]) < 0)
			m->stats.dropped++;
}

static void memory_release(struct lease *l, const struct lease_owner *items, size_t n)
{
	struct lease_memory *m = self(l);
	for (size_t i = 0; i < n; i++)
		lease_table_release(m->table, loop_now_mono_ns(m->loop), &items[i]);
}

static void memory_beat(struct lease *l, const struct lease_beat *beat)
{
	struct lease_memory *m = self(l);
	if (lease_table_beat(m->table, loop_now_mono_ns(m->loop), beat) == -ENOSPC)
		m->stats.dropped++;
}

static void memory_query_hb(struct lease *l, const char *worker, uint64_t cookie)
{
	struct lease_memory *m = self(l);
	struct lease_hb hb = { .cookie = cookie };
	lease_table_hb(m->table, loop_now_mono_ns(m->loop), worker, &hb);
	answers_add_hb(&m->answers, &hb);
	loop_mark(m->loop, &m->dirty);
}

static void memory_scan(struct lease *l, uint64_t from, uint64_t cookie)
{
	struct lease_memory *m = self(l);
	assert(!m->scanning);
	m->scanning = true;
	m->scan_from = from;
	m->scan_cookie = cookie;
	loop_mark(m->loop, &m->dirty);
}

static void memory_disown(struct lease *l, const struct lease_owner *items, size_t n)
{
	struct lease_memory *m = self(l);
	for (size_t i = 0; i < n; i++)
		lease_table_disown(m->table, loop_now_mono_ns(m->loop), &items[i]);
}

static void memory_drop_hash(struct lease *l, const char *worker)
{
	struct lease_memory *m = self(l);
	lease_table_drop_hash(m->table, loop_now_mono_ns(m->loop), worker);
}

static bool memory_is_up(const struct lease *l)
{
	return true;
}

static void memory_stats(const struct lease *l, struct lease_stats *ret)
{
	const struct lease_memory *m = container_of(l, const struct lease_memory, base);
	*ret = m->stats;
	ret->pending = (int64_t)(m->answers.len + m->answers.n_hbs + m->scanning);
}

static void flush(struct loop_dirty *d)
{
	struct lease_memory *m = container_of(d, struct lease_memory, dirty);
	if (m->scanning) {
		m->scanning = false;
		page_clear(&m->page);
		uint64_t next = lease_table_scan(m->table, loop_now_mono_ns(m->loop), m->scan_from, &m->page);
		answers_set_page(&m->answers, &m->page, m->scan_cookie, next);
	}
	answers_deliver(&m->answers);
}

static void bury(struct loop_grave *g)
{
	struct lease_memory *m = container_of(g, struct lease_memory, grave);
	lease_table_free(m->table);
	answers_done(&m->answers);
	page_done(&m->page);
	free(m);
}

static void memory_free(struct lease *l)
{
	struct lease_memory *m = self(l);
	m->answers.closed = true;
	loop_unmark(&m->dirty);
	loop_bury(m->loop, &m->grave, bury);
}

static const struct lease_ops ops = {
	.preempt = memory_preempt,
	.own = memory_own,
	.release = memory_release,
	.beat = memory_beat,
	.query_hb = memory_query_hb,
	.scan = memory_scan,
	.disown = memory_disown,
	.drop_hash = memory_drop_hash,
	.is_up = memory_is_up,
	.stats = memory_stats,
	.free = memory_free,
};

struct lease *lease_memory_new(struct loop *loop, const struct lease_memory_config *cfg,
			       const struct lease_events *events, void *arg)
{
	struct lease_memory *m = xcalloc(1, sizeof(*m));
	m->base.ops = &ops;
	m->loop = loop;
	m->max_pending = cfg->max_pending ? cfg->max_pending : 65536;
	m->table = lease_table_new(cfg->task_key_ttl_ns, cfg->max_keys ? cfg->max_keys : 4000000);
	answers_init(&m->answers, events, arg);
	page_init(&m->page);
	loop_dirty_init(&m->dirty, LOOP_WORK, flush);
	return &m->base;
}

struct lease_table *lease_memory_table(struct lease *l)
{
	return self(l)->table;
}
