/* Owns the SSL_CTX of the moment, the texts that it was made from, and, for a client, the last
 * session.  Reload makes a whole new SSL_CTX first; connections hold a reference to theirs in
 * OpenSSL, and one to the tls_context, which the callbacks point to.
 *
 * Tickets: a server keeps no sessions, it seals them with keys that belong to the SSL_CTX
 * (tls_tickets.c), so a reload (other certificates, another CA) makes every old ticket worthless. */
#include "common/stream/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/stream/stream_impl.h"

#define SESSION_LIFE_S 3600
#define FILE_MAX (1 << 20) /* the authorities of a whole system are a fifth of it */
#define CHAIN_DEPTH 8
#define ALPN_MAX 256

/* By this another file is told, also one of the same name. */
struct stamp {
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec changed;
};

struct tls_context {
	int refs;
	SSL_CTX *ssl_ctx;
	bool server;
	bool require_client_cert;
	char *cert_file, *key_file, *ca_file;
	struct stamp stamps[3]; /* of these, as last read */
	unsigned char alpn[ALPN_MAX]; /* as on the wire: length, name, length, name */
	unsigned alpn_len;
	SSL_SESSION *session;
	char *session_name; /* the server that `session` is with */
};

static int fail(char *ret_err, size_t cap, const char *fmt, ...) PRINTF_LIKE(3, 4);

static int fail(char *ret_err, size_t cap, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(ret_err, cap, fmt, ap);
	va_end(ap);
	ERR_clear_error();
	return -EINVAL;
}

static const char *reason(void)
{
	unsigned long e = ERR_peek_error();
	const char *text = ERR_SYSTEM_ERROR(e) ? strerror(ERR_GET_REASON(e)) : ERR_reason_error_string(e);
	return text ? text : "unknown error";
}

/* OpenSSL's own words are "no start line" for a certificate, and "unsupported" for a key. */
static bool is_not_pem(void)
{
	unsigned long e = ERR_peek_error();
	return (ERR_GET_LIB(e) == ERR_LIB_PEM && ERR_GET_REASON(e) == PEM_R_NO_START_LINE) ||
	       (ERR_GET_LIB(e) == ERR_LIB_OSSL_DECODER && ERR_GET_REASON(e) == ERR_R_UNSUPPORTED);
}

/* ---- callbacks of OpenSSL ---- */

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in, unsigned in_len,
		   void *arg)
{
	const struct tls_context *ctx = arg;
	/* In our order of preference; a client that knows none of ours is refused (RFC 7301, 3.2). */
	if (SSL_select_next_proto((unsigned char **)out, out_len, ctx->alpn, ctx->alpn_len, in, in_len) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	return SSL_TLSEXT_ERR_OK;
}

static int on_verified(int ok, X509_STORE_CTX *store)
{
	/* The first in the chain is the peer's own. */
	STACK_OF(X509) *chain = ok ? NULL : X509_STORE_CTX_get0_chain(store);
	if (chain && sk_X509_num(chain) > 0)
		stream_tls_on_refused(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()),
				      sk_X509_value(chain, 0));
	return ok;
}

/* Asking for a pass phrase would stop the process on a terminal. */
static int no_pass_phrase(char *buf, int size, int rwflag, void *arg)
{
	return -1;
}

/* ---- SSL_CTX ---- */

static int load_own(const struct tls_context *ctx, SSL_CTX *c, char *ret_err, size_t cap)
{
	if (!ctx->cert_file && !ctx->key_file && !ctx->server)
		return 0;
	if (!ctx->cert_file || !ctx->key_file)
		return fail(ret_err, cap, "a certificate needs its key and a key its certificate: both files must be given");
	if (SSL_CTX_use_certificate_chain_file(c, ctx->cert_file) != 1)
		return fail(ret_err, cap, "certificate %s: %s", ctx->cert_file, is_not_pem() ? "holds no certificate (PEM)" : reason());
	/* With a certificate loaded, OpenSSL compares the key with it. */
	bool loaded = SSL_CTX_use_PrivateKey_file(c, ctx->key_file, SSL_FILETYPE_PEM) == 1;
	if (!loaded && ERR_GET_LIB(ERR_peek_error()) != ERR_LIB_X509)
		return fail(ret_err, cap, "key %s: %s", ctx->key_file, is_not_pem() ? "holds no usable key (PEM)" : reason());
	if (!loaded || SSL_CTX_check_private_key(c) != 1)
		return fail(ret_err, cap, "key %s does not fit certificate %s", ctx->key_file, ctx->cert_file);
	return 0;
}

/* The chain that is sent with our certificate is made once, of the file and (as OpenSSL would for each connection) the
 * authorities that we trust.  Without the root: the peer has it, and would keep a copy of it for each of its connections. */
static void build_chain(const struct tls_context *ctx, SSL_CTX *c)
{
	if (!ctx->cert_file)
		return;
	ERR_set_mark();
	(void)SSL_CTX_build_cert_chain(c, SSL_BUILD_CHAIN_FLAG_NO_ROOT | SSL_BUILD_CHAIN_FLAG_UNTRUSTED |
					  SSL_BUILD_CHAIN_FLAG_IGNORE_ERROR | SSL_BUILD_CHAIN_FLAG_CLEAR_ERROR);
	ERR_pop_to_mark();
	SSL_CTX_set_mode(c, SSL_MODE_NO_AUTO_CHAIN);
}

static int load_trust(const struct tls_context *ctx, SSL_CTX *c, char *ret_err, size_t cap)
{
	if (ctx->ca_file) {
		if (SSL_CTX_load_verify_file(c, ctx->ca_file) != 1)
			return fail(ret_err, cap, "CA file %s: %s", ctx->ca_file, reason());
	} else if (!ctx->server && SSL_CTX_set_default_verify_paths(c) != 1) {
		return fail(ret_err, cap, "the system's CA certificates: %s", reason());
	}
	if (!ctx->server) {
		SSL_CTX_set_verify(c, SSL_VERIFY_PEER, on_verified);
		return 0;
	}
	if (!ctx->ca_file)
		return 0;
	STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(ctx->ca_file);
	if (!names)
		return fail(ret_err, cap, "CA file %s: %s", ctx->ca_file, reason());
	SSL_CTX_set_client_CA_list(c, names);
	SSL_CTX_set_verify(c, SSL_VERIFY_PEER | (ctx->require_client_cert ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
			   on_verified);
	return 0;
}

static void set_rules(struct tls_context *ctx, SSL_CTX *c)
{
	static const unsigned char id[] = "reins";
	SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
	SSL_CTX_set_cipher_list(c, "ECDHE+AESGCM:ECDHE+CHACHA20");
	SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				    SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_read_ahead(c, 1); /* one system call for a record, not two */
	SSL_CTX_set_verify_depth(c, CHAIN_DEPTH);
	SSL_CTX_set_default_passwd_cb(c, no_pass_phrase);
	SSL_CTX_set_timeout(c, SESSION_LIFE_S);
	if (ctx->server) {
		SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
		SSL_CTX_set_session_id_context(c, id, sizeof(id) - 1);
		SSL_CTX_set_num_tickets(c, 1);
		if (ctx->alpn_len)
			SSL_CTX_set_alpn_select_cb(c, on_alpn, ctx);
	} else {
		SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL_STORE);
		SSL_CTX_sess_set_new_cb(c, stream_tls_on_session);
		if (ctx->alpn_len)
			SSL_CTX_set_alpn_protos(c, ctx->alpn, ctx->alpn_len);
	}
}

static void take_stamps(const struct tls_context *ctx, struct stamp ret[static 3])
{
	const char *const files[] = { ctx->cert_file, ctx->key_file, ctx->ca_file };
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		struct stat st;
		ret[i] = (struct stamp){ .size = -1 };
		if (files[i] && stat(files[i], &st) == 0)
			ret[i] = (struct stamp){ st.st_dev, st.st_ino, st.st_size, st.st_mtim };
	}
}

static bool same_stamps(const struct stamp *a, const struct stamp *b)
{
	for (size_t i = 0; i < 3; i++)
		if (a[i].dev != b[i].dev || a[i].ino != b[i].ino || a[i].size != b[i].size ||
		    a[i].changed.tv_sec != b[i].changed.tv_sec || a[i].changed.tv_nsec != b[i].changed.tv_nsec)
			return false;
	return true;
}

/* What is read while connections wait must neither block nor be long.  At the start a pipe will do. */
static int check_files(const struct tls_context *ctx, char *ret_err, size_t cap)
{
	const char *const files[] = { ctx->cert_file, ctx->key_file, ctx->ca_file };
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		struct stat st;
		if (!files[i] || stat(files[i], &st) < 0)
			continue; /* who opens it says why */
		if (!S_ISREG(st.st_mode))
			return fail(ret_err, cap, "%s: not an ordinary file", files[i]);
		if (st.st_size > FILE_MAX)
			return fail(ret_err, cap, "%s: larger than %d bytes", files[i], FILE_MAX);
	}
	return 0;
}

static int build(struct tls_context *ctx, char *ret_err, size_t cap, SSL_CTX **ret)
{
	ERR_clear_error();
	take_stamps(ctx, ctx->stamps);
	if (ctx->ssl_ctx && check_files(ctx, ret_err, cap))
		return -EINVAL;
	SSL_CTX *c = SSL_CTX_new(ctx->server ? TLS_server_method() : TLS_client_method());
	if (!c)
		return fail(ret_err, cap, "OpenSSL: %s", reason());
	set_rules(ctx, c);
	int rc = 0;
	if (ctx->server && !tls_tickets_init(c))
		rc = fail(ret_err, cap, "ticket keys: %s", reason());
	if (rc == 0)
		rc = load_own(ctx, c, ret_err, cap);
	if (rc == 0)
		rc = load_trust(ctx, c, ret_err, cap);
	if (rc == 0)
		build_chain(ctx, c);
	if (rc < 0) {
		SSL_CTX_free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

/* ---- the context ---- */

static int set_alpn(struct tls_context *ctx, const struct tls_config *cfg)
{
	for (size_t i = 0; i < cfg->n_alpn; i++) {
		size_t len = strlen(cfg->alpn[i]);
		if (!len || ctx->alpn_len + 1 + len > ALPN_MAX)
			return -EINVAL;
		ctx->alpn[ctx->alpn_len++] = (unsigned char)len;
		memcpy(ctx->alpn + ctx->alpn_len, cfg->alpn[i], len);
		ctx->alpn_len += (unsigned)len;
	}
	return 0;
}

static char *copy(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

int tls_context_new(const struct tls_config *cfg, char *ret_err, size_t err_cap, struct tls_context **ret)
{
	struct tls_context *ctx = xcalloc(1, sizeof(*ctx));
	ctx->refs = 1;
	ctx->server = cfg->server;
	ctx->require_client_cert = cfg->require_client_cert;
	ctx->cert_file = copy(cfg->cert_file);
	ctx->key_file = copy(cfg->key_file);
	ctx->ca_file = copy(cfg->ca_file);
	int rc = set_alpn(ctx, cfg);
	if (rc < 0)
		fail(ret_err, err_cap, "the list of ALPN names is empty in a place, or too long");
	else if (cfg->require_client_cert && !cfg->ca_file)
		rc = fail(ret_err, err_cap, "client certificates can't be required without a CA file");
	if (rc == 0)
		rc = build(ctx, ret_err, err_cap, &ctx->ssl_ctx);
	if (rc < 0) {
		tls_context_free(ctx);
		return rc;
	}
	*ret = ctx;
	return 0;
}

static void forget_session(struct tls_context *ctx)
{
	SSL_SESSION_free(ctx->session);
	ctx->session = NULL;
	free(ctx->session_name);
	ctx->session_name = NULL;
}

int tls_context_reload(struct tls_context *ctx, char *ret_err, size_t err_cap)
{
	SSL_CTX *fresh;
	int rc = build(ctx, ret_err, err_cap, &fresh);
	if (rc < 0)
		return rc;
	SSL_CTX_free(ctx->ssl_ctx);
	ctx->ssl_ctx = fresh;
	forget_session(ctx);
	return 0;
}

int tls_context_refresh(struct tls_context *ctx, char *ret_err, size_t err_cap)
{
	struct stamp now[3];
	take_stamps(ctx, now);
	if (same_stamps(now, ctx->stamps))
		return 0;
	int rc = tls_context_reload(ctx, ret_err, err_cap);
	return rc < 0 ? rc : 1;
}

int64_t tls_context_ends_wall_us(const struct tls_context *ctx)
{
	const X509 *cert = SSL_CTX_get0_certificate(ctx->ssl_ctx);
	return cert ? tls_time_wall_us(X509_get0_notAfter(cert)) : 0;
}

struct tls_context *tls_context_ref(struct tls_context *ctx)
{
	if (ctx)
		ctx->refs++;
	return ctx;
}

void tls_context_free(struct tls_context *ctx)
{
	if (!ctx || --ctx->refs)
		return;
	forget_session(ctx);
	SSL_CTX_free(ctx->ssl_ctx);
	free(ctx->cert_file);
	free(ctx->key_file);
	free(ctx->ca_file);
	free(ctx);
}

bool tls_context_keep_session(struct tls_context *ctx, const char *server_name, SSL *ssl, SSL_SESSION *session)
{
	/* Of a connection from before a reload: what it was judged by is no longer what we go by. */
	if (SSL_get_SSL_CTX(ssl) != ctx->ssl_ctx)
		return false;
	forget_session(ctx);
	ctx->session = session;
	ctx->session_name = xstrdup(server_name);
	return true;
}

bool tls_context_rotate_tickets(struct tls_context *ctx)
{
	return tls_tickets_rotate(ctx->ssl_ctx);
}

static bool set_server(SSL *ssl, const char *name)
{
	unsigned char ip[sizeof(struct in6_addr)];
	if (inet_pton(AF_INET, name, ip) == 1 || inet_pton(AF_INET6, name, ip) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	/* An empty name would mean: check none. */
	return name[0] && SSL_set_tlsext_host_name(ssl, name) == 1 && SSL_set1_host(ssl, name) == 1;
}

SSL *tls_context_ssl(struct tls_context *ctx, const char *server_name)
{
	ERR_clear_error();
	SSL *ssl = SSL_new(ctx->ssl_ctx);
	if (!ssl)
		return NULL;
	if (ctx->server) {
		SSL_set_accept_state(ssl);
		return ssl;
	}
	SSL_set_connect_state(ssl);
	if (!set_server(ssl, server_name)) {
		SSL_free(ssl);
		return NULL;
	}
	/* Only with the same server: a resumed handshake checks no name. */
	if (ctx->session && strcmp(ctx->session_name, server_name) == 0 && SSL_SESSION_is_resumable(ctx->session))
		(void)SSL_set_session(ssl, ctx->session);
	return ssl;
}
