/* The trace that a submission belongs to: in spec.origin.traceparent, from there to the worker and to Task.trace_id. */
#ifndef REINS_RPC_TRACE_H
#define REINS_RPC_TRACE_H

#include "common/base/buf.h"
#include "common/base/id.h"
#include "reins/v1/task.pb-c.h"

/* The spec's bytes, with `header` (NULL: none) as traceparent where the spec names none and the header is one; `spec` is as it
 * was afterwards. NULL without memory. */
struct blob *trace_pack_spec(Reins__V1__TaskSpec *spec, const char *header) MUST_CHECK;
/* The traceparent of an encoded spec, or "". */
void trace_find(const struct blob *spec, char ret[static TRACEPARENT_LEN + 1]);

#endif
