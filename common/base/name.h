/* What names may be made of, as the contract says: of queues, workers, labels, handlers, metrics, resources. */
#ifndef REINS_NAME_H
#define REINS_NAME_H

#include <string.h>

#include "common/base/base.h"

#define NAME_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/-"
#define NAME_BYTES_MAX 255 /* most of them; keys of labels and of metrics have 63 */

/* The first `len` bytes of a text that ends in NUL are 1 to `max` of NAME_BYTES. */
static inline bool name_is(const char *text, size_t len, size_t max)
{
	return len > 0 && len <= max && strspn(text, NAME_BYTES) >= len;
}

#endif
