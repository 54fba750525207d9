#include "tests/unit/tls_files.h"

#include <dirent.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DAY_S (24 * 3600L)

char *tls_files_path(const struct tls_files *f, const char *file)
{
	char *path;
	assert_true(asprintf(&path, "%s/%s", f->dir, file) > 0);
	return path;
}

static FILE *open_file(const struct tls_files *f, const char *name, const char *suffix, const char *mode)
{
	char file[64];
	snprintf(file, sizeof(file), "%s%s", name, suffix);
	_cleanup_free_ char *path = tls_files_path(f, file);
	FILE *stream = fopen(path, mode);
	assert_non_null(stream);
	return stream;
}

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	assert_non_null(ext);
	assert_int_equal(X509_add_ext(cert, ext, -1), 1);
	X509_EXTENSION_free(ext);
}

static X509 *cert_new(const char *name, EVP_PKEY *key, X509 *issuer, int days)
{
	static long serial = 1;
	X509 *cert = X509_new();
	X509_set_version(cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
	X509_gmtime_adj(X509_getm_notBefore(cert), -2 * DAY_S);
	X509_gmtime_adj(X509_getm_notAfter(cert), days * DAY_S);
	X509_set_pubkey(cert, key);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
	X509_set_issuer_name(cert, X509_get_subject_name(issuer ? issuer : cert));
	return cert;
}

static void save(const struct tls_files *f, const char *name, X509 *cert, EVP_PKEY *key)
{
	FILE *file = open_file(f, name, ".pem", "w");
	assert_int_equal(PEM_write_X509(file, cert), 1);
	fclose(file);
	file = open_file(f, name, ".key", "w");
	assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
	fclose(file);
}

static void make_ca(const struct tls_files *f, const char *name)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	assert_non_null(key);
	X509 *cert = cert_new(name, key, NULL, 30);
	add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE");
	add_extension(cert, cert, NID_key_usage, "critical,keyCertSign");
	assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
	save(f, name, cert, key);
	X509_free(cert);
	EVP_PKEY_free(key);
}

void tls_files_issue(struct tls_files *f, const char *name, const char *ca, const char *san, const char *usage, int days)
{
	FILE *file = open_file(f, ca, ".pem", "r");
	X509 *issuer = PEM_read_X509(file, NULL, NULL, NULL);
	fclose(file);
	file = open_file(f, ca, ".key", "r");
	EVP_PKEY *issuer_key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
	fclose(file);
	EVP_PKEY *key = EVP_EC_gen("P-256");
	assert_true(issuer && issuer_key && key);

	X509 *cert = cert_new(name, key, issuer, days);
	add_extension(cert, issuer, NID_basic_constraints, "critical,CA:FALSE");
	add_extension(cert, issuer, NID_subject_alt_name, san);
	add_extension(cert, issuer, NID_ext_key_usage, usage);
	assert_true(X509_sign(cert, issuer_key, EVP_sha256()) > 0);
	save(f, name, cert, key);
	X509_free(cert);
	X509_free(issuer);
	EVP_PKEY_free(key);
	EVP_PKEY_free(issuer_key);
}

void tls_files_init(struct tls_files *f)
{
	snprintf(f->dir, sizeof(f->dir), "/tmp/reins-tls-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	make_ca(f, "ca");
	make_ca(f, "other-ca");
}

void tls_files_done(struct tls_files *f)
{
	DIR *dir = opendir(f->dir);
	struct dirent *entry;
	assert_non_null(dir);
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.') {
			_cleanup_free_ char *path = tls_files_path(f, entry->d_name);
			unlink(path);
		}
	closedir(dir);
	assert_int_equal(rmdir(f->dir), 0);
}
