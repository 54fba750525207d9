/* Owns the keys that a server seals its session tickets with: the current one and the one before,
 * per SSL_CTX.  A key is replaced after an hour, so that one that leaks opens the recorded
 * TLS 1.2 connections of two hours and not of the life of the process. */
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/stream/stream_impl.h"

#define KEY_LIFE_NS (3600 * NS_PER_S)
#define IV_LEN 16

struct ticket_key {
	unsigned char name[16], aes[32], mac[32];
};

struct ticket_keys {
	struct ticket_key current, previous;
	bool has_previous;
	int64_t born_mono_ns;
};

static void free_keys(void *parent, void *ptr, CRYPTO_EX_DATA *ad, int idx, long argl, void *argp)
{
	if (ptr)
		OPENSSL_clear_free(ptr, sizeof(struct ticket_keys));
}

static int slot(void)
{
	static int index = -1;
	if (index < 0)
		index = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, free_keys);
	return index;
}

static bool draw(struct ticket_keys *keys)
{
	struct ticket_key fresh;
	if (RAND_bytes((unsigned char *)&fresh, sizeof(fresh)) != 1)
		return false;
	keys->current = fresh;
	keys->born_mono_ns = clock_mono_ns();
	OPENSSL_cleanse(&fresh, sizeof(fresh));
	return true;
}

bool tls_tickets_rotate(SSL_CTX *c)
{
	struct ticket_keys *keys = SSL_CTX_get_ex_data(c, slot());
	struct ticket_key old = keys->current;
	if (!draw(keys))
		return false;
	keys->previous = old;
	keys->has_previous = true;
	OPENSSL_cleanse(&old, sizeof(old));
	return true;
}

static bool load_mac(EVP_MAC_CTX *mac, struct ticket_key *key)
{
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key->mac, sizeof(key->mac)),
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){ "SHA256" }, 0),
		OSSL_PARAM_construct_end(),
	};
	return EVP_MAC_CTX_set_params(mac, params) == 1;
}

/* Returns, as OpenSSL wants it: 1 go on, 2 go on and give a new ticket, 0 unknown ticket, -1 error. */
static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, int seal)
{
	SSL_CTX *c = SSL_get_SSL_CTX(ssl);
	struct ticket_keys *keys = SSL_CTX_get_ex_data(c, slot());
	if (clock_mono_ns() - keys->born_mono_ns > KEY_LIFE_NS && !tls_tickets_rotate(c))
		return -1;
	if (seal) {
		struct ticket_key *key = &keys->current;
		memcpy(name, key->name, sizeof(key->name));
		if (RAND_bytes(iv, IV_LEN) != 1 || !load_mac(mac, key) ||
		    EVP_EncryptInit_ex2(cipher, EVP_aes_256_cbc(), key->aes, iv, NULL) != 1)
			return -1;
		return 1;
	}
	struct ticket_key *key = NULL;
	if (memcmp(name, keys->current.name, sizeof(keys->current.name)) == 0)
		key = &keys->current;
	else if (keys->has_previous && memcmp(name, keys->previous.name, sizeof(keys->previous.name)) == 0)
		key = &keys->previous;
	if (!key)
		return 0;
	if (!load_mac(mac, key) || EVP_DecryptInit_ex2(cipher, EVP_aes_256_cbc(), key->aes, iv, NULL) != 1)
		return -1;
	return key == &keys->current ? 1 : 2;
}

bool tls_tickets_init(SSL_CTX *c)
{
	struct ticket_keys *keys = OPENSSL_zalloc(sizeof(*keys));
	if (!keys || !draw(keys) || SSL_CTX_set_ex_data(c, slot(), keys) != 1) {
		OPENSSL_clear_free(keys, sizeof(*keys));
		return false;
	}
	return SSL_CTX_set_tlsext_ticket_key_evp_cb(c, on_ticket) == 1;
}
