/* No state. */
#include "common/pb/json_type.h"

#include <string.h>

#include "google/protobuf/any.pb-c.h"
#include "google/protobuf/duration.pb-c.h"
#include "google/protobuf/timestamp.pb-c.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"

enum pb_special pb_special_of(const ProtobufCMessageDescriptor *type)
{
	if (type == &google__protobuf__timestamp__descriptor)
		return PB_TIMESTAMP;
	if (type == &google__protobuf__duration__descriptor)
		return PB_DURATION;
	return type == &google__protobuf__any__descriptor ? PB_ANY : PB_PLAIN;
}

/* The next character of the camel form, '\0' at the end. */
static char next_camel(const char **name, bool upper)
{
	for (; **name == '_'; (*name)++)
		upper = true;
	char c = **name;
	if (c)
		(*name)++;
	return upper && c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

size_t pb_camel_name(const char *name, char ret_camel[PB_JSON_NAME_MAX])
{
	size_t n = 0;
	for (char c; n < PB_JSON_NAME_MAX - 1 && (c = next_camel(&name, false));)
		ret_camel[n++] = c;
	ret_camel[n] = '\0';
	return n;
}

static bool is_camel_of(const char *name, const char *camel, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!camel[i] || next_camel(&name, false) != camel[i])
			return false;
	return !next_camel(&name, false);
}

const ProtobufCFieldDescriptor *pb_field_by_json_name(const ProtobufCMessageDescriptor *type, const char *name, size_t len)
{
	for (unsigned i = 0; i < type->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &type->fields[i];
		if (is_camel_of(f->name, name, len) || (strncmp(f->name, name, len) == 0 && !f->name[len]))
			return f;
	}
	return NULL;
}

static bool is_key_type(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_FLOAT:
	case PROTOBUF_C_TYPE_DOUBLE:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_ENUM:
	case PROTOBUF_C_TYPE_MESSAGE:
		return false;
	default:
		return true;
	}
}

bool pb_is_map(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *f)
{
	const ProtobufCMessageDescriptor *d = f->descriptor;
	if (f->label != PROTOBUF_C_LABEL_REPEATED || f->type != PROTOBUF_C_TYPE_MESSAGE || d->n_fields != 2)
		return false;
	size_t n = strlen(type->name);
	if (strncmp(d->name, type->name, n) != 0 || d->name[n] != '.')
		return false;
	const char *entry = d->name + n + 1, *name = f->name;
	char c = next_camel(&name, true);
	for (; c && c == *entry; entry++)
		c = next_camel(&name, false);
	if (c)
		return false;
	return strcmp(entry, "Entry") == 0 && d->fields[0].id == 1 && d->fields[1].id == 2 && is_key_type(d->fields[0].type) &&
		strcmp(d->fields[0].name, "key") == 0 && strcmp(d->fields[1].name, "value") == 0 &&
		d->fields[1].label != PROTOBUF_C_LABEL_REPEATED;
}

const ProtobufCMessageDescriptor *pb_any_type(const char *url, size_t len)
{
	static const ProtobufCMessageDescriptor *const types[] = {
		&google__rpc__bad_request__descriptor,
		&google__rpc__error_info__descriptor,
		&google__rpc__resource_info__descriptor,
		&google__rpc__retry_info__descriptor,
		&google__rpc__status__descriptor,
	};
	const char *slash = memrchr(url, '/', len);
	if (!slash)
		return NULL;
	len -= (size_t)(slash + 1 - url);
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (strlen(types[i]->name) == len && memcmp(types[i]->name, slash + 1, len) == 0)
			return types[i];
	return NULL;
}
