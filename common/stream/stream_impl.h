/* Inside common/stream only: what the kinds of streams share. */
#ifndef REINS_STREAM_IMPL_H
#define REINS_STREAM_IMPL_H

#include "common/stream/stream.h"
#include "common/stream/tls.h"

struct stream_ops {
	ssize_t (*read)(struct stream *s, void *data, size_t len);
	ssize_t (*writev)(struct stream *s, const struct iovec *iov, int n);
	void (*want)(struct stream *s); /* s->want has changed, and the stream is open */
	void (*shutdown)(struct stream *s);
	void (*close)(struct stream *s); /* gives back everything but the memory of the struct */
	void (*free)(struct stream *s);
	/* Kinds on a socket only. */
	void (*connected)(struct stream *s);
	void (*ready)(struct stream *s, int events);
};

struct stream {
	const struct stream_ops *ops;
	struct loop *loop;
	struct stream_events ev;
	void *arg;
	struct stream_peer peer;
	struct loop_grave grave;
	int want;
	bool open;   /* on_open was called, or is not due */
	bool broken; /* on_broken was called */
	bool closed; /* by the owner; check after every callback */
	char error[256];
};

/* `ev` NULL: none until stream_set_events. */
void stream_init(struct stream *s, const struct stream_ops *ops, struct loop *loop, const struct stream_events *ev,
		 void *arg);
/* Each calls the owner: the stream may be closed afterwards. */
void stream_emit_open(struct stream *s);
void stream_emit_ready(struct stream *s, int events);
void stream_emit_broken(struct stream *s, int err);
/* Fills s->error unless it is filled already; returns err. */
int stream_fail(struct stream *s, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* ---- on a socket ---- */
struct socket_stream {
	struct stream s;
	int fd;
	struct loop_poll *poll;
	struct loop_timer soon; /* something to tell the owner in the next turn, with the socket silent */
	int connect_err;        /* connect() failed inside the call; told by `soon` */
	bool connecting;
};

/* Takes the fd over, also when it fails. */
int socket_stream_init(struct socket_stream *k, int fd, void (*soon)(struct loop_timer *)) MUST_CHECK;
/* Opens a socket and begins to connect; s.ops->connected or on_broken follow from the loop. */
int socket_stream_connect(struct socket_stream *k, const struct sockaddr *addr, socklen_t len,
			  void (*soon)(struct loop_timer *)) MUST_CHECK;
/* To be called first by `soon`: true when it was about the connect. */
bool socket_stream_soon(struct socket_stream *k);
void socket_stream_close(struct socket_stream *k);
void socket_options(int fd, int family);
void socket_address_text(const struct sockaddr *addr, socklen_t len, char *ret_text, size_t cap);

int stream_tcp_connect(struct loop *loop, const struct sockaddr *addr, socklen_t len, const struct stream_events *ev,
		       void *arg, struct stream **ret) MUST_CHECK;
/* An accepted socket; takes the fd over, also when it fails. */
int stream_tcp_accepted(struct loop *loop, int fd, const struct sockaddr *addr, socklen_t len,
			struct stream **ret) MUST_CHECK;

/* ---- TLS ---- */
struct ssl_st;
struct ssl_session_st;
struct ssl_ctx_st;
struct asn1_string_st;
struct x509_st;

/* OpenSSL has a new session for a client stream. */
int stream_tls_on_session(struct ssl_st *ssl, struct ssl_session_st *session);
/* The peer's certificate failed verification; called within the handshake. */
void stream_tls_on_refused(struct ssl_st *ssl, struct x509_st *cert);

struct tls_context *tls_context_ref(struct tls_context *ctx); /* NULL-safe, returns ctx; undone by tls_context_free */
/* A new connection under the settings as they are now.  Client: SNI, the name to verify, and the session
 * to resume when the last one was with the same server. NULL: no memory, or an impossible name. */
struct ssl_st *tls_context_ssl(struct tls_context *ctx, const char *server_name) MUST_CHECK;
/* Client: keeps the session for later connections to that server, and takes the reference, unless it is of a
 * connection from before a reload: false. */
bool tls_context_keep_session(struct tls_context *ctx, const char *server_name, struct ssl_st *ssl,
			      struct ssl_session_st *session);

/* Server: a new key for session tickets. The key before it still opens tickets, older ones don't.  It happens
 * by itself every hour; false: no randomness. */
bool tls_context_rotate_tickets(struct tls_context *ctx) MUST_CHECK;
bool tls_tickets_init(struct ssl_ctx_st *c) MUST_CHECK;
bool tls_tickets_rotate(struct ssl_ctx_st *c) MUST_CHECK;

int64_t tls_time_wall_us(const struct asn1_string_st *t) MUST_CHECK; /* 0: no time */
/* What the verified certificate of the peer says.  -EACCES when it is not valid now (a resumed session doesn't
 * look at the dates again). sans is freed by tls_peer_done. */
int tls_peer_read(struct ssl_st *ssl, struct stream_peer *peer) MUST_CHECK;
void tls_peer_done(struct stream_peer *peer);

/* Handshake steps that may still be made in this turn: the public-key work of one step is up to a millisecond. */
struct tls_budget {
	uint64_t turn;
	int left;
	int per_turn;
};

int stream_tls_connect(struct loop *loop, const struct sockaddr *addr, socklen_t len, struct tls_context *tls,
		       const char *server_name, const struct stream_events *ev, void *arg,
		       struct stream **ret) MUST_CHECK;
/* on_open comes after the handshake.  `budget` must live until then, or until stream_close. */
int stream_tls_accepted(struct loop *loop, int fd, const struct sockaddr *addr, socklen_t len, struct tls_context *tls,
			struct tls_budget *budget, const struct stream_events *ev, void *arg,
			struct stream **ret) MUST_CHECK;

#endif
