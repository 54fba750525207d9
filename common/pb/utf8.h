/* Text that every client can read: UTF-8 (RFC 3629) without U+0000. */
#ifndef REINS_UTF8_H
#define REINS_UTF8_H

#include "common/base/base.h"

/* No surrogates, nothing overlong, nothing above U+10FFFF, no NUL.  `s` need not end with a NUL. */
bool utf8_valid(const void *s, size_t len);

/* Makes valid text of any bytes: each byte that is no part of a character, and each NUL, becomes U+FFFD.
 * Writes at most cap - 1 bytes and a NUL (cap > 0), cut at a character.  Returns the bytes written without
 * the NUL.  *ret_changed (may be NULL): the text is not the whole input as it was. */
size_t utf8_make_valid(const void *s, size_t len, char *ret_text, size_t cap, bool *ret_changed);

/* The length of the character at s, 0 if there is no valid one (NUL counts as none). `len` > 0. */
size_t utf8_char_len(const uint8_t *s, size_t len);

#endif
