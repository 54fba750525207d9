/* Certificates for tests, made on the spot with OpenSSL and written as PEM into a directory of their own. */
#ifndef REINS_TEST_TLS_FILES_H
#define REINS_TEST_TLS_FILES_H

#include "common/base/base.h"

struct tls_files {
	char dir[64];
};

/* A directory with two authorities: ca.pem and other-ca.pem. */
void tls_files_init(struct tls_files *f);
void tls_files_done(struct tls_files *f);
/* NAME.pem and NAME.key signed by `ca` ("ca", "other-ca"). `san` in OpenSSL's form: "DNS:a,URI:b,IP:c". `usage`: "serverAuth",
 * "clientAuth". Valid from now - 2 days for `days` days counted from now (below zero: expired). Replaces the files. */
void tls_files_issue(struct tls_files *f, const char *name, const char *ca, const char *san, const char *usage, int days);
/* malloc'ed. */
char *tls_files_path(const struct tls_files *f, const char *file);

#endif
