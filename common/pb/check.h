/* Inside common/pb only: the pre-scan, with what it learned about memory. */
#ifndef REINS_PB_CHECK_H
#define REINS_PB_CHECK_H

#include "common/pb/pb.h"

/* pb_check; *ret_memory is what unpacking takes at most with an allocator that never reuses. */
int pb_check_measure(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
	const struct pb_limits *limits, size_t *ret_memory, struct refusal *ret_refusal) MUST_CHECK;

#endif
