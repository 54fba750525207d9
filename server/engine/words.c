/* What is kept as the cause of an attempt that a master took back, for people. */
#include <stdio.h>
#include <string.h>

#include "server/engine/engine_impl.h"

#define WORDS_MAX 320 /* a refusal's text is at most 255 bytes */

char *engine_take_back_words(const struct core_effect *x, const struct core_config *cfg)
{
	char text[WORDS_MAX] = "";
	switch (x->cause) {
	case CORE_CAUSE_WORKER_LOST:
		return NULL;
	case CORE_CAUSE_NOT_LISTED:
		snprintf(text, sizeof(text), "%s", STORE_WORDS_NOT_LISTED);
		break;
	case CORE_CAUSE_REFUSED:
		if (!x->text)
			return NULL;
		snprintf(text, sizeof(text), "refused by the worker: %s", x->text);
		break;
	case CORE_CAUSE_RECALLED:
		snprintf(text, sizeof(text), "not accepted within %g s", (double)cfg->accept_timeout_ns / 1e9);
		break;
	case CORE_CAUSE_NEVER_SENT:
		snprintf(text, sizeof(text), "never sent: its worker's stream had ended");
		break;
	}
	return xstrdup(text);
}
