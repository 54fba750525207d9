/* A stream of bytes: plain TCP (or Unix socket), TLS over TCP, or one end of an in-memory pair for tests.
 *
 * Non-blocking.  The owner reads in `on_ready` and writes in its flush phase; a stream never
 * buffers what the owner wrote beyond one TLS record.  All callbacks come from the loop,
 * never from inside a call into the stream.  Any callback may close the stream.
 *
 * TCP sockets get TCP_NODELAY, TCP_NOTSENT_LOWAT 128 KiB (what is written later, a ping or trailers, does not
 * queue behind megabytes), keepalive, and TCP_USER_TIMEOUT 30 s (stream_set_user_timeout).
 * Accepted streams live on the listener's loop. */
#ifndef REINS_STREAM_H
#define REINS_STREAM_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "common/base/base.h"
#include "common/loop/loop.h"

struct stream;
struct tls_context; /* stream/tls.h */

struct stream_events {
	/* Connected, the TLS handshake included. Called once, before any other; not for streams from a listener,
	 * which are open when they come. */
	void (*on_open)(void *arg);
	/* LOOP_READ and/or LOOP_WRITE_READY, as asked for by stream_want. After LOOP_READ read until -EAGAIN,
	 * or call stream_want again: bytes may sit in the TLS layer with the socket empty, and
	 * the stream then calls again in the next turn. */
	void (*on_ready)(void *arg, int events);
	/* It could not be opened (connect refused, handshake failed), or it broke while the owner was in no
	 * call of its own. A stream that breaks while open is mostly reported as ready, and stream_read or
	 * stream_writev return the error.  err is a negative errno, text says what happened for a log
	 * line. Nothing is called after it; the owner calls stream_close. */
	void (*on_broken)(void *arg, int err, const char *text);
};

/* The peer as the stream knows it. Valid until stream_close. */
struct stream_peer {
	char address[64];       /* "127.0.0.1:41234", "[::1]:5", "pair" */
	bool tls;
	const char *alpn;       /* "h2", "http/1.1", "" */
	bool resumed;           /* the TLS handshake resumed an earlier session */
	/* Subject alternative names of a verified client or server certificate: DNS, URI, and IP
	 * addresses as text, 64 at most. A DNS name never holds ':' or '/', so it can't pass for a URI. */
	const char *const *sans;
	size_t n_sans;
	int64_t cert_not_after_wall_us; /* 0 without a certificate */
};

/* Bytes read; 0 at the peer's orderly end (stop wanting LOOP_READ then: an ended stream stays ready); -EAGAIN; another -errno: broken (on_broken is not called then). */
ssize_t stream_read(struct stream *s, void *data, size_t len) MUST_CHECK;
/* Bytes taken, maybe fewer than given; -EAGAIN (also before on_open); another -errno: broken. What is taken is
 * on its way; the next call may begin with anything. */
ssize_t stream_writev(struct stream *s, const struct iovec *iov, int n) MUST_CHECK;
/* LOOP_READ | LOOP_WRITE_READY: which readiness to report. Level-triggered. At first: none. */
void stream_want(struct stream *s, int events);
/* Sends close_notify / FIN after what was written; reading goes on. */
void stream_shutdown(struct stream *s);
/* Ends it at once; no callback follows, and the memory goes at the end of the turn. NULL-safe. */
void stream_close(struct stream *s);
const struct stream_peer *stream_peer(const struct stream *s);
/* What broke it, for a log line; "" while nothing has. */
const char *stream_error(const struct stream *s);
/* How long written bytes may stay without the peer taking them before the kernel gives the connection up, a
 * peer that reads nothing (zero window) included. 0: the system's. No-op unless TCP. */
void stream_set_user_timeout(struct stream *s, int ms);

/* Connect to an address already resolved. `tls` NULL: plain. `server_name`: SNI and the name that
 * the certificate must carry (an IP address literal is matched as an address); NULL only without tls.
 * A network's refusal comes as on_broken, never as a return value.  There is no deadline here: the
 * owner's own timer covers connect, TLS and the first answer in one. */
int stream_connect(struct loop *loop, const struct sockaddr *addr, socklen_t addr_len, struct tls_context *tls,
		   const char *server_name, const struct stream_events *ev, void *arg, struct stream **ret) MUST_CHECK;

/* Two ends in memory, each with a buffer of `cap` bytes; closing one gives the other its end. */
int stream_pair(struct loop *loop, size_t cap, const struct stream_events *ev_a, void *arg_a,
		const struct stream_events *ev_b, void *arg_b, struct stream **ret_a, struct stream **ret_b) MUST_CHECK;

/* ---- listener ---- */
struct listener;
struct listener_stats {
	int64_t accepted, no_descriptor; /* the latter: dropped, or left waiting, for want of one */
	/* of TLS; begun is the sum of all, and of those that go on */
	int64_t handshaking, handshakes, resumed, failed, timed_out; /* resumed: of `handshakes` */
	struct histogram handshake;      /* of those that succeeded, from accept on */
};
struct listener_config {
	const struct sockaddr *addr;
	socklen_t addr_len;
	struct tls_context *tls;     /* NULL: plain */
	int backlog;
	int64_t handshake_timeout_ns; /* from accept to on_open; against half-open handshakes */
	int max_handshakes;           /* TLS handshakes in progress at once; accepting pauses at the limit */
	int accept_per_turn;          /* connections taken per turn, for fairness */
	struct listener_stats *stats; /* counted into, if not NULL; several listeners may share one. Must outlive them */
	/* Optional: a connection ended before it was open (handshake failed, timed out), for a log line. */
	void (*on_refused)(void *arg, const char *address, const char *text);
};
/* `on_accept` gets a stream that is open already (handshake done); it must stream_set_events at once or close it.
 * It may free the listener.  Zeroes in `cfg` mean: backlog 511, handshake 10 s, 256 handshakes, 32 per turn. A Unix
 * socket file that nobody listens on is replaced, and removed by listener_free. */
int listener_new(struct loop *loop, const struct listener_config *cfg, void (*on_accept)(void *arg, struct stream *s),
		 void *arg, struct listener **ret) MUST_CHECK;
/* The bound address (a port 0 resolved). */
void listener_address(const struct listener *l, struct sockaddr_storage *ret_addr, socklen_t *ret_len);
/* Out of file descriptors or over the owner's connection limit: stop accepting until resumed. EMFILE is handled inside. */
void listener_pause(struct listener *l, bool paused);
void listener_free(struct listener *l);
void stream_set_events(struct stream *s, const struct stream_events *ev, void *arg);

#endif
