/* An HTTP/2 peer made of bare frames, to say what no library would say, and to see frames in their order. */
#ifndef REINS_TESTS_H2_RAW_H
#define REINS_TESTS_H2_RAW_H

#include <nghttp2/nghttp2.h>

#include "common/base/buf.h"

struct raw {
	struct buf out; /* to be given to the other side */
	nghttp2_hd_deflater *deflater;
};

void raw_init(struct raw *r, bool preface);
void raw_done(struct raw *r);
void raw_frame(struct raw *r, uint8_t type, uint8_t flags, int32_t id, const void *payload, size_t len);
/* name, value, name, value, …, NULL */
void raw_headers(struct raw *r, int32_t id, int flags, ...);
void raw_request(struct raw *r, int32_t id, uint8_t flags, const char *path);
void raw_window_update(struct raw *r, int32_t id, uint32_t n);
void raw_rst(struct raw *r, int32_t id, uint32_t code);
void raw_setting(struct raw *r, uint16_t id, uint32_t value);
void raw_data(struct raw *r, int32_t id, uint8_t flags, size_t len);

/* Walks over frames received. False at the end. */
struct raw_seen {
	size_t at;
	uint8_t type, flags;
	int32_t id;
	const uint8_t *payload;
	size_t len;
};
bool raw_next(const struct buf *in, struct raw_seen *f);
uint32_t raw_u32(const uint8_t *p);

#endif
