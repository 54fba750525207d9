/* What every response has, in whatever dialect. */
#include <stdio.h>
#include <string.h>

#include "common/grpc/cors.h"
#include "common/grpc/dialect.h"
#include "common/grpc/server.h"

void reply_init(struct reply *r, const struct exchange *x, const struct grpc_server_config *cfg)
{
	*r = (struct reply){ .x = *x, .cfg = cfg };
}

void reply_done(struct reply *r)
{
	buf_done(&r->held);
}

void reply_respond(struct reply *r, const struct h2_header *h, size_t n, bool end)
{
	struct h2_header all[REPLY_FIELDS_MAX + 1 + CORS_FIELDS_MAX];
	size_t all_n = min_sz(n, REPLY_FIELDS_MAX);
	memcpy(all, h, all_n * sizeof(*h));
	all[all_n++] = (struct h2_header)H2_HEADER("server", "reins/" REINS_VERSION);
	all_n += cors_fields(r->cfg, r->origin, all + all_n);
	r->begun = true;
	r->x.ops->respond(&r->x, all, all_n, end);
}

struct h2_header reply_length(size_t n, char ret_text[static 24])
{
	return (struct h2_header){ "content-length", ret_text, (size_t)snprintf(ret_text, 24, "%zu", n), 0 };
}

bool reply_write(struct reply *r, const void *data, size_t len)
{
	uint8_t *at = r->x.ops->reserve(&r->x, len);
	if (!at) {
		r->x.ops->reset(&r->x);
		return false;
	}
	memcpy(at, data, len);
	r->x.ops->commit(&r->x, len);
	return true;
}

void reply_plain(struct reply *r, const char *status, const struct h2_header *field, const char *text)
{
	char body[512], len[24];
	size_t n = min_sz((size_t)snprintf(body, sizeof(body), "%s\n", text), sizeof(body) - 1);
	struct h2_header h[4] = {
		{ ":status", status, strlen(status), 0 },
		H2_HEADER("content-type", "text/plain; charset=utf-8"),
		reply_length(n, len),
	};
	const char *method = r->x.ops->header(&r->x, ":method");
	bool head = method && strcmp(method, "HEAD") == 0;
	if (field)
		h[3] = *field;
	exchange_ignore(&r->x, true);
	reply_respond(r, h, field ? 4 : 3, head);
	if (!head && reply_write(r, body, n))
		r->x.ops->finish(&r->x, NULL, 0);
}
