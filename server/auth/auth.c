/* Owns the table of the moment and the entries that certificates stand for where no file says so.  A reload makes a whole new
 * table first; calls hold the entry that let them in. */
#include "server/auth/auth.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/log/log.h"
#include "server/auth/failures.h"
#include "server/auth/host.h"

#define CLIENT_URI "reins:client:"
#define WORKER_URI "reins:worker:"

const char *const auth_failure_names[AUTH_FAILURES] = {
	[AUTH_NOTHING_SHOWN] = "nothing_shown", [AUTH_SHOWN_TWICE] = "shown_twice",   [AUTH_MALFORMED] = "malformed",
	[AUTH_UNKNOWN] = "unknown",             [AUTH_EXPIRED] = "expired",           [AUTH_CERT_UNKNOWN] = "certificate_unknown",
	[AUTH_CERT_AMBIGUOUS] = "certificate_ambiguous", [AUTH_NOT_BOTH] = "not_both",    [AUTH_TWO_NAMES] = "two_names",
	[AUTH_NOT_PERMITTED] = "not_permitted",
};

struct auth {
	struct auth_config cfg;
	char *tokens_file;
	struct tokens *tokens; /* NULL: no file */
	struct audit *audit;   /* NULL: nobody needs to be known, and no file was asked for */
	struct failures failures;
	struct log_repeats repeats;
	struct auth_stats stats;
};

/* ---- making one ---- */

/* Begins an error with the setting that is at fault; the rest goes behind it. */
static size_t name_setting(const char *setting, char *err, size_t cap)
{
	snprintf(err, cap, "%s: ", setting);
	return strlen(err);
}

int auth_new(const struct auth_config *cfg, char *ret_err, size_t cap, struct auth **ret)
{
	struct auth *a = xcalloc(1, sizeof(*a));
	a->cfg = *cfg;
	failures_init(&a->failures, rng_process_next());
	int rc = 0;
	if (cfg->tokens_file) {
		a->tokens_file = xstrdup(cfg->tokens_file);
		size_t at = name_setting("tokens-file", ret_err, cap);
		rc = tokens_read(cfg->tokens_file, ret_err + at, cap - at, &a->tokens);
	}
	if (rc == 0 && (cfg->audit_file || cfg->tokens_file || cfg->certificates)) {
		size_t at = name_setting("audit-log", ret_err, cap);
		rc = audit_new(cfg->loop, cfg->audit_file, ret_err + at, cap - at, &a->audit);
	}
	if (rc) {
		auth_free(a);
		return rc;
	}
	*ret = a;
	return 0;
}

void auth_free(struct auth *a)
{
	if (!a)
		return;
	audit_free(a->audit);
	tokens_free(a->tokens);
	free(a->tokens_file);
	free(a);
}

int auth_reload(struct auth *a, char *ret_err, size_t cap)
{
	struct tokens *fresh = NULL;
	int rc = a->tokens_file ? tokens_read(a->tokens_file, ret_err, cap, &fresh) : 0;
	if (rc) {
		a->stats.reloads_failed++;
		return rc;
	}
	a->stats.reloads++;
	if (a->tokens_file) {
		tokens_free(a->tokens);
		a->tokens = fresh;
	}
	return 0;
}

int auth_reopen_audit(struct auth *a, char *ret_err, size_t cap)
{
	return a->audit ? audit_reopen(a->audit, ret_err, cap) : 0;
}

void auth_stats(const struct auth *a, struct auth_stats *ret)
{
	*ret = a->stats;
	ret->entries = a->tokens ? (int64_t)a->tokens->n : 0;
	if (a->audit)
		ret->audit = audit_stats(a->audit);
}

/* ---- refusals ---- */

/* A program that is refused comes again and again: a line a minute for each address, method and reason. */
static void tell(struct auth *a, const struct grpc_request *rq, const char *text)
{
	const char *peer = rq->peer->address, *port = strrchr(peer, ':'), *path = rq->method->path + 1;
	char key[512];
	int64_t dropped;
	snprintf(key, sizeof(key), "%.*s %s %s", (int)(port ? port - peer : 0), peer, path, text);
	if (!log_repeats_pass(&a->repeats, loop_now_mono_ns(a->cfg.loop), NS_PER_S / 10, key, &dropped))
		return;
	if (dropped)
		log_warn("auth", NULL, "%s: %s refused: %s (and %lld times before)", peer, path, text, (long long)dropped);
	else
		log_warn("auth", NULL, "%s: %s refused: %s", peer, path, text);
}

static int refuse_failure(struct auth *a, const struct grpc_request *rq, enum auth_failure why, struct refusal *r)
{
	static const char *const texts[AUTH_FAILURES] = {
		[AUTH_NOTHING_SHOWN] = "this server must know who calls: send `authorization: Bearer TOKEN`, or show a certificate",
		[AUTH_SHOWN_TWICE] = "more than one authorization header",
		/* One text for these three: who guesses learns nothing. */
		[AUTH_MALFORMED] = "the token is not known, or has expired",
		[AUTH_UNKNOWN] = "the token is not known, or has expired",
		[AUTH_EXPIRED] = "the token is not known, or has expired",
		[AUTH_CERT_UNKNOWN] = "the certificate names nobody who is known here",
		[AUTH_CERT_AMBIGUOUS] = "the certificate names more than one who is known here",
		[AUTH_NOT_BOTH] = "this server wants both: a certificate, and `authorization: Bearer TOKEN` of the same name",
		[AUTH_TWO_NAMES] = "the token and the certificate stand for different names",
	};
	char text[200];
	a->stats.failures[why]++;
	if (!failures_add(&a->failures, rq->peer->address, loop_now_mono_ns(a->cfg.loop))) {
		a->stats.too_many++;
		(void)refuse(r, STATUS_RESOURCE_EXHAUSTED, NULL, "too many attempts from this address without a good token or certificate");
		r->retry_after_ms = 1000;
		return -1;
	}
	snprintf(text, sizeof(text), "%s (%s)", texts[why], auth_failure_names[why]);
	tell(a, rq, text);
	return refuse(r, STATUS_UNAUTHENTICATED, NULL, "%s", texts[why]);
}

static int refuse_role(struct auth *a, const struct grpc_request *rq, const struct principal *who, unsigned roles, struct refusal *r)
{
	char have[ROLES_TEXT_MAX + 1], need[ROLES_TEXT_MAX + 1], text[200];
	roles_format(who->roles, have);
	roles_format((roles & (ROLE_ADMIN * 2 - 1)) | ROLE_ADMIN, need);
	a->stats.failures[AUTH_NOT_PERMITTED]++;
	snprintf(text, sizeof(text), "\"%.100s\" has the roles %s", who->name, have);
	tell(a, rq, text);
	return refuse(r, STATUS_PERMISSION_DENIED, NULL, "\"%.100s\" may not: it takes one of the roles %s; yours: %s", who->name, need, have);
}

/* ---- certificates ---- */

static const char *behind(const char *text, const char *prefix)
{
	size_t n = strlen(prefix);
	return strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

/* What a certificate stands for where no line says so: one reference, the caller's. */
static struct principal *built_in(const struct stream_peer *peer)
{
	const char *san = peer->n_sans ? peer->sans[0] : NULL;
	const char *client = NULL;
	for (size_t i = 0; i < peer->n_sans; i++)
		if (behind(peer->sans[i], WORKER_URI))
			san = peer->sans[i];
	for (size_t i = 0; i < peer->n_sans && !client; i++)
		if ((client = behind(peer->sans[i], CLIENT_URI)))
			san = peer->sans[i];
	if (!san)
		return NULL;
	struct principal *p = xcalloc(1, sizeof(*p));
	p->refs = 1;
	p->is_cert = true;
	p->id = xstrdup(san); /* by which a line for it is found, once there are some */
	p->name = xstrdup(client ? client : san);
	p->roles = client ? ROLE_ADMIN : ROLE_WORKER;
	return p;
}

static char *copy(const char *text)
{
	return text ? xstrdup(text) : NULL;
}

/* The line's rights for this very certificate, which names itself if the line does not. */
static struct principal *copy_for(const struct principal *line, const char *san)
{
	const char *client = behind(san, CLIENT_URI);
	struct principal *p = xcalloc(1, sizeof(*p));
	p->refs = 1;
	p->is_cert = true;
	p->id = xstrdup(san);
	p->name = xstrdup(line->name ? line->name : client ? client : san);
	p->line = line->line;
	p->roles = line->roles;
	p->ends_wall_us = line->ends_wall_us;
	p->queues = copy(line->queues);
	p->worker = copy(line->worker);
	return p;
}

/* The entry of one of its names: exactly one. */
static int of_certificate(const struct auth *a, const struct stream_peer *peer, struct principal **ret, enum auth_failure *ret_why)
{
	if (!a->tokens || !a->tokens->n_certs) {
		*ret = built_in(peer);
		*ret_why = AUTH_CERT_UNKNOWN;
		return *ret ? 0 : -1;
	}
	struct principal *found = NULL;
	const char *san = NULL;
	for (size_t i = 0; i < peer->n_sans; i++) {
		struct principal *p = tokens_find_cert(a->tokens, peer->sans[i]);
		if (!p)
			continue;
		if (found && (found != p || (!p->name && strcmp(san, peer->sans[i]) != 0))) {
			*ret_why = AUTH_CERT_AMBIGUOUS;
			return -1;
		}
		found = p;
		san = peer->sans[i];
	}
	if (!found || principal_ended(found, clock_wall_us())) {
		*ret_why = found ? AUTH_EXPIRED : AUTH_CERT_UNKNOWN;
		return -1;
	}
	*ret = copy_for(found, san);
	return 0;
}

/* ---- tokens ---- */

/* The token of "Bearer TOKEN"; the scheme's case does not matter. */
static int parse_header(const char *value, struct token *ret)
{
	static const char scheme[] = "bearer";
	if (strncasecmp(value, scheme, sizeof(scheme) - 1) != 0 || value[sizeof(scheme) - 1] != ' ')
		return -EINVAL;
	value += sizeof(scheme) - 1;
	while (*value == ' ')
		value++;
	size_t n = strlen(value);
	while (n && value[n - 1] == ' ')
		n--;
	return token_parse(value, n, ret);
}

static int of_token(const struct auth *a, const char *value, struct principal **ret, enum auth_failure *ret_why)
{
	static const uint8_t nobody[TOKEN_DIGEST_LEN];
	struct token t;
	*ret_why = AUTH_MALFORMED;
	if (parse_header(value, &t))
		return -1;
	struct principal *p = a->tokens ? tokens_find(a->tokens, t.id) : NULL;
	bool same = token_same_digest(p ? p->digest : nobody, t.digest);
	*ret_why = AUTH_UNKNOWN;
	if (!p || !same)
		return -1;
	*ret_why = AUTH_EXPIRED;
	if (principal_ended(p, clock_wall_us()))
		return -1;
	*ret = principal_ref(p);
	return 0;
}

/* ---- a call ---- */

static bool has_certificate(const struct stream_peer *peer)
{
	return peer->tls && peer->cert_not_after_wall_us;
}

/* What a call showed, and who may what it shows: one reference each, or NULL. */
struct shown {
	struct principal *who, *token, *cert;
};

static void shown_done(struct shown *s)
{
	principal_unref(s->who);
	principal_unref(s->token);
	principal_unref(s->cert);
}

/* Of a worker's certificate the name is its id too. */
static bool same_name(const struct principal *token, const struct principal *cert)
{
	const char *worker = behind(cert->id, WORKER_URI);
	return strcmp(token->name, cert->name) == 0 || (worker && strcmp(token->name, worker) == 0);
}

static int identify_both(struct auth *a, const struct grpc_request *rq, struct shown *ret, enum auth_failure *ret_why)
{
	*ret_why = AUTH_NOT_BOTH;
	if (!rq->n_authorization || !has_certificate(rq->peer) || of_token(a, rq->authorization, &ret->token, ret_why) ||
	    of_certificate(a, rq->peer, &ret->cert, ret_why))
		return -1;
	*ret_why = AUTH_TWO_NAMES;
	if (!same_name(ret->token, ret->cert))
		return -1;
	ret->who = principal_both(ret->token, ret->cert);
	return 0;
}

/* 0 with who it is; NULL: nobody in particular, who may everything.  To be given back in any case. */
static int identify(struct auth *a, const struct grpc_request *rq, struct shown *ret, enum auth_failure *ret_why)
{
	*ret = (struct shown){ 0 };
	*ret_why = AUTH_SHOWN_TWICE;
	if (!a->tokens && !has_certificate(rq->peer))
		return 0;
	if (rq->n_authorization > 1)
		return -1;
	if (a->cfg.both)
		return identify_both(a, rq, ret, ret_why);
	if (rq->n_authorization && a->tokens)
		return of_token(a, rq->authorization, &ret->who, ret_why);
	if (has_certificate(rq->peer))
		return of_certificate(a, rq->peer, &ret->who, ret_why);
	*ret_why = AUTH_NOTHING_SHOWN;
	return -1;
}

static void keep_request_id(struct auth_call *c, const char *id)
{
	size_t n = 0;
	for (; id && id[n] > ' ' && id[n] < 0x7f && n < AUTH_REQUEST_ID_MAX; n++)
		c->request_id[n] = id[n];
	c->request_id[n] = '\0';
}

/* Of two ends, each 0 if there is none. */
static int64_t earlier(int64_t a, int64_t b)
{
	return !a ? b : !b ? a : min_i64(a, b);
}

/* Takes over what was shown. */
static struct auth_call *call_new(const struct grpc_request *rq, const struct access_row *row, const struct shown *s)
{
	struct auth_call *c = xcalloc(1, sizeof(*c));
	struct principal *who = s->who;
	c->who = who;
	c->token = s->token;
	c->cert = s->cert;
	c->row = row;
	c->cert_ends_wall_us = who && has_certificate(rq->peer) ? rq->peer->cert_not_after_wall_us : 0;
	c->ends_wall_us = earlier(who ? who->ends_wall_us : 0, c->cert_ends_wall_us);
	snprintf(c->peer, sizeof(c->peer), "%s", rq->peer->address);
	keep_request_id(c, rq->request_id);
	return c;
}

/* Nobody in particular calls: perhaps a page in a browser of this machine. */
static int refuse_host(struct auth *a, const struct grpc_request *rq, struct refusal *r)
{
	if (!rq->host || host_is_ours(rq->host, a->cfg.hosts, a->cfg.n_hosts))
		return 0;
	(void)refuse(r, STATUS_PERMISSION_DENIED, NULL, "host: \"%.100s\" is no name of this server: say localhost, this machine's name or "
		     "an address, start reinsd with --allow-host NAME, or give callers tokens", rq->host);
	a->stats.failures[AUTH_NOT_PERMITTED]++;
	tell(a, rq, r->message);
	return -1;
}

int auth_begin(struct auth *a, const struct grpc_request *rq, struct auth_call **ret_call, struct refusal *ret_r)
{
	const struct access_row *row = access_find(rq->method->path);
	struct shown s = { 0 };
	enum auth_failure why;
	*ret_call = NULL;
	if (!row)
		return refuse(ret_r, STATUS_PERMISSION_DENIED, NULL, "nobody may call this: the server has no rule for it");
	if (!(row->who & ACCESS_ANYONE) && !((row->who & ACCESS_SHOWN) && a->cfg.open_reflection)) {
		if (identify(a, rq, &s, &why)) {
			shown_done(&s);
			return refuse_failure(a, rq, why, ret_r);
		}
		if (!s.who && refuse_host(a, rq, ret_r))
			return -1;
		if (s.who && !access_allows(row, s.who->roles)) {
			int rc = refuse_role(a, rq, s.who, row->who, ret_r);
			struct auth_call *c = row->changes && a->audit ? call_new(rq, row, &s) : NULL;
			if (c)
				auth_end(a, c, STATUS_PERMISSION_DENIED);
			else
				shown_done(&s);
			return rc;
		}
	}
	if (s.who || (row->changes && a->audit))
		*ret_call = call_new(rq, row, &s);
	return 0;
}

void auth_end(struct auth *a, struct auth_call *c, enum status_code code)
{
	if (!c)
		return;
	if (c->row->changes && a->audit) {
		const struct audit_line line = {
			.principal = c->who ? c->who->name : "",
			.peer = c->peer,
			.method = c->row->path + 1,
			.target = c->target,
			.code = status_code_name(code),
			.request_id = c->request_id,
		};
		audit_add(a->audit, &line);
	}
	shown_done(&(struct shown){ c->who, c->token, c->cert });
	free(c);
}

int auth_may(struct auth *a, const struct grpc_request *rq, unsigned roles, struct refusal *ret_r)
{
	struct shown s;
	enum auth_failure why;
	int rc = identify(a, rq, &s, &why);
	if (rc)
		rc = refuse_failure(a, rq, why, ret_r);
	else if (!s.who)
		rc = refuse_host(a, rq, ret_r);
	else if (!(s.who->roles & (roles | ROLE_ADMIN)))
		rc = refuse_role(a, rq, s.who, roles, ret_r);
	shown_done(&s);
	return rc;
}

/* What the file says of `was` now is what it said then. */
static bool entry_stays(const struct tokens *t, const struct principal *was, int64_t *ret_ends_wall_us)
{
	*ret_ends_wall_us = 0;
	if (was->is_cert && !t->n_certs)
		return !was->line; /* else the last of the file's lines for certificates has gone */
	const struct principal *now = was->is_cert ? tokens_find_cert(t, was->id) : tokens_find(t, was->id);
	if (!now || (!was->is_cert && !token_same_digest(now->digest, was->digest)))
		return false;
	struct principal named = *now;
	if (!named.name) /* by the certificate, which is the same */
		named.name = was->name;
	*ret_ends_wall_us = now->ends_wall_us;
	return principal_same(&named, was);
}

/* What let it in lets it in still, with the same rights. */
static bool still_known(const struct auth *a, struct auth_call *c)
{
	int64_t ends, cert_ends = 0;
	if (!a->tokens)
		return true;
	if (!entry_stays(a->tokens, c->token ? c->token : c->who, &ends) || (c->cert && !entry_stays(a->tokens, c->cert, &cert_ends)))
		return false;
	c->ends_wall_us = earlier(earlier(ends, cert_ends), c->cert_ends_wall_us);
	return true;
}

bool auth_check(struct auth *a, struct auth_call *c, int64_t wall_us, struct refusal *ret_r)
{
	const char *text = NULL;
	if (!c->who)
		return true;
	if (!still_known(a, c))
		text = "the right to this call was taken back";
	else if (c->ends_wall_us && wall_us >= c->ends_wall_us)
		text = c->ends_wall_us == c->cert_ends_wall_us ? "the certificate of this call has expired: renew it"
							       : "the token of this call has expired: renew it";
	if (!text)
		return true;
	a->stats.ended_streams++;
	log_info("auth", NULL, "%s: %s by \"%s\" ends: %s", c->peer, c->row->path + 1, c->who->name, text);
	(void)refuse(ret_r, STATUS_UNAUTHENTICATED, NULL, "%s", text);
	return false;
}
