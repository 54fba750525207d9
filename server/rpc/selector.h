/* Label selectors, as users of Kubernetes know them: conditions separated by commas, all of which must hold.
 *
 *   a=b  a==b           the label a is there and is b
 *   a!=b                it is not b, or not there
 *   a in (b,c)          it is there and one of these
 *   a notin (b,c)       it is none of these, or not there
 *   a                   it is there
 *   !a                  it is not there
 *
 * Blanks may stand between the parts.  Values are words without blanks and ,()=!" or stand in double quotes, where \" and \\
 * stand for these; an empty value (a=, a in (b,)) is the empty text. */
#ifndef REINS_RPC_SELECTOR_H
#define REINS_RPC_SELECTOR_H

#include "server/store/labels.h"

#define SELECTOR_BYTES_MAX 4096
#define SELECTOR_WANTS_MAX 32

/* Adds the conditions of `text` to *s.  "" has none.  0, or -1 with the fault in words, where it stands, and what is wanted; *s
 * is the caller's to free then too. */
int selector_parse(const char *text, struct label_selector *s, char *ret_fault, size_t cap) MUST_CHECK;

#endif
