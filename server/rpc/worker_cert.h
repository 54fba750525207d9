/* Which worker a certificate is for. */
#ifndef REINS_RPC_WORKER_CERT_H
#define REINS_RPC_WORKER_CERT_H

#include "common/stream/stream.h"

/* May the peer work under this id?  Over TLS with a verified certificate: only if a subject alternative name is
 * the URI reins:worker:ID, or (DNS, IP) the id itself, letter by letter.  Never the common name.  Without a
 * certificate (clear text, or TLS under --insecure) there is nothing to go by: yes. */
bool worker_cert_allows(const struct stream_peer *peer, const char *id) MUST_CHECK;
/* Whom the certificate names, for a sentence: `worker "w2"`, `client "admin"`, `"host"`, `nobody`. */
void worker_cert_names(const struct stream_peer *peer, char *ret, size_t cap);

#endif
