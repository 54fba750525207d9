/* Certificates for a fleet: one key for all workers, and for each a certificate that names it, signed by the authority of a
 * folder that deploy/tls has made. */
#ifndef REINS_BENCH_MINT_H
#define REINS_BENCH_MINT_H

#include "common/base/base.h"

struct mint;
struct tls_context;

/* -1 after a line on stderr. */
int mint_new(const char *dir, struct mint **ret) MUST_CHECK;
/* The settings of that worker's connection; NULL: could not be made, with the reason. */
struct tls_context *mint_worker(struct mint *m, const char *id, char *ret_err, size_t cap) MUST_CHECK;
void mint_free(struct mint *m); /* NULL-safe */

#endif
