#include "tests/bench/mint.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/stream/tls.h"

#define DAY_S 86400
#define PATH_BYTES 4096

struct mint {
	char dir[PATH_BYTES - 64];
	char ca_file[PATH_BYTES], key_file[PATH_BYTES], cert_file[PATH_BYTES];
	X509 *ca;
	EVP_PKEY *ca_key, *key;
	long serial;
};

static int fail(const char *what)
{
	fprintf(stderr, "load: tls-dir: %s\n", what);
	return -1;
}

static int read_authority(struct mint *m)
{
	char path[PATH_BYTES];
	FILE *f = fopen(m->ca_file, "re");
	m->ca = f ? PEM_read_X509(f, NULL, NULL, NULL) : NULL;
	if (f)
		fclose(f);
	snprintf(path, sizeof(path), "%s/ca-key.pem", m->dir);
	f = fopen(path, "re");
	m->ca_key = f ? PEM_read_PrivateKey(f, NULL, NULL, NULL) : NULL;
	if (f)
		fclose(f);
	return m->ca && m->ca_key ? 0 : fail("ca.pem and ca-key.pem are wanted there");
}

int mint_new(const char *dir, struct mint **ret)
{
	struct mint *m = xcalloc(1, sizeof(*m));
	snprintf(m->dir, sizeof(m->dir), "%s", dir);
	snprintf(m->ca_file, sizeof(m->ca_file), "%s/ca.pem", m->dir);
	snprintf(m->key_file, sizeof(m->key_file), "%s/fleet-key.%d.pem", m->dir, (int)getpid());
	snprintf(m->cert_file, sizeof(m->cert_file), "%s/fleet.%d.pem", m->dir, (int)getpid());
	int rc = read_authority(m);
	m->key = rc ? NULL : EVP_EC_gen("P-256");
	FILE *f = m->key ? fopen(m->key_file, "we") : NULL;
	if (rc == 0 && (!f || PEM_write_PrivateKey(f, m->key, NULL, NULL, 0, NULL, NULL) != 1))
		rc = fail("the fleet's key can't be written there");
	if (f)
		fclose(f);
	if (rc)
		mint_free(m);
	else
		*ret = m;
	return rc;
}

void mint_free(struct mint *m)
{
	if (!m)
		return;
	unlink(m->key_file);
	unlink(m->cert_file);
	X509_free(m->ca);
	EVP_PKEY_free(m->ca_key);
	EVP_PKEY_free(m->key);
	free(m);
}

static bool extend(struct mint *m, X509 *cert, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509V3_set_ctx(&ctx, m->ca, cert, NULL, NULL, 0);
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	bool ok = e && X509_add_ext(cert, e, -1) == 1;
	X509_EXTENSION_free(e);
	return ok;
}

static X509 *make(struct mint *m, const char *id)
{
	char san[300];
	snprintf(san, sizeof(san), "URI:reins:worker:%s", id);
	X509 *cert = X509_new();
	bool ok = cert && X509_set_version(cert, 2) == 1 && ASN1_INTEGER_set(X509_get_serialNumber(cert), ++m->serial) == 1 &&
		  X509_gmtime_adj(X509_getm_notBefore(cert), -DAY_S) && X509_gmtime_adj(X509_getm_notAfter(cert), DAY_S) &&
		  X509_set_issuer_name(cert, X509_get_subject_name(m->ca)) == 1 && X509_set_pubkey(cert, m->key) == 1 &&
		  X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const unsigned char *)id, -1, -1, 0) == 1 &&
		  extend(m, cert, NID_basic_constraints, "CA:FALSE") && extend(m, cert, NID_ext_key_usage, "clientAuth") &&
		  extend(m, cert, NID_subject_alt_name, san) && X509_sign(cert, m->ca_key, EVP_sha256()) > 0;
	if (ok)
		return cert;
	X509_free(cert);
	return NULL;
}

struct tls_context *mint_worker(struct mint *m, const char *id, char *ret_err, size_t cap)
{
	static const char *const alpn[] = { "h2" };
	const struct tls_config cfg = {
		.cert_file = m->cert_file, .key_file = m->key_file, .ca_file = m->ca_file, .alpn = alpn, .n_alpn = 1,
	};
	struct tls_context *tls = NULL;
	X509 *cert = make(m, id);
	FILE *f = cert ? fopen(m->cert_file, "we") : NULL;
	bool written = f && PEM_write_X509(f, cert) == 1;
	if (f)
		written = fclose(f) == 0 && written;
	X509_free(cert);
	if (!written)
		snprintf(ret_err, cap, "a certificate could not be made");
	else if (tls_context_new(&cfg, ret_err, cap, &tls))
		return NULL;
	return tls;
}
