/* Inside common/pb only: what json_in.c (the walk), json_scalar.c (values) and json_reader.c (refusals, output) share.
 * All functions that return int: 0, or -1 with the refusal filled. */
#ifndef REINS_PB_JSON_READER_H
#define REINS_PB_JSON_READER_H

#include "common/pb/check.h"
#include "common/pb/json_in.h"
#include "common/pb/json_lex.h"
#include "common/pb/json_type.h"

#define JSON_EXCERPT_BYTES 40 /* of the text, in a message about it */

enum frame_kind { IN_MESSAGE, IN_ANY, IN_LIST, IN_MAP };

/* Where a length will stand, in the output; 0 bytes of it are there until it is known. */
struct gap {
	size_t at;
	bool open;
};

struct frame {
	enum frame_kind kind;
	unsigned wire_depth;                    /* messages inside each other */
	const ProtobufCMessageDescriptor *type; /* IN_MESSAGE: its type; IN_MAP: of the entries */
	const ProtobufCFieldDescriptor *field;  /* being read; in a message NULL between fields */
	size_t n;                               /* items before the one being read */
	size_t start;                           /* of the output, in a list: to take back one that is empty */
	struct gap length;                      /* of the message, or of packed numbers */
	struct gap value;                       /* IN_MAP: of the entry; a message from an Any: of the Any's value */
	size_t keys;                            /* IN_MAP: reader.keys before it */
	struct json_token key;                  /* IN_MAP: of the entry being read */
	uint64_t seen[PB_TYPE_FIELDS_MAX / 64];    /* IN_MESSAGE, by the field's index */
	uint64_t set[PB_TYPE_FIELDS_MAX / 64];     /* of these, not null */
};

struct map_key {
	struct json_token token;
	bool is_number;  /* or a bool */
	uint64_t number; /* of a text its hash */
};

struct reader {
	struct json_lex lex;
	const struct pb_limits *limits;
	struct buf *out;
	struct buf scratch;       /* the last string that had escapes, without them */
	struct map_key *keys;     /* of all maps that are open */
	size_t n_keys, keys_cap;
	uint32_t fields;
	struct refusal *refusal;
	unsigned depth;
	struct frame frames[PB_JSON_DEPTH_MAX];
};

/* The next token. */
int reader_next(struct reader *r, struct json_token *ret_token) MUST_CHECK;

/* A fault at this byte of the text, in the field that is being read. */
int reader_refuse_at(struct reader *r, size_t at, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* `expected` is a whole phrase, "a list is expected"; what stands there instead is added. */
int reader_refuse_token(struct reader *r, const struct json_token *t, const char *expected);
int reader_refuse_unknown(struct reader *r, const ProtobufCMessageDescriptor *type, const struct json_token *key);
/* RESOURCE_EXHAUSTED, of -ENOBUFS or -ENOMEM. */
int reader_refuse_limit(struct reader *r, int err);

/* Output. */
int reader_put(struct reader *r, const void *data, size_t n) MUST_CHECK;
int reader_put_varint(struct reader *r, uint64_t v) MUST_CHECK;
/* The tag counts as a field. */
int reader_put_tag(struct reader *r, uint32_t number, enum wire wire) MUST_CHECK;
/* An element of a packed field counts as one too, as in check.c. */
int reader_count_field(struct reader *r) MUST_CHECK;
void gap_open(struct reader *r, struct gap *g);
/* Puts the length there.  Nothing if the gap is not open. */
int gap_close(struct reader *r, struct gap *g) MUST_CHECK;

/* What a string or a number stands for; valid until the next call. */
int reader_text(struct reader *r, const struct json_token *t, const char **ret_text, size_t *ret_len) MUST_CHECK;

/* Values, without their tag; of strings and bytes with their length. */
int reader_put_string(struct reader *r, const struct json_token *t) MUST_CHECK;
/* Any type but messages. */
int reader_put_scalar(struct reader *r, const ProtobufCFieldDescriptor *f, const struct json_token *t) MUST_CHECK;
/* The fields of a Timestamp or a Duration. */
int reader_put_time(struct reader *r, enum pb_special special, const struct json_token *t) MUST_CHECK;
/* The key of a map's entry, with its tag. */
int reader_put_key(struct reader *r, const ProtobufCFieldDescriptor *f, const struct json_token *t,
	struct map_key *ret_key) MUST_CHECK;

#endif
