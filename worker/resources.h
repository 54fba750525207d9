/* What this worker has to give, and what its attempts hold of it: cpu, memory, GPUs, and what else can be counted.
 *
 * The master counts the same; the worker's own count is what protects the machine when the two differ. */
#ifndef REINS_WORKER_RESOURCES_H
#define REINS_WORKER_RESOURCES_H

#include "common/base/base.h"
#include "common/settings/settings.h"
#include "reins/v1/task.pb-c.h"
#include "worker/devices.h"

#define RESOURCES_CUSTOM_MAX 16

struct resources {
	int64_t cpu_millis, memory_bytes; /* memory 0: there is no way to enforce a limit, so none is taken on */
	struct devices *devices;          /* owned */
	size_t n_custom;
	struct custom {
		char *name;
		int64_t total, used;
	} custom[RESOURCES_CUSTOM_MAX];
	int64_t cpu_used, memory_used;
};

/* Of one attempt. Zeroed memory holds nothing. */
struct holding {
	int64_t cpu_millis, memory_bytes;
	size_t n_gpus;
	uint16_t *gpus;    /* for devices_name */
	int64_t *custom;   /* one for each of resources.custom; NULL: none of any */
};

/* `custom`: "NAME=COUNT" each. Takes the devices over when it succeeds. -1 with a sentence. */
int resources_init(struct resources *r, int64_t cpu_millis, int64_t memory_bytes, const struct setting_list *custom,
		   struct devices *devices, char *ret_err, size_t err_cap) MUST_CHECK;
/* Whether these are values of --resources at all. -1 with a sentence. */
int resources_check(const struct setting_list *custom, char *ret_err, size_t err_cap) MUST_CHECK;
void resources_done(struct resources *r);

/* NULL: taken. Else why not, in words that live for ever; *ret_busy: it would be possible at another time. */
const char *resources_take(struct resources *r, const Reins__V1__Resources *need, bool *ret_busy, struct holding *ret) MUST_CHECK;
/* When the attempt's tree is empty. Holds nothing afterwards; may be called again. */
void resources_give_back(struct resources *r, struct holding *h);

/* What is held beside GPUs, for the attempt's file: an array of *ret_n strings, for resources_words_free. */
char **resources_words(const struct resources *r, const struct holding *h, size_t *ret_n);
void resources_words_free(char **words, size_t n);
/* After a restart of the agent: what the file says is held (even if the worker has less by now).  What it names and this
 * worker no longer has is left out: false then. */
bool resources_adopt(struct resources *r, char *const *words, size_t n, char *const *devices, size_t n_devices,
		     struct holding *ret);

/* The names of its GPUs: an array to be freed, of names that live as long as the resources; NULL without GPUs. */
char **resources_devices(const struct resources *r, const struct holding *h);
/* CUDA_VISIBLE_DEVICES and its like: "2,3"; malloc'ed, "" without GPUs. */
char *resources_visible(const struct resources *r, const struct holding *h);

#endif
