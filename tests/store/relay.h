/* A TCP relay in a thread that cuts each connection after a random number of bytes, anywhere in a message; or one that loses
 * what one side says until it is told to cut. */
#ifndef TESTS_RELAY_H
#define TESTS_RELAY_H

#include <stdatomic.h>
#include <pthread.h>
#include <stdint.h>

enum relay_loses { RELAY_NOTHING, RELAY_REQUESTS, RELAY_ANSWERS };

struct relay {
	int port;         /* where it listens */
	int target_port;
	int listener;
	pthread_t thread;
	atomic_int stop;
	atomic_int cuts;  /* connections cut so far */
	atomic_int loses; /* enum relay_loses */
	atomic_int lost;  /* RELAY_REQUESTS: reads lost; RELAY_ANSWERS: of Postgres, whole ones, sent after the commit */
	atomic_int cut_all;
	atomic_int max_bytes; /* a connection is cut within so many; 0: never */
	uint64_t seed;
};

void relay_start(struct relay *r, int target_port, int max_bytes);
/* From now on; `lost` is 0 again. */
void relay_lose(struct relay *r, enum relay_loses what);
/* Cuts all connections and loses nothing more. Done when it returns. */
void relay_cut(struct relay *r);
void relay_stop(struct relay *r);

#endif
