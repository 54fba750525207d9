/* Which dialect a content type means. */
#include "common/grpc/dialect.h"

#include <string.h>
#include <strings.h>

static const struct {
	const char *type;
	const struct dialect *dialect;
} TYPES[] = {
	{ "application/grpc", &dialect_grpc },
	{ "application/grpc+proto", &dialect_grpc },
	{ "application/grpc-web", &dialect_web },
	{ "application/grpc-web+proto", &dialect_web },
	{ "application/json", &dialect_connect_json },
	{ "application/proto", &dialect_connect_proto },
	{ "application/connect+json", &dialect_connect_stream_json },
	{ "application/connect+proto", &dialect_connect_stream_proto },
};

/* JSON in UTF-8 is the only one there is (RFC 8259, 8.1); who announces another encoding would be misread. */
static bool charset_ok(const char *parameters)
{
	const char *at = strcasestr(parameters, "charset=");
	if (!at)
		return true;
	at += strlen("charset=");
	at += *at == '"';
	return strncasecmp(at, "utf-8", 5) == 0 && (at[5] == 0 || strchr("\"; ", at[5]));
}

const struct dialect *dialect_of_type(const char *type)
{
	if (!type)
		return NULL;
	size_t n = strcspn(type, "; ");
	for (size_t i = 0; i < ARRAY_LEN(TYPES); i++)
		if (strlen(TYPES[i].type) == n && strncasecmp(type, TYPES[i].type, n) == 0)
			return TYPES[i].dialect->codec != CODEC_JSON || charset_ok(type + n) ? TYPES[i].dialect : NULL;
	return NULL;
}
