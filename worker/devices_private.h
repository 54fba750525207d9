/* Between devices.c (who has which) and devices_find.c (which there are). */
#ifndef REINS_WORKER_DEVICES_PRIVATE_H
#define REINS_WORKER_DEVICES_PRIVATE_H

#include "worker/devices.h"

struct device_list {
	size_t n;
	struct found_device {
		char index[16];
		char uuid[DEVICE_NAME_MAX]; /* "": not told */
	} at[DEVICES_MAX];
};

/* Runs nvidia-smi. 1: it answered; 0: there is none; -1 with a sentence: it failed, or its answer is no list. */
int devices_ask_smi(const struct devices_config *cfg, char *ret_why, size_t cap, struct device_list *ret) MUST_CHECK;
/* nvidia0, nvidia1, … of the directory. */
void devices_look(const char *dir, struct device_list *ret);
/* An answer of nvidia-smi: lines of "index, uuid". False: it is none. */
bool devices_parse_smi(const char *text, struct device_list *ret);

#endif
