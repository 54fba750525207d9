/* By the names of the certificate that the stream has verified.  No state. */
#include "server/rpc/worker_cert.h"

#include <stdio.h>
#include <string.h>

#define WORKER_URI "reins:worker:"
#define CLIENT_URI "reins:client:"

static const char *behind(const char *text, const char *prefix)
{
	size_t n = strlen(prefix);
	return strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

bool worker_cert_allows(const struct stream_peer *peer, const char *id)
{
	if (!peer->tls || !peer->cert_not_after_wall_us)
		return true;
	for (size_t i = 0; i < peer->n_sans; i++) {
		const char *named = behind(peer->sans[i], WORKER_URI);
		/* An id has no colon, so it is never equal to a URI of another kind. */
		if (strcmp(named ? named : peer->sans[i], id) == 0)
			return true;
	}
	return false;
}

void worker_cert_names(const struct stream_peer *peer, char *ret, size_t cap)
{
	const char *first = peer->n_sans ? peer->sans[0] : NULL, *name;
	if (!first)
		snprintf(ret, cap, "nobody");
	else if ((name = behind(first, WORKER_URI)))
		snprintf(ret, cap, "worker \"%.100s\"", name);
	else if ((name = behind(first, CLIENT_URI)))
		snprintf(ret, cap, "client \"%.100s\"", name);
	else
		snprintf(ret, cap, "\"%.100s\"", first);
}
