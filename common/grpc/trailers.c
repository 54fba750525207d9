/* A refusal as fields; its details as google.rpc.Status.  No state. */
#include "common/grpc/trailers.h"

#include <stdio.h>

void trailers_build(struct trailers *t, const struct refusal *r)
{
	t->n = 0;
	if (!r || r->code == STATUS_OK) {
		t->h[t->n++] = (struct h2_header)H2_HEADER("grpc-status", "0");
		return;
	}
	int n = snprintf(t->code, sizeof(t->code), "%u", (unsigned)r->code % 100);
	t->h[t->n++] = (struct h2_header){ "grpc-status", t->code, (size_t)n, 0 };
	size_t len = wire_encode_message(r->message, t->message);
	t->h[t->n++] = (struct h2_header){ "grpc-message", t->message, len, H2_HEADER_ONCE };
	if (r->retry_after_ms > 0) {
		n = snprintf(t->pushback, sizeof(t->pushback), "%lld", (long long)r->retry_after_ms);
		t->h[t->n++] = (struct h2_header){ "grpc-retry-pushback-ms", t->pushback, (size_t)n, H2_HEADER_ONCE };
	}
	uint8_t details[DETAILS_STATUS_CAP];
	size_t details_len = details_status(r, details);
	if (!details_len)
		return;
	len = wire_base64_encode(details, details_len, t->details, sizeof(t->details));
	t->h[t->n++] = (struct h2_header){ "grpc-status-details-bin", t->details, len, H2_HEADER_ONCE };
}
