/* A TCP relay in a thread that cuts each connection after a random number of bytes, anywhere in a message. */
#ifndef TESTS_RELAY_H
#define TESTS_RELAY_H

#include <stdatomic.h>
#include <pthread.h>
#include <stdint.h>

struct relay {
	int port;         /* where it listens */
	int target_port;
	int listener;
	pthread_t thread;
	atomic_int stop;
	atomic_int cuts;  /* connections cut so far */
	atomic_int max_bytes; /* a connection is cut within so many; 0: never */
	uint64_t seed;
};

void relay_start(struct relay *r, int target_port, int max_bytes);
void relay_stop(struct relay *r);

#endif
