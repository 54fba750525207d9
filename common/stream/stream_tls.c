/* TLS over the socket stream.  States: connecting (stream_tcp.c), handshake, open.
 *
 * Owns the SSL and at most one record: when the socket is full in the middle of a write, OpenSSL
 * wants the same bytes again, so they are kept here, count as taken, and are pushed on when the
 * socket drains.  Reading ahead leaves bytes in OpenSSL with the socket silent: until a read says
 * that there are no more, a wish to read is answered in the next turn by a timer.
 *
 * After an error of one direction that direction is not used again; OpenSSL's error queue is per thread
 * and cleared before each call. */
#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/stream/stream_impl.h"

#define RECORD 16384

struct tls_stream {
	struct socket_stream k;
	SSL *ssl;
	struct tls_context *tls;
	char *server_name; /* client */
	struct tls_budget *budget; /* server, until open */
	int handshake_wants;
	bool read_wants_write; /* OpenSSL has something of its own to send before it can go on reading */
	bool drained;          /* the last read found nothing */
	bool shutting;         /* close_notify is due, after `pending` */
	bool shut;
	int read_err, write_err;
	uint8_t *pending;
	size_t pending_len;
	char alpn[32]; /* of ours, which are short */
	char refused[80];
};

static _Thread_local uint8_t record[RECORD]; /* scattered bytes are gathered here */

static struct tls_stream *tls_of(struct stream *s)
{
	return container_of(s, struct tls_stream, k.s);
}

/* ---- errors ---- */

/* What the peer's alerts mean for who reads the log, in words that say what to look at. */
static const char *alert_text(int reason)
{
	switch (reason) {
	case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
		return "the peer wants a certificate and we gave none";
	case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
		return "the peer refuses our certificate: it has expired; renew it";
	case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
		return "the peer refuses our certificate: it is revoked; it needs to be replaced";
	case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
		return "the peer refuses our certificate: it doesn't trust the authority that signed it";
	case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
		return "the peer refuses our certificate: a signature in it is wrong";
	case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
		return "the peer refuses our certificate: it is made for another use";
	case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
	case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
		return "the peer refuses our certificate; its log says why";
	case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
		return "the peer refuses the handshake: it may want a certificate of us; its log says why";
	case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
		return "refused: it gave no certificate";
	case SSL_R_WRONG_VERSION_NUMBER:
	case SSL_R_HTTP_REQUEST:
		return "the peer speaks clear text, not TLS";
	default:
		return NULL;
	}
}

static const char *verify_hint(long result)
{
	switch (result) {
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
	case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
	case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
	case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
	case X509_V_ERR_CERT_SIGNATURE_FAILURE:
		return " (it is not of an authority in our CA file)";
	case X509_V_ERR_CERT_NOT_YET_VALID:
		return " (or our clock is wrong)";
	case X509_V_ERR_INVALID_PURPOSE:
		return " (a server's where a client's is wanted, or the other way round)";
	default:
		return "";
	}
}

/* Whose certificate is refused. Nothing of it is verified, so it is for the log only. */
void stream_tls_on_refused(SSL *ssl, X509 *cert)
{
	struct tls_stream *t = SSL_get_app_data(ssl);
	char cn[65] = "";
	if (X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, cn, sizeof(cn)) <= 0)
		return;
	for (char *p = cn; *p; p++)
		if (*p <= ' ' || *p >= 0x7f)
			*p = '?';
	snprintf(t->refused, sizeof(t->refused), " of \"%s\"", cn);
}

/* The error of the SSL call just made, as text and errno. */
static int explain(struct tls_stream *t, const char *doing, int ssl_error)
{
	struct stream *s = &t->k.s;
	int sys = errno;
	/* A client's name for the server; who logs a server's line knows the peer's address. */
	const char *with = t->server_name ? " with " : "", *who = t->server_name ? t->server_name : "";
	unsigned long e = ERR_peek_error();

	if (ssl_error == SSL_ERROR_SYSCALL && sys)
		return stream_fail(s, -sys, "%s%s%s: %s", doing, with, who, strerror(sys));
	if (ssl_error == SSL_ERROR_SYSCALL || ssl_error == SSL_ERROR_ZERO_RETURN ||
	    (ERR_GET_LIB(e) == ERR_LIB_SSL && ERR_GET_REASON(e) == SSL_R_UNEXPECTED_EOF_WHILE_READING))
		return stream_fail(s, -ECONNRESET, "%s%s%s: the peer ended the connection without a goodbye", doing, with, who);
	if (ERR_GET_LIB(e) == ERR_LIB_SSL && ERR_GET_REASON(e) == SSL_R_CERTIFICATE_VERIFY_FAILED) {
		long result = SSL_get_verify_result(t->ssl);
		return stream_fail(s, -EPROTO, "%s%s%s: certificate%s refused: %s%s", doing, with, who, t->refused,
				   X509_verify_cert_error_string(result), verify_hint(result));
	}
	const char *reason = ERR_GET_LIB(e) == ERR_LIB_SSL ? alert_text(ERR_GET_REASON(e)) : NULL;
	if (!reason)
		reason = ERR_reason_error_string(e);
	return stream_fail(s, -EPROTO, "%s%s%s: %s", doing, with, who, reason ? reason : "error in OpenSSL");
}

/* A peer that refuses us sends an alert and closes; our next write meets the reset first. */
static int explain_write(struct tls_stream *t, int ssl_error)
{
	int sys = errno;
	if (ssl_error == SSL_ERROR_SYSCALL && !t->read_err) {
		char byte;
		size_t n;
		ERR_clear_error();
		if (SSL_peek_ex(t->ssl, &byte, 1, &n) != 1 && SSL_get_error(t->ssl, 0) == SSL_ERROR_SSL)
			return t->read_err = explain(t, "TLS", SSL_ERROR_SSL);
		ERR_clear_error();
		errno = sys;
	}
	return explain(t, "TLS write", ssl_error);
}

/* ---- what to wait for ---- */

static void update(struct tls_stream *t)
{
	struct stream *s = &t->k.s;
	int events = 0;
	if (!s->open) {
		events = t->handshake_wants;
	} else {
		if (s->want & LOOP_READ)
			events |= LOOP_READ | (t->read_wants_write ? LOOP_WRITE_READY : 0);
		if ((s->want & LOOP_WRITE_READY) || t->pending || (t->shutting && !t->shut))
			events |= LOOP_WRITE_READY;
		if ((s->want & LOOP_READ) && !t->drained && !loop_timer_active(&t->k.soon) && SSL_has_pending(t->ssl))
			loop_timer_set(&t->k.soon, 0);
	}
	loop_poll_set(t->k.poll, events);
}

/* ---- writing ---- */

static void send_close_notify(struct tls_stream *t)
{
	ERR_clear_error();
	int rc = SSL_shutdown(t->ssl);
	if (rc < 0 && SSL_get_error(t->ssl, rc) == SSL_ERROR_WANT_WRITE)
		return;
	t->shut = true;
	shutdown(t->k.fd, SHUT_WR);
}

/* 0, -EAGAIN, or what broke it. */
static int write_record(struct tls_stream *t, const uint8_t *data, size_t len)
{
	size_t done;
	ERR_clear_error();
	errno = 0;
	int rc = SSL_write_ex(t->ssl, data, len, &done);
	if (rc == 1) {
		assert(done == len); /* a record is never larger than RECORD */
		return 0;
	}
	int why = SSL_get_error(t->ssl, rc);
	if (why == SSL_ERROR_WANT_WRITE)
		return -EAGAIN;
	return t->write_err = explain_write(t, why);
}

static int flush_pending(struct tls_stream *t)
{
	if (t->write_err)
		return t->write_err;
	if (t->pending) {
		int rc = write_record(t, t->pending, t->pending_len);
		if (rc == -EAGAIN)
			return rc;
		free(t->pending);
		t->pending = NULL;
		if (rc < 0)
			return rc;
	}
	if (t->shutting && !t->shut)
		send_close_notify(t);
	return 0;
}

struct cursor {
	const struct iovec *iov;
	int n;
	size_t off;
};

/* The bytes of the next record, in place when one piece fills it or is the last; the cursor moves past them. */
static size_t next_record(struct cursor *c, const uint8_t **ret)
{
	while (c->n && c->off == c->iov->iov_len) {
		c->iov++;
		c->n--;
		c->off = 0;
	}
	if (!c->n)
		return 0;
	size_t left = c->iov->iov_len - c->off;
	if (left >= RECORD || c->n == 1) {
		size_t len = min_sz(left, RECORD);
		*ret = (const uint8_t *)c->iov->iov_base + c->off;
		c->off += len;
		return len;
	}
	size_t len = 0;
	while (c->n && len < RECORD) {
		size_t part = min_sz(c->iov->iov_len - c->off, RECORD - len);
		if (part)
			memcpy(record + len, (const uint8_t *)c->iov->iov_base + c->off, part);
		len += part;
		c->off += part;
		if (c->off == c->iov->iov_len) {
			c->iov++;
			c->n--;
			c->off = 0;
		}
	}
	*ret = record;
	return len;
}

static int keep_pending(struct tls_stream *t, const uint8_t *data, size_t len)
{
	t->pending = malloc(len);
	if (!t->pending)
		return t->write_err = stream_fail(&t->k.s, -ENOMEM, "TLS write: out of memory");
	memcpy(t->pending, data, len);
	t->pending_len = len;
	return 0;
}

static ssize_t tls_writev(struct stream *s, const struct iovec *iov, int n)
{
	struct tls_stream *t = tls_of(s);
	struct cursor c = { .iov = iov, .n = n };
	const uint8_t *data;
	size_t len, taken = 0;

	if (t->shutting)
		return -EPIPE;
	int rc = flush_pending(t);
	if (rc < 0)
		return rc;
	while (!t->pending && (len = next_record(&c, &data))) {
		rc = write_record(t, data, len);
		if (rc == -EAGAIN)
			rc = keep_pending(t, data, len);
		if (rc < 0)
			return taken ? (ssize_t)taken : rc;
		taken += len;
	}
	update(t);
	return (ssize_t)taken;
}

/* ---- reading ---- */

static ssize_t tls_read(struct stream *s, void *data, size_t len)
{
	struct tls_stream *t = tls_of(s);
	size_t n;
	if (t->read_err)
		return t->read_err;
	t->read_wants_write = false;
	ERR_clear_error();
	errno = 0;
	int rc = SSL_read_ex(t->ssl, data, len, &n);
	if (rc == 1) {
		t->drained = false;
		update(t);
		return (ssize_t)n;
	}
	int why = SSL_get_error(t->ssl, rc);
	t->drained = true;
	loop_timer_stop(&t->k.soon);
	switch (why) {
	case SSL_ERROR_WANT_WRITE:
		t->read_wants_write = true;
		update(t);
		return -EAGAIN;
	case SSL_ERROR_WANT_READ:
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	default:
		return t->read_err = explain(t, "TLS read", why);
	}
}

/* ---- handshake ---- */

static void break_off(struct tls_stream *t, int err)
{
	loop_timer_stop(&t->k.soon);
	loop_poll_set(t->k.poll, 0);
	stream_emit_broken(&t->k.s, err);
}

static void handshake_done(struct tls_stream *t)
{
	struct stream *s = &t->k.s;
	const unsigned char *alpn;
	unsigned alpn_len;

	t->budget = NULL;
	if (tls_peer_read(t->ssl, &s->peer) < 0) {
		break_off(t, stream_fail(s, -EPROTO, "TLS handshake%s%s: certificate refused: certificate has expired",
					 t->server_name ? " with " : "", t->server_name ? t->server_name : ""));
		return;
	}
	SSL_get0_alpn_selected(t->ssl, &alpn, &alpn_len);
	snprintf(t->alpn, sizeof(t->alpn), "%.*s", (int)alpn_len, alpn_len ? (const char *)alpn : "");
	s->peer.alpn = t->alpn;
	loop_poll_set(t->k.poll, 0);
	stream_emit_open(s);
	if (!s->closed)
		update(t);
}

/* False: others had their turn already; the socket stays readable, and the loop comes back. */
static bool budget_take(struct tls_stream *t)
{
	struct tls_budget *b = t->budget;
	if (!b)
		return true;
	if (b->turn != loop_turn_number(t->k.s.loop)) {
		b->turn = loop_turn_number(t->k.s.loop);
		b->left = b->per_turn;
	}
	if (b->left <= 0)
		return false;
	b->left--;
	return true;
}

static void handshake_step(struct tls_stream *t)
{
	if (!budget_take(t))
		return;
	ERR_clear_error();
	errno = 0;
	int rc = SSL_do_handshake(t->ssl);
	if (rc == 1) {
		handshake_done(t);
		return;
	}
	int why = SSL_get_error(t->ssl, rc);
	if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
		t->handshake_wants = why == SSL_ERROR_WANT_READ ? LOOP_READ : LOOP_WRITE_READY;
		update(t);
		return;
	}
	break_off(t, explain(t, "TLS handshake", why));
}

int stream_tls_on_session(SSL *ssl, SSL_SESSION *session)
{
	struct tls_stream *t = SSL_get_app_data(ssl);
	return tls_context_keep_session(t->tls, t->server_name, ssl, session); /* 1: the reference is kept */
}

/* ---- the table ---- */

static void tls_ready(struct stream *s, int events)
{
	struct tls_stream *t = tls_of(s);
	if (!s->open) {
		handshake_step(t);
		return;
	}
	if ((events & LOOP_WRITE_READY) && (t->pending || (t->shutting && !t->shut))) {
		int rc = flush_pending(t);
		if (rc < 0 && rc != -EAGAIN) {
			/* Bytes that were taken are lost; nobody is in a call that could say so. */
			break_off(t, rc);
			return;
		}
	}
	int out = 0;
	if ((s->want & LOOP_READ) && ((events & LOOP_READ) || t->read_wants_write))
		out |= LOOP_READ;
	if ((s->want & LOOP_WRITE_READY) && (events & LOOP_WRITE_READY) && !t->pending)
		out |= LOOP_WRITE_READY;
	if (out)
		stream_emit_ready(s, out);
	if (!s->closed && !s->broken)
		update(t);
}

static void on_soon(struct loop_timer *timer)
{
	struct socket_stream *k = container_of(timer, struct socket_stream, soon);
	struct tls_stream *t = tls_of(&k->s);
	if (socket_stream_soon(k))
		return;
	if ((k->s.want & LOOP_READ) && !t->drained)
		stream_emit_ready(&k->s, LOOP_READ);
	if (!k->s.closed && !k->s.broken)
		update(t);
}

static void tls_connected(struct stream *s)
{
	handshake_step(tls_of(s));
}

static void tls_want(struct stream *s)
{
	update(tls_of(s));
}

static void tls_shutdown(struct stream *s)
{
	struct tls_stream *t = tls_of(s);
	if (t->shutting)
		return;
	t->shutting = true;
	(void)flush_pending(t);
	update(t);
}

static void tls_close(struct stream *s)
{
	struct tls_stream *t = tls_of(s);
	bool healthy = s->open && !t->read_err && !t->write_err && !t->pending;
	ERR_clear_error();
	if (healthy && !t->shut)
		(void)SSL_shutdown(t->ssl);
	/* Else OpenSSL takes the session for spoilt, and it would not be resumed. */
	if (t->read_err != -EPROTO && t->write_err != -EPROTO && s->open)
		SSL_set_shutdown(t->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
	socket_stream_close(&t->k);
}

static void tls_free(struct stream *s)
{
	struct tls_stream *t = tls_of(s);
	SSL_free(t->ssl);
	tls_context_free(t->tls);
	tls_peer_done(&s->peer);
	free(t->server_name);
	free(t->pending);
	free(t);
}

static const struct stream_ops tls_ops = {
	.read = tls_read,
	.writev = tls_writev,
	.want = tls_want,
	.shutdown = tls_shutdown,
	.close = tls_close,
	.free = tls_free,
	.connected = tls_connected,
	.ready = tls_ready,
};

static struct tls_stream *tls_new(struct loop *loop, struct tls_context *tls, const char *server_name,
				  const struct stream_events *ev, void *arg)
{
	SSL *ssl = tls_context_ssl(tls, server_name);
	if (!ssl)
		return NULL;
	struct tls_stream *t = xcalloc(1, sizeof(*t));
	stream_init(&t->k.s, &tls_ops, loop, ev, arg);
	t->ssl = ssl;
	t->tls = tls_context_ref(tls);
	t->server_name = server_name ? xstrdup(server_name) : NULL;
	SSL_set_app_data(ssl, t);
	return t;
}

int stream_tls_connect(struct loop *loop, const struct sockaddr *addr, socklen_t len, struct tls_context *tls,
		       const char *server_name, const struct stream_events *ev, void *arg, struct stream **ret)
{
	struct tls_stream *t = tls_new(loop, tls, server_name, ev, arg);
	if (!t)
		return -EINVAL;
	int rc = socket_stream_connect(&t->k, addr, len, on_soon);
	if (rc == 0 && SSL_set_fd(t->ssl, t->k.fd) != 1) {
		socket_stream_close(&t->k);
		rc = -ENOMEM;
	}
	if (rc < 0) {
		tls_free(&t->k.s);
		return rc;
	}
	*ret = &t->k.s;
	return 0;
}

int stream_tls_accepted(struct loop *loop, int fd, const struct sockaddr *addr, socklen_t len, struct tls_context *tls,
			struct tls_budget *budget, const struct stream_events *ev, void *arg, struct stream **ret)
{
	struct tls_stream *t = tls_new(loop, tls, NULL, ev, arg);
	if (!t) {
		close(fd);
		return -ENOMEM;
	}
	socket_options(fd, addr->sa_family);
	socket_address_text(addr, len, t->k.s.peer.address, sizeof(t->k.s.peer.address));
	int rc = socket_stream_init(&t->k, fd, on_soon);
	if (rc == 0 && SSL_set_fd(t->ssl, fd) != 1) {
		socket_stream_close(&t->k);
		rc = -ENOMEM;
	}
	if (rc < 0) {
		tls_free(&t->k.s);
		return rc;
	}
	t->budget = budget;
	t->handshake_wants = LOOP_READ;
	update(t);
	*ret = &t->k.s;
	return 0;
}
