/* TLS settings of one listener or of one client: certificates, trust, ALPN, resumption.
 * TLS 1.2 or newer; in 1.2 only ECDHE with AEAD; no renegotiation, no compression, no early data. */
#ifndef REINS_TLS_H
#define REINS_TLS_H

#include "common/base/base.h"

struct tls_context;

struct tls_config {
	bool server;
	const char *cert_file;    /* PEM chain; required for a server, optional for a client */
	const char *key_file;     /* PEM */
	const char *ca_file;      /* server: trust for client certificates (NULL: none asked for);
	                             client: trust for the server (NULL: the system's) */
	bool require_client_cert; /* server with ca_file: refuse a client without one */
	const char *const *alpn;  /* in order of preference; a server refuses a client that offers only others */
	size_t n_alpn;
};

/* -EINVAL with text (static-size, for a person: which file, what is wrong) when a file can't be read, doesn't
 * parse, or the key doesn't fit the certificate. */
int tls_context_new(const struct tls_config *cfg, char *ret_err, size_t err_cap, struct tls_context **ret) MUST_CHECK;
/* Reads the files again and swaps only when all is well; streams that are open keep the old ones. */
int tls_context_reload(struct tls_context *ctx, char *ret_err, size_t err_cap) MUST_CHECK;
/* As reload, but only if a file is another than at the last reading: 1 when they were read, else 0. What can't be
 * read is reported once, then when a file changes again. */
int tls_context_refresh(struct tls_context *ctx, char *ret_err, size_t err_cap) MUST_CHECK;
/* When our own certificate ends; 0 without one. */
int64_t tls_context_ends_wall_us(const struct tls_context *ctx);
void tls_context_free(struct tls_context *ctx); /* reference counted by its streams */

#endif
