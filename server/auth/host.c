/* Names of this server: see host.h.  Nothing is resolved. */
#include "server/auth/host.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define NAME_MAX_LEN 255

static bool is_address(const char *name)
{
	unsigned char at[16];
	return inet_pton(AF_INET, name, at) == 1;
}

static bool is_below_localhost(const char *name)
{
	static const char suffix[] = ".localhost";
	size_t len = strlen(name);
	return len >= sizeof(suffix) && strcasecmp(name + len - (sizeof(suffix) - 1), suffix) == 0;
}

bool host_is_ours(const char *host, const char *const *allowed, size_t n_allowed)
{
	char name[NAME_MAX_LEN + 1], own[NAME_MAX_LEN + 1];
	if (host[0] == '[')
		return true; /* an IPv6 address; names can't begin so */
	size_t len = strcspn(host, ":");
	if (len == 0 || len > NAME_MAX_LEN)
		return false;
	memcpy(name, host, len);
	name[len] = '\0';
	if (is_address(name) || strcasecmp(name, "localhost") == 0 || is_below_localhost(name))
		return true;
	own[NAME_MAX_LEN] = '\0';
	if (gethostname(own, NAME_MAX_LEN) == 0 && strcasecmp(name, own) == 0)
		return true;
	for (size_t i = 0; i < n_allowed; i++)
		if (strcasecmp(name, allowed[i]) == 0)
			return true;
	return false;
}
