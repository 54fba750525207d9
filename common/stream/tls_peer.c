/* What a verified certificate says about the peer: its alternative names and its end. */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/stream/stream_impl.h"

#define SANS_MAX 64
#define DNS_MAX 253
#define URI_MAX 2048

/* Only what a name of that kind can hold, so that one kind can't be read as another. */
static bool dns_char(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
	       c == '_' || c == '*';
}

static bool uri_char(unsigned char c)
{
	return c > ' ' && c < 0x7f;
}

static char *name_text(const ASN1_IA5STRING *str, size_t max, bool (*allowed)(unsigned char))
{
	const unsigned char *data = ASN1_STRING_get0_data(str);
	int len = ASN1_STRING_length(str);
	if (len <= 0 || (size_t)len > max)
		return NULL;
	for (int i = 0; i < len; i++)
		if (!allowed(data[i]))
			return NULL;
	return strndup((const char *)data, (size_t)len);
}

static char *ip_text(const ASN1_OCTET_STRING *str)
{
	char text[INET6_ADDRSTRLEN];
	int len = ASN1_STRING_length(str);
	int family = len == 4 ? AF_INET : len == 16 ? AF_INET6 : AF_UNSPEC;
	if (family == AF_UNSPEC || !inet_ntop(family, ASN1_STRING_get0_data(str), text, sizeof(text)))
		return NULL;
	return strdup(text);
}

static char *san_text(const GENERAL_NAME *name)
{
	switch (name->type) {
	case GEN_DNS:
		return name_text(name->d.dNSName, DNS_MAX, dns_char);
	case GEN_URI: {
		char *uri = name_text(name->d.uniformResourceIdentifier, URI_MAX, uri_char);
		if (uri && !strchr(uri, ':')) {
			free(uri);
			return NULL;
		}
		return uri;
	}
	case GEN_IPADD:
		return ip_text(name->d.iPAddress);
	default:
		return NULL;
	}
}

static void read_sans(X509 *cert, struct stream_peer *peer)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
	if (!names)
		return;
	char **sans = xcalloc(SANS_MAX, sizeof(*sans));
	size_t n = 0;
	for (int i = 0; i < sk_GENERAL_NAME_num(names) && n < SANS_MAX; i++) {
		char *text = san_text(sk_GENERAL_NAME_value(names, i));
		if (text)
			sans[n++] = text;
	}
	GENERAL_NAMES_free(names);
	char **fit = n ? realloc(sans, n * sizeof(*sans)) : NULL;
	if (fit)
		sans = fit;
	peer->sans = (const char *const *)sans;
	peer->n_sans = n;
}

int64_t tls_time_wall_us(const ASN1_TIME *t)
{
	struct tm tm;
	if (ASN1_TIME_to_tm(t, &tm) != 1)
		return 0;
	return (int64_t)timegm(&tm) * 1000000;
}

int tls_peer_read(SSL *ssl, struct stream_peer *peer)
{
	peer->tls = true;
	peer->resumed = SSL_session_reused(ssl);
	X509 *cert = SSL_get0_peer_certificate(ssl);
	/* Without verification (a server that has no CA) a certificate means nothing. */
	if (!cert || SSL_get_verify_mode(ssl) == SSL_VERIFY_NONE || SSL_get_verify_result(ssl) != X509_V_OK)
		return 0;
	peer->cert_not_after_wall_us = tls_time_wall_us(X509_get0_notAfter(cert));
	if (peer->cert_not_after_wall_us < clock_wall_us())
		return -EACCES;
	read_sans(cert, peer);
	return 0;
}

void tls_peer_done(struct stream_peer *peer)
{
	for (size_t i = 0; i < peer->n_sans; i++)
		free((char *)peer->sans[i]);
	free((void *)peer->sans);
	peer->sans = NULL;
	peer->n_sans = 0;
}
