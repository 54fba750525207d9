/* Pages of other origins: which may ask and read the answers.  Nobody by default; each allowed origin is named. */
#ifndef REINS_GRPC_CORS_H
#define REINS_GRPC_CORS_H

#include "common/grpc/dialect.h"

#define CORS_FIELDS_MAX 3

/* The configured origin that this request comes from, or NULL. */
const char *cors_origin(const struct grpc_server_config *cfg, const struct exchange *x);
/* What lets a page of `origin` read a response; the number of fields written. */
size_t cors_fields(const struct grpc_server_config *cfg, const char *origin, struct h2_header ret[static CORS_FIELDS_MAX]);
/* Answers the question that a browser asks before such a request. False: this is none, or not of an allowed origin. */
bool cors_preflight(struct reply *r);

#endif
