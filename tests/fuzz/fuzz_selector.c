/* Label selectors: what is understood is within its bounds, and can be asked. */
#include <stdlib.h>
#include <string.h>

#include "server/rpc/selector.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char labels[] = "\xff" "a\xfe" "b\xff" "c\xfe\xff";
	char fault[40] = "";
	struct label_selector s = { 0 };
	char *text = malloc(size + 1);
	memcpy(text, data, size);
	text[size] = '\0';
	int rc = selector_parse(text, &s, fault, sizeof(fault));
	if (rc ? !fault[0] : s.n_wants > SELECTOR_WANTS_MAX)
		abort();
	for (size_t i = 0; rc == 0 && i < s.n_wants; i++)
		if (s.wants[i].n == 0 || (size_t)s.wants[i].first + s.wants[i].n > s.n_needles)
			abort();
	if (rc == 0)
		(void)label_selector_matches(&s, labels, sizeof(labels) - 1);
	label_selector_done(&s);
	free(text);
	return 0;
}
