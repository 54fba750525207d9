/* The GPUs of this worker: which there are, and which attempt has which.
 *
 * A GPU has one name here: the word that goes into CUDA_VISIBLE_DEVICES (an index, a UUID, a MIG id).  Found are they by
 * `nvidia-smi`, else as /dev/nvidiaN, or they are given; of these only those count that a CUDA_VISIBLE_DEVICES around
 * the worker lets through, in its order and by its words. */
#ifndef REINS_WORKER_DEVICES_H
#define REINS_WORKER_DEVICES_H

#include "common/base/base.h"

#define DEVICES_MAX 1024
#define DEVICE_NAME_MAX 128 /* NUL included */

struct devices;

struct devices_config {
	const char *gpus;        /* "auto"; "none"; a count; or a list of indexes and UUIDs ("0,2", "2,") */
	const char *outer;       /* the worker's own CUDA_VISIBLE_DEVICES; NULL: not set */
	const char *search_path; /* for nvidia-smi */
	const char *device_dir;  /* where nvidia0 … are, "/dev" */
	int64_t limit_ns;        /* for nvidia-smi */
};

/* Whether it is a value of --gpus at all. -1 with a sentence. */
int devices_check(const char *gpus, char *ret_err, size_t err_cap) MUST_CHECK;
/* Blocks, for nvidia-smi. -1 with a sentence when what was asked for contradicts itself; with "auto" there is none. */
int devices_new(const struct devices_config *cfg, char *ret_err, size_t err_cap, struct devices **ret) MUST_CHECK;
void devices_free(struct devices *d); /* NULL-safe */

size_t devices_count(const struct devices *d);
size_t devices_free_count(const struct devices *d);
const char *devices_name(const struct devices *d, size_t i);
/* One line for the log: what was found and how, or what was wrong; "" when nothing was looked for. */
const char *devices_describe(const struct devices *d);
/* CUDA counts its indexes in another order than nvidia-smi unless it is told not to; true: tell it
 * (CUDA_DEVICE_ORDER=PCI_BUS_ID), since the names are nvidia-smi's. */
bool devices_in_bus_order(const struct devices *d);

/* The lowest n that are free, as indexes of devices_name. -EBUSY: there are not so many; nothing is taken. */
int devices_take(struct devices *d, size_t n, uint16_t *ret_indexes) MUST_CHECK;
void devices_give_back(struct devices *d, const uint16_t *indexes, size_t n);
/* After a restart: what an attempt has had so far. A name that is not (any more) one of ours is -ENOENT, one that is
 * taken -EBUSY. */
int devices_adopt(struct devices *d, const char *name, uint16_t *ret_index) MUST_CHECK;

#endif
