/* From a request's headers to a call, or to the answer why there is none: before a byte of the body is looked at. */
#include <stdio.h>
#include <string.h>

#include "common/grpc/cors.h"
#include "common/grpc/gzip.h"
#include "common/grpc/query.h"
#include "common/grpc/server_impl.h"

#define TYPES "application/grpc, application/grpc-web, application/json, application/proto, application/connect+json, application/connect+proto"

/* A refusal below the dialects, or without one. NULL, so that it can be returned. */
static struct grpc_call *answer_http(struct grpc_server *srv, struct reply *r, const char *status, const struct h2_header *field,
				     const char *text)
{
	srv->stats.not_grpc++;
	reply_plain(r, status, field, text);
	return NULL;
}

static struct grpc_call *answer_refusal(struct reply *r, const struct refusal *refusal)
{
	r->gzip = false;
	exchange_ignore(&r->x, r->dialect->reads_to_end);
	r->dialect->end(r, refusal);
	return NULL;
}

/* Of a request that becomes no call. */
static struct grpc_call *answer_no_call(struct grpc_server *srv, struct reply *r, const struct refusal *refusal)
{
	call_count(srv, &srv->entries[srv->cfg.n_methods].stats, r->dialect, refusal->code);
	return answer_refusal(r, refusal);
}

static struct grpc_call *answer_status(struct grpc_server *srv, struct reply *r, enum status_code code, const char *text)
{
	struct refusal refusal;
	(void)refuse(&refusal, code, NULL, "%s", text);
	return answer_no_call(srv, r, &refusal);
}

static struct grpc_call *answer_no_memory(struct grpc_server *srv, struct reply *r)
{
	struct refusal refusal;
	(void)refuse_no_memory(&refusal, "out of memory");
	return answer_no_call(srv, r, &refusal);
}

static struct method_entry *entry_at(struct grpc_server *srv, const char *path, size_t len)
{
	struct map_node *n = map_get(&srv->methods, path, len);
	return n ? container_of(n, struct method_entry, node) : NULL;
}

/* No dialect: the wrong verb, or the wrong content. */
static struct grpc_call *answer_other(struct grpc_server *srv, struct reply *r, const struct method_entry *entry)
{
	static const struct h2_header post = H2_HEADER("allow", "POST"), both = H2_HEADER("allow", "GET, POST"), types = H2_HEADER("accept-post", TYPES);
	const char *verb = r->x.ops->header(&r->x, ":method");
	if (!entry && verb && strcmp(verb, "POST") != 0 && !r->dialect)
		return answer_http(srv, r, "404", NULL, srv->cfg.http1 ? http1_server_about(srv->cfg.http1) : "nothing is here");
	if (!verb || strcmp(verb, "POST") != 0)
		return answer_http(srv, r, "405", entry && entry->method->safe ? &both : &post, "methods are called by POST, those that only read "
				   "by GET too: ?encoding=json&message={}");
	if (!entry)
		return answer_http(srv, r, "404", NULL, "no such method");
	return answer_http(srv, r, "415", &types, "the content type is none of " TYPES);
}

/* False: answered. What a method can't be called by. */
static bool fits(struct grpc_server *srv, struct reply *r, const struct method_entry *entry)
{
	const struct grpc_method *m = entry->method;
	const struct dialect *d = r->dialect;
	static const struct h2_header types = H2_HEADER("accept-post", TYPES);
	if ((d->needs_http2 || m->shape == GRPC_BIDI) && !r->x.ops->http2)
		answer_http(srv, r, "505", NULL, d->needs_http2 ? "gRPC needs HTTP/2" : "a method with streams both ways needs HTTP/2");
	else if (!(d->shapes & 1u << m->shape))
		answer_http(srv, r, "415", &types, m->shape == GRPC_UNARY ? "this method does not stream: application/json or application/proto"
									   : "this method streams: application/connect+json or +proto");
	else if (d->codec == CODEC_JSON && !entry->types)
		answer_http(srv, r, "415", &types, "this method is not called with JSON");
	else
		return true;
	return false;
}

/* False: answered. */
static bool encoding_ok(struct grpc_server *srv, struct reply *r, bool *ret_gzip)
{
	const struct dialect *d = r->dialect;
	const char *encoding = r->x.ops->header(&r->x, d->encoding);
	char text[160];
	*ret_gzip = encoding && strcmp(encoding, "gzip") == 0;
	r->gzip = gzip_listed(r->x.ops->header(&r->x, d->accept_encoding));
	size_t n = r->x.ops->header_count(&r->x, d->encoding);
	if (!n || *ret_gzip || (encoding && strcmp(encoding, "identity") == 0))
		return true;
	snprintf(text, sizeof(text), "%s %s; one of " GZIP_ENCODINGS " may be given", n > 1 ? "more than one" : "unknown", d->encoding);
	answer_status(srv, r, STATUS_UNIMPLEMENTED, text);
	return false;
}

/* False: answered. *ret_ns 0: none. */
static bool deadline_ok(struct grpc_server *srv, struct reply *r, int64_t *ret_ns)
{
	const struct dialect *d = r->dialect;
	const char *timeout = r->x.ops->header(&r->x, d->timeout);
	int64_t wanted;
	*ret_ns = srv->cfg.max_deadline_ns;
	if (!timeout && !r->x.ops->header_count(&r->x, d->timeout))
		return true;
	if (!timeout || d->parse_timeout(timeout, &wanted) < 0) {
		answer_status(srv, r, STATUS_INVALID_ARGUMENT, d->bad_timeout);
		return false;
	}
	*ret_ns = *ret_ns > 0 ? min_i64(*ret_ns, wanted) : wanted;
	return true;
}

/* False: answered. */
static bool version_ok(struct grpc_server *srv, struct reply *r)
{
	const char *version = r->dialect->missing_is_404 ? r->x.ops->header(&r->x, "connect-protocol-version") : NULL;
	if (!version || strcmp(version, "1") == 0)
		return true;
	answer_status(srv, r, STATUS_INVALID_ARGUMENT, "connect-protocol-version must be 1");
	return false;
}

int call_authorize(struct grpc_server *srv, const struct grpc_request *rq, void **ret_caller, struct refusal *ret_r)
{
	*ret_caller = NULL;
	return srv->cfg.on_authorize ? srv->cfg.on_authorize(srv->cfg.app, rq, ret_caller, ret_r) : 0;
}

/* False: answered. */
static bool authorized(struct grpc_server *srv, struct reply *r, struct method_entry *entry, void **ret_caller)
{
	const struct exchange *x = &r->x;
	const struct grpc_request rq = {
		.method = entry->method,
		.peer = x->ops->peer(x),
		.authorization = x->ops->header(x, "authorization"),
		.n_authorization = x->ops->header_count(x, "authorization"),
		.request_id = x->ops->header(x, "x-request-id"),
		.host = x->ops->header(x, "host"),
		.user_agent = x->ops->header(x, "user-agent"),
		.previous_attempts = x->ops->header(x, "grpc-previous-rpc-attempts"),
	};
	struct refusal refusal = { .code = STATUS_OK };
	if (call_authorize(srv, &rq, ret_caller, &refusal) == 0)
		return true;
	entry->stats.started[r->dialect->protocol]++;
	call_count(srv, &entry->stats, r->dialect, refusal.code);
	answer_refusal(r, &refusal);
	return false;
}

static struct grpc_call *make(struct grpc_server *srv, struct reply *r, struct method_entry *entry, bool gzip)
{
	int64_t left;
	void *caller;
	if (!deadline_ok(srv, r, &left) || !authorized(srv, r, entry, &caller))
		return NULL;
	struct grpc_call *c = call_new(srv, r, entry, caller);
	if (!c && srv->cfg.on_over)
		srv->cfg.on_over(srv->cfg.app, caller, STATUS_RESOURCE_EXHAUSTED);
	if (!c)
		return answer_no_memory(srv, r);
	c->gzip = gzip;
	if (left > 0) {
		c->deadline_mono_ns = loop_now_mono_ns(srv->loop) + left;
		call_set_timer(c);
	}
	return c;
}

/* False: answered.  Where the body is the message, its length is known before it comes. */
static bool length_ok(struct grpc_server *srv, struct reply *r, const struct grpc_method *m)
{
	const char *length = r->dialect->enveloped ? NULL : r->x.ops->header(&r->x, "content-length");
	size_t max = m->max_message ? m->max_message : srv->cfg.limits.max_message;
	struct refusal refusal;
	uint64_t size = length ? strtoull(length, NULL, 10) : 0;
	if (size <= max)
		return true;
	call_size_refusal(srv, &refusal, size, max);
	answer_no_call(srv, r, &refusal);
	return false;
}

static struct grpc_call *accept_post(struct grpc_server *srv, struct reply *r, struct method_entry *entry)
{
	bool gzip;
	if (!fits(srv, r, entry) || !version_ok(srv, r) || !encoding_ok(srv, r, &gzip) || !length_ok(srv, r, entry->method))
		return NULL;
	return make(srv, r, entry, gzip);
}

/* A method that only reads, with the request in the query. */
static struct grpc_call *accept_get(struct grpc_server *srv, struct reply *r, struct method_entry *entry, const char *query)
{
	static const struct h2_header types = H2_HEADER("accept-post", TYPES);
	struct query q;
	struct buf message;
	struct refusal refusal;
	struct grpc_call *c = NULL;
	buf_init(&message, srv->cfg.limits.max_header_list);
	int rc = query_parse(query, &q, &message, &refusal);
	r->dialect = q.dialect;
	if (!q.dialect) {
		answer_http(srv, r, "415", &types, refusal.message);
	} else if (rc) {
		answer_no_call(srv, r, &refusal);
	} else if (fits(srv, r, entry)) {
		r->gzip = gzip_listed(r->x.ops->header(&r->x, r->dialect->accept_encoding));
		c = make(srv, r, entry, q.gzip);
	}
	if (!c) {
		buf_done(&message);
		return NULL;
	}
	c->by_get = true;
	c->asked = message;
	return c;
}

struct grpc_call *call_accept(struct grpc_server *srv, const struct exchange *x)
{
	struct reply r;
	reply_init(&r, x, &srv->cfg);
	r.dialect = dialect_of_type(x->ops->header(x, "content-type"));
	r.origin = cors_origin(&srv->cfg, x);
	if (x->ops->oversized(x)) {
		if (!r.dialect || r.dialect->missing_is_404)
			return answer_http(srv, &r, "431", NULL, "the request's headers are too large");
		return answer_status(srv, &r, STATUS_RESOURCE_EXHAUSTED, "the request's headers are too large");
	}
	if (route_answer(srv, &r))
		return NULL;
	const char *verb = x->ops->header(x, ":method"), *path = x->ops->header(x, ":path");
	const char *query = path ? strchr(path, '?') : NULL;
	bool post = verb && strcmp(verb, "POST") == 0;
	/* gRPC's paths have no query: there it is part of the name. */
	struct method_entry *entry = path ? entry_at(srv, path, query && !post ? (size_t)(query - path) : strlen(path)) : NULL;
	if (verb && strcmp(verb, "OPTIONS") == 0 && cors_preflight(&r))
		return NULL;
	if (entry && entry->method->safe && verb && strcmp(verb, "GET") == 0 && query)
		return accept_get(srv, &r, entry, query + 1);
	if (!post || !r.dialect || (!entry && r.dialect->missing_is_404))
		return answer_other(srv, &r, entry);
	if (!entry)
		return answer_status(srv, &r, STATUS_UNIMPLEMENTED, "unknown method");
	return accept_post(srv, &r, entry);
}
