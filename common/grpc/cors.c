/* Answers to browsers, by the configured origins alone.  No state. */
#include "common/grpc/cors.h"

#include <string.h>

#include "common/grpc/server.h"

const char *cors_origin(const struct grpc_server_config *cfg, const struct exchange *x)
{
	const char *asked = cfg->n_cors_origins ? x->ops->header(x, "origin") : NULL;
	for (size_t i = 0; asked && i < cfg->n_cors_origins; i++)
		if (strcmp(asked, cfg->cors_origins[i]) == 0)
			return cfg->cors_origins[i];
	return NULL;
}

size_t cors_fields(const struct grpc_server_config *cfg, const char *origin, struct h2_header ret[static CORS_FIELDS_MAX])
{
	size_t n = 0;
	if (!cfg->n_cors_origins)
		return 0;
	/* A cache must not give one origin's answer to another. */
	ret[n++] = (struct h2_header)H2_HEADER("vary", "origin");
	if (!origin)
		return n;
	ret[n++] = (struct h2_header){ "access-control-allow-origin", origin, strlen(origin), 0 };
	ret[n++] = (struct h2_header)H2_HEADER("access-control-expose-headers",
					       "grpc-status, grpc-message, grpc-status-details-bin, content-encoding, connect-content-encoding");
	return n;
}

bool cors_preflight(struct reply *r)
{
	const struct exchange *x = &r->x;
	if (!r->origin || !x->ops->header(x, "access-control-request-method"))
		return false;
	static const struct h2_header h[] = {
		H2_HEADER(":status", "204"),
		H2_HEADER("access-control-allow-methods", "POST, GET"),
		H2_HEADER("access-control-allow-headers",
			  "content-type, authorization, connect-protocol-version, connect-timeout-ms, connect-content-encoding, "
			  "connect-accept-encoding, content-encoding, x-grpc-web, x-user-agent, grpc-timeout, traceparent"),
		H2_HEADER("access-control-max-age", "7200"),
	};
	exchange_ignore(x, true);
	reply_respond(r, h, ARRAY_LEN(h), true);
	return true;
}
