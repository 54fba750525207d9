#include "server/lease/redis/scan.h"

#include "server/lease/redis/gather.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <string.h>

#define TASK_HEAD "task:{"
#define TASK_TAIL "}:workerId"
#define WORKER_HEAD "worker:{"
#define WORKER_TAIL "}:task"

void redis_scan_init(struct redis_scan *s)
{
	*s = (struct redis_scan){ 0 };
	page_init(&s->page);
}

static void clear_items(struct redis_scan *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->items[i].worker);
	s->n = 0;
}

void redis_scan_done(struct redis_scan *s)
{
	clear_items(s);
	free(s->items);
	page_done(&s->page);
}

void redis_scan_begin(struct redis_scan *s, uint64_t cookie)
{
	s->busy = true;
	s->failed = s->asked = false;
	s->cookie = cookie;
	s->next = 0;
	s->n_answered = 0;
	clear_items(s);
}

void redis_scan_pattern(const char *prefix, size_t prefix_len, char *ret)
{
	for (size_t i = 0; i < prefix_len; i++) {
		if (strchr("*?[\\", prefix[i]))
			*ret++ = '\\';
		*ret++ = prefix[i];
	}
	/* "…:workerId" and "…:task", but no hb. */
	memcpy(ret, "*[dk]", 6);
}

/* What stands between, NULL: not of this form. */
static const char *between(const char *text, size_t len, const char *head, const char *tail, size_t *ret_len)
{
	size_t n_head = strlen(head), n_tail = strlen(tail);
	if (len < n_head + n_tail || memcmp(text, head, n_head) != 0 || memcmp(text + len - n_tail, tail, n_tail) != 0)
		return NULL;
	*ret_len = len - n_head - n_tail;
	return text + n_head;
}

/* As workers may be named: foreign bytes would be no text to the store. */
static bool is_name(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return false;
	return len > 0 && len <= GATHER_WORKER_MAX;
}

/* Digits only. -EINVAL: something else, or more than `max`. */
static int number(const char *text, size_t len, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9' || v > (max - (uint64_t)(text[i] - '0')) / 10)
			return -EINVAL;
		v = v * 10 + (uint64_t)(text[i] - '0');
	}
	if (len == 0)
		return -EINVAL;
	*ret = v;
	return 0;
}

static struct redis_scan_item *add_item(struct redis_scan *s)
{
	s->items = xgrow(s->items, s->n, &s->cap, sizeof(*s->items));
	struct redis_scan_item *it = &s->items[s->n++];
	*it = (struct redis_scan_item){ 0 };
	return it;
}

static void add_name(struct redis_scan *s, const char *name, size_t len)
{
	size_t n;
	struct uuid task;
	const char *id = between(name, len, TASK_HEAD, TASK_TAIL, &n);
	if (id && uuid_parse(id, n, &task) == 0) {
		add_item(s)->task = task;
		return;
	}
	id = between(name, len, WORKER_HEAD, WORKER_TAIL, &n);
	if (!id || !is_name(id, n))
		return;
	char *worker = xcalloc(1, n + 1);
	memcpy(worker, id, n);
	add_item(s)->worker = worker;
}

bool redis_scan_names(struct redis_scan *s, const char *prefix, size_t prefix_len, const redisReply *reply)
{
	page_clear(&s->page);
	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
	    reply->element[0]->type != REDIS_REPLY_STRING || reply->element[1]->type != REDIS_REPLY_ARRAY ||
	    number(reply->element[0]->str, reply->element[0]->len, UINT64_MAX, &s->next) < 0)
		return false;
	const redisReply *names = reply->element[1];
	for (size_t i = 0; i < names->elements && s->n < SCAN_NAMES_MAX; i++) {
		const redisReply *name = names->element[i];
		if (name->type == REDIS_REPLY_STRING && name->len >= prefix_len && memcmp(name->str, prefix, prefix_len) == 0)
			add_name(s, name->str + prefix_len, name->len - prefix_len);
	}
	return true;
}

/* "<worker> <session> <attempt>" */
static void read_owner(struct redis_scan *s, const struct uuid *task, const char *value, size_t len)
{
	uint64_t session, attempt;
	const char *last = memrchr(value, ' ', len);
	const char *first = last ? memrchr(value, ' ', (size_t)(last - value)) : NULL;
	if (!first || !is_name(value, (size_t)(first - value)) ||
	    number(first + 1, (size_t)(last - first - 1), INT64_MAX, &session) < 0 ||
	    number(last + 1, (size_t)(value + len - last - 1), INT32_MAX, &attempt) < 0)
		return;
	page_add_owner(&s->page, task, (int32_t)attempt, (int64_t)session, value, (size_t)(first - value));
}

void redis_scan_item_reply(struct redis_scan *s, size_t item, const redisReply *reply)
{
	const struct redis_scan_item *it = &s->items[item];
	s->n_answered++;
	if (!reply)
		s->failed = true;
	else if (!it->worker && reply->type == REDIS_REPLY_STRING)
		read_owner(s, &it->task, reply->str, reply->len);
	else if (it->worker && reply->type == REDIS_REPLY_INTEGER && reply->integer == 0)
		page_add_hash(&s->page, it->worker, strlen(it->worker));
}
