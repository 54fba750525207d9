/* Messages in gzip, each on its own. */
#ifndef REINS_GRPC_GZIP_H
#define REINS_GRPC_GZIP_H

#include "common/base/buf.h"

/* What we take, for the fields that say so. */
#define GZIP_ENCODINGS "identity,gzip"

/* Replies shorter than this gain nothing, longer ones would hold up the loop (1 MiB: some ten milliseconds). */
#define GZIP_MIN ((size_t)1024)
#define GZIP_MAX ((size_t)1 << 20)

/* Appends what the gzip stream of `data` says.  -EBADMSG: it is none, or not whole, or something follows it; -EMSGSIZE: more
 * than `max` bytes would come of it; -ENOMEM.  *ret then holds what came before. */
int gzip_inflate(const void *data, size_t len, size_t max, struct buf *ret) MUST_CHECK;
/* Appends `data` as gzip.  -ENOBUFS: it would not become smaller (or over the buffer's maximum), -ENOMEM: nothing is added. */
int gzip_deflate(const void *data, size_t len, struct buf *ret) MUST_CHECK;
/* Whether the value of an accept-encoding field lists gzip, not with q=0. NULL: no. */
bool gzip_listed(const char *accept_encoding);

#endif
