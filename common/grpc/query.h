/* A Connect call by GET: the request is in the query. */
#ifndef REINS_GRPC_QUERY_H
#define REINS_GRPC_QUERY_H

#include "common/base/buf.h"
#include "common/base/refusal.h"
#include "common/grpc/dialect.h"

struct query {
	const struct dialect *dialect; /* by `encoding` */
	bool gzip;                     /* by `compression` */
};

/* Parameters in any order; unknown ones are passed over.  The message's bytes are appended.  -1: refused; ret->dialect is set
 * even then, unless `encoding` is none of ours. */
int query_parse(const char *query, struct query *ret, struct buf *ret_message, struct refusal *ret_refusal) MUST_CHECK;

#endif
