/* What a worker says of an attempt, in the words and numbers that are stored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pb/utf8.h"
#include "server/rpc/session.h"

/* Of all names of one attempt: 64 GPUs by UUID have room. */
#define DEVICES_BYTES_MAX 4096

enum store_outcome session_outcome(Reins__V1__Outcome__Kind kind)
{
	switch (kind) {
	case REINS__V1__OUTCOME__KIND__SUCCEEDED: return STORE_SUCCEEDED;
	case REINS__V1__OUTCOME__KIND__FAILED: return STORE_PROGRAM_FAILED;
	case REINS__V1__OUTCOME__KIND__LAUNCH_FAILED: return STORE_LAUNCH_FAILED;
	case REINS__V1__OUTCOME__KIND__STOPPED: return STORE_STOPPED;
	case REINS__V1__OUTCOME__KIND__TIMED_OUT: return STORE_TIMED_OUT;
	case REINS__V1__OUTCOME__KIND__LOST: return STORE_WORKER_LOST;
	default: return 0;
	}
}

const char *session_stop_words(const Reins__V1__Outcome *m)
{
	if (m->kind != REINS__V1__OUTCOME__KIND__STOPPED)
		return NULL;
	switch (m->stop_reason) {
	case REINS__V1__STOP__REASON__CANCELLED: return "cancelled";
	case REINS__V1__STOP__REASON__FENCED: return "stopped as no longer its worker's";
	case REINS__V1__STOP__REASON__RECALLED: return "recalled before it was accepted";
	case REINS__V1__STOP__REASON__DRAINED: return "drained by worker";
	case REINS__V1__STOP__REASON__LEASE_ENDED: return "its lease ended";
	case REINS__V1__STOP__REASON__LOCAL: return "stopped at the worker's machine";
	default: return NULL;
	}
}

static const char *refusal_cause(Reins__V1__RefusedAttempt__Cause cause)
{
	switch (cause) {
	case REINS__V1__REFUSED_ATTEMPT__CAUSE__BUSY: return "busy";
	case REINS__V1__REFUSED_ATTEMPT__CAUSE__DRAINING: return "draining";
	case REINS__V1__REFUSED_ATTEMPT__CAUSE__PAUSED: return "paused";
	case REINS__V1__REFUSED_ATTEMPT__CAUSE__UNSUPPORTED: return "can't run such tasks";
	case REINS__V1__REFUSED_ATTEMPT__CAUSE__STOPPED: return "stopped before it began";
	case REINS__V1__REFUSED_ATTEMPT__CAUSE__HELD: return "held already";
	default: return "";
	}
}

void session_refusal_words(const Reins__V1__RefusedAttempt *m, char ret[static SESSION_REFUSAL_MAX + 1])
{
	char all[SESSION_REFUSAL_MAX + 64];
	bool changed;
	const char *cause = refusal_cause(m->cause);
	int n = snprintf(all, sizeof(all), "%s%s%s", cause, *cause && *m->text ? ": " : "", m->text);
	/* Cut at a character. */
	utf8_make_valid((const uint8_t *)all, min_sz((size_t)n, sizeof(all) - 1), ret, SESSION_REFUSAL_MAX + 1, &changed);
}

static bool is_name(const char *s)
{
	size_t n = strlen(s);
	for (const char *p = s; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			return false;
	return n > 0 && n <= 255;
}

char *session_devices(char *const *names, size_t n)
{
	char text[DEVICES_BYTES_MAX + 1] = "";
	size_t at = 0;
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(names[i]);
		if (!is_name(names[i]) || at + 1 + len > DEVICES_BYTES_MAX)
			continue;
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", at ? " " : "", names[i]);
	}
	return at ? xstrdup(text) : NULL;
}
