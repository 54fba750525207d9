/* A traceparent of the headers is in the spec only while that is packed; it is found again in the bytes, without unpacking. */
#include "server/rpc/trace.h"

#include <string.h>

#include "common/pb/pb.h"
#include "server/rpc/wire.h"

#define SPEC_ORIGIN_FIELD 18
#define ORIGIN_TRACEPARENT_FIELD 7

struct blob *trace_pack_spec(Reins__V1__TaskSpec *spec, const char *header)
{
	Reins__V1__Origin own = REINS__V1__ORIGIN__INIT, *origin = spec->origin ? spec->origin : &own;
	if (!header || *origin->traceparent || !traceparent_ok(header))
		return pb_pack_blob(spec);
	char *empty = origin->traceparent;
	origin->traceparent = (char *)(uintptr_t)header;
	spec->origin = origin;
	struct blob *b = pb_pack_blob(spec);
	origin->traceparent = empty;
	if (origin == &own)
		spec->origin = NULL;
	return b;
}

void trace_find(const struct blob *spec, char ret[static TRACEPARENT_LEN + 1])
{
	const uint8_t *origin, *text;
	size_t origin_len, len;
	ret[0] = '\0';
	if (!wire_find_len(spec->data, spec->len, SPEC_ORIGIN_FIELD, &origin, &origin_len) ||
	    !wire_find_len(origin, origin_len, ORIGIN_TRACEPARENT_FIELD, &text, &len) || len != TRACEPARENT_LEN)
		return;
	memcpy(ret, text, len);
	ret[len] = '\0';
}
