/* The commands of one connection, as bytes and as a queue of what each was: put, sent, answered in order.
 * Bytes stay until their command is answered, not only until they are sent: so a script that Redis has
 * forgotten is sent again from here, with its body, and one limit bounds both. No I/O. */
#ifndef REINS_LEASE_REDIS_WIRE_H
#define REINS_LEASE_REDIS_WIRE_H

#include "common/base/buf.h"
#include "server/lease/redis/scripts.h"

#define REDIS_SHA_LEN 40

struct redis_op {
	uint8_t kind;         /* the owner's word */
	uint8_t script;       /* SCRIPTS: a plain command */
	bool by_body;         /* sent as EVAL */
	uint32_t len;         /* bytes of the command */
	uint32_t tail;        /* offset, within these, of what follows a script's name or body */
	uint32_t argc;        /* arguments in the tail */
	uint64_t cookie;
	int64_t sent_mono_ns; /* 0: not flushed yet */
};

struct redis_wire {
	struct buf bytes;
	size_t sent;          /* of bytes, from the front */
	struct redis_op *ops; /* ring of cap, a power of 2 */
	size_t first, n_ops, cap, max_ops;
	size_t unstamped;     /* at the end of the ring */
	struct redis_op cur;  /* between begin and end */
	size_t cur_start;
	bool failed;
	char sha[SCRIPTS][REDIS_SHA_LEN + 1]; /* as Redis named them */
};

void redis_wire_init(struct redis_wire *w, size_t max_ops, size_t max_bytes);
void redis_wire_done(struct redis_wire *w);
/* Forgets all commands. */
void redis_wire_clear(struct redis_wire *w);

/* A command is begun with the number of arguments that follow, gets them one by one, and is ended.  With
 * SCRIPTS they are the whole command, name first; with a script: number of keys, keys, values. */
void redis_wire_begin(struct redis_wire *w, uint8_t kind, uint64_t cookie, enum redis_script script, uint32_t argc);
void redis_wire_put(struct redis_wire *w, const void *data, size_t len);
void redis_wire_str(struct redis_wire *w, const char *s);
void redis_wire_i64(struct redis_wire *w, int64_t v);
/* -ENOBUFS over a limit or without memory: the command is taken back whole. */
int redis_wire_end(struct redis_wire *w) MUST_CHECK;

/* The oldest command, NULL when there is none. */
const struct redis_op *redis_wire_head(const struct redis_wire *w);
/* Its reply has come. */
void redis_wire_pop(struct redis_wire *w);
/* Puts the oldest command, a script, at the end once more, as EVAL; it is still the oldest afterwards. */
int redis_wire_again(struct redis_wire *w) MUST_CHECK;
/* Notes the time for what was put since the last call. */
void redis_wire_stamp(struct redis_wire *w, int64_t now_mono_ns);

#endif
