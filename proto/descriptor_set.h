/* The serialized google.protobuf.FileDescriptorSet of everything under proto/ and all that it
 * imports, each file before those that import it, without source positions. */
#ifndef REINS_DESCRIPTOR_SET_H
#define REINS_DESCRIPTOR_SET_H

#include <stddef.h>

extern const unsigned char reins_descriptor_set[];
extern const size_t reins_descriptor_set_len;

#endif
