/* Looks things up in a serialized google.protobuf.FileDescriptorSet (proto/descriptor_set.h), for server reflection.
 * It is read as it is: no index, no copy; a look-up goes through the set once, some 100 KiB. */
#ifndef REINS_DESCRIPTORS_H
#define REINS_DESCRIPTORS_H

#include "common/base/base.h"

#define DESCRIPTORS_FILES_MAX 64
#define DESCRIPTORS_EXTENSIONS_MAX 256

struct descriptors_span {
	const uint8_t *data;
	size_t len;
};

struct descriptors {
	size_t n;
	struct {
		struct descriptors_span file, name, package; /* the FileDescriptorProto, as it stands in the set */
	} at[DESCRIPTORS_FILES_MAX];
};

/* -EINVAL: not such a set, or more than DESCRIPTORS_FILES_MAX files. The bytes must live on. */
int descriptors_init(struct descriptors *d, const uint8_t *set, size_t len) MUST_CHECK;
/* All give the number of a file, or -1. */
int descriptors_file(const struct descriptors *d, const char *name);
/* By the full name of a service, method, message, field, oneof, enum, enum value or extension. */
int descriptors_symbol(const struct descriptors *d, const char *name);
int descriptors_extension(const struct descriptors *d, const char *type, int32_t number);
bool descriptors_has_message(const struct descriptors *d, const char *name);
/* The numbers of all extensions of a message, in the order of the files; how many. */
size_t descriptors_extensions(const struct descriptors *d, const char *type, int32_t ret_numbers[static DESCRIPTORS_EXTENSIONS_MAX]);
/* Bit i: file i, and those that it imports, and so on. */
uint64_t descriptors_closure(const struct descriptors *d, int file);

#endif
