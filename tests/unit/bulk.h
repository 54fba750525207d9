/* Two ends that send each other many bytes of a known pattern, in pieces of odd sizes, reading in pieces too
 * and not always to the end: the way to find a lost wake-up or a byte out of place. */
#ifndef REINS_TEST_BULK_H
#define REINS_TEST_BULK_H

#include "common/base/rng.h"
#include "common/stream/stream.h"

struct bulk {
	struct stream *s;
	struct rng rng;
	uint64_t seed;      /* of the pattern that we send; the other end's is expected_seed */
	uint64_t expected_seed;
	size_t to_send;
	size_t sent, received;
	int partial_writes; /* times that less was taken than offered */
	bool opened, ended; /* the other's end was read */
	int err;            /* first error, from a call or on_broken */
	char text[256];
	bool wrong;         /* a byte was not what it should be */
	bool mute;          /* reads nothing and sends nothing by itself */
	void (*on_opened)(struct bulk *b);
};

extern const struct stream_events bulk_events;

void bulk_init(struct bulk *b, uint64_t seed, uint64_t expected_seed, size_t to_send);
/* For an end that is open already. */
void bulk_start(struct bulk *b, struct stream *s);
/* All sent and the other's end met, or an error. */
bool bulk_done(const struct bulk *b);

/* A listener on 127.0.0.1 that gives what it accepts to `next`, and then to nobody. */
struct bulk_server {
	struct listener *l;
	struct loop *loop;
	struct sockaddr_storage addr;
	socklen_t addr_len;
	struct bulk *next;
	int accepted, refused;
	char refused_text[256];
};

void bulk_server_start(struct bulk_server *v, struct loop *loop, struct listener_config cfg);
void bulk_server_connect(struct bulk_server *v, struct bulk *b, struct tls_context *tls, const char *name);

#endif
