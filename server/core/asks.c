/* Names and what is asked by them: one object each, found by its text, counted.  An object of a task that nobody holds any
 * more lives on until the next step, since rows of the step still point to its text. */
#include "server/core/internal.h"

#include <string.h>

/* ---- names ---- */

static struct name *name_get(struct core *c, const char *text, size_t len)
{
	struct name *n = name_find(c, text, len);
	if (!n) {
		n = xcalloc(1, sizeof(*n) + len + 1);
		memcpy(n->text, text, len);
		map_put(&c->names, &n->node, n->text, len);
	}
	n->refs++;
	return n;
}

static void name_put(struct core *c, struct name *n)
{
	if (--n->refs)
		return;
	map_remove(&c->names, &n->node);
	free(n);
}

struct name *name_find(const struct core *c, const char *text, size_t len)
{
	struct map_node *n = map_get(&c->names, text, len);
	return n ? container_of(n, struct name, node) : NULL;
}

struct name *name_offer(struct core *c, const char *text)
{
	size_t len = strlen(text);
	const struct name *known = name_find(c, text, len);
	bool fresh = !known || !known->offers;
	/* Names come from workers: without a limit they fill the memory. */
	if (len > CORE_NAME_MAX || (fresh && c->n_offered >= ASKS_OFFERED_MAX))
		return NULL;
	struct name *n = name_get(c, text, len);
	c->n_offered += fresh;
	n->offers++;
	return n;
}

void name_withdraw(struct core *c, struct name *n)
{
	if (--n->offers == 0)
		c->n_offered--;
	name_put(c, n);
}

/* ---- counted resources ---- */

const char *custom_next(const char *at, const char **ret_name, size_t *ret_len, int64_t *ret_n)
{
	size_t len = strcspn(at, " "), name = 0;
	while (name < len && at[name] != '=')
		name++;
	int64_t n = 0;
	size_t i = name + 1;
	for (; i < len && at[i] >= '0' && at[i] <= '9' && n <= INT64_MAX / 10 - 1; i++)
		n = n * 10 + (at[i] - '0');
	*ret_name = at;
	*ret_len = name;
	*ret_n = i == len && i > name + 1 ? n : INT64_MAX;
	return at[len] ? at + len + 1 : NULL;
}

static size_t entries(const char *custom)
{
	size_t n = 0;
	for (const char *p = custom; p && *p; p = strchr(p, ' '), p = p ? p + 1 : NULL)
		n++;
	return n;
}

static int by_name(const void *a, const void *b)
{
	const struct count *x = a, *y = b;
	return x->name < y->name ? -1 : x->name > y->name;
}

int stock_new(struct core *c, const char *custom, struct stock **ret, size_t *ret_n)
{
	size_t n = entries(custom), len;
	struct count counts[CORE_CUSTOM_ENTRIES];
	char text[CORE_NAME_MAX + 1];
	*ret = NULL;
	*ret_n = 0;
	if (n > CORE_CUSTOM_ENTRIES)
		return -1;
	for (size_t i = 0; i < n; i++) {
		const char *name;
		custom = custom_next(custom, &name, &len, &counts[i].n);
		memcpy(text, name, min_sz(len, CORE_NAME_MAX));
		text[min_sz(len, CORE_NAME_MAX)] = '\0';
		counts[i].name = name_offer(c, text);
		if (!counts[i].name) {
			while (i-- > 0)
				name_withdraw(c, counts[i].name);
			return -1;
		}
	}
	if (!n)
		return 0;
	qsort(counts, n, sizeof(counts[0]), by_name);
	*ret = xcalloc(n, sizeof(**ret));
	*ret_n = n;
	for (size_t i = 0; i < n; i++)
		(*ret)[i] = (struct stock){ .name = counts[i].name, .have = counts[i].n };
	return 0;
}

void stock_free(struct core *c, struct stock *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		name_withdraw(c, s[i].name);
	free(s);
}

bool stock_has(const struct stock *s, size_t n, const struct asks *a, bool empty)
{
	size_t k = 0;
	for (size_t i = 0; i < a->n_counts; i++) {
		while (k < n && s[k].name < a->counts[i].name)
			k++;
		if (k == n || s[k].name != a->counts[i].name || a->counts[i].n > s[k].have - (empty ? 0 : s[k].used))
			return false;
	}
	return true;
}

void stock_use(struct stock *s, size_t n, const struct asks *a, int sign)
{
	size_t k = 0;
	for (size_t i = 0; i < a->n_counts; i++) {
		while (k < n && s[k].name < a->counts[i].name)
			k++;
		if (k < n && s[k].name == a->counts[i].name)
			s[k].used += (wide)sign * a->counts[i].n;
	}
}

/* ---- what tasks ask ---- */

static struct asks *asks_new(struct core *c, const char *handler, size_t handler_len, const char *custom, size_t custom_len)
{
	struct asks *a = xcalloc(1, sizeof(*a) + handler_len + custom_len + 2);
	list_init(&a->link_idle);
	memcpy(a->key, handler, handler_len);
	memcpy(a->key + handler_len + 1, custom, custom_len);
	a->custom = a->key + handler_len + 1;
	if (handler_len)
		a->handler = name_get(c, handler, handler_len);
	a->n_counts = entries(custom);
	if (a->n_counts)
		a->counts = xcalloc(a->n_counts, sizeof(*a->counts));
	for (size_t i = 0; i < a->n_counts; i++) {
		const char *name;
		size_t len;
		custom = custom_next(custom, &name, &len, &a->counts[i].n);
		a->counts[i].name = name_get(c, name, len);
	}
	if (a->n_counts)
		qsort(a->counts, a->n_counts, sizeof(*a->counts), by_name);
	map_put(&c->asks, &a->node, a->key, handler_len + custom_len + 2);
	return a;
}

struct asks *asks_get(struct core *c, const char *handler, const char *custom)
{
	size_t handler_len = handler ? strlen(handler) : 0, custom_len = custom ? strlen(custom) : 0;
	if (!handler_len && !custom_len)
		return NULL;
	char key[CORE_NAME_MAX + CORE_CUSTOM_MAX + 2];
	/* What the limits at the door let in fits; of anything longer the rest asks for nothing. */
	handler_len = min_sz(handler_len, CORE_NAME_MAX);
	custom_len = min_sz(custom_len, CORE_CUSTOM_MAX);
	memcpy(key, handler_len ? handler : "", handler_len);
	key[handler_len] = '\0';
	memcpy(key + handler_len + 1, custom_len ? custom : "", custom_len);
	key[handler_len + 1 + custom_len] = '\0';
	struct map_node *n = map_get(&c->asks, key, handler_len + custom_len + 2);
	struct asks *a = n ? container_of(n, struct asks, node)
			   : asks_new(c, key, handler_len, key + handler_len + 1, custom_len);
	asks_ref(c, a);
	return a;
}

void asks_ref(struct core *c, struct asks *a)
{
	if (!a)
		return;
	a->refs++;
	list_remove(&a->link_idle);
}

void asks_put(struct core *c, struct asks *a)
{
	if (a && --a->refs == 0)
		list_push_back(&c->idle_asks, &a->link_idle);
}

void asks_free_idle(struct core *c)
{
	struct list *n;
	while ((n = list_pop_front(&c->idle_asks))) {
		struct asks *a = container_of(n, struct asks, link_idle);
		map_remove(&c->asks, &a->node);
		for (size_t i = 0; i < a->n_counts; i++)
			name_put(c, a->counts[i].name);
		if (a->handler)
			name_put(c, a->handler);
		free(a->counts);
		free(a);
	}
}
