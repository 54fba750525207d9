#include "tests/unit/h2_raw.h"

#include <stdarg.h>
#include <string.h>

static void add(struct raw *r, const void *data, size_t len)
{
	if (buf_add(&r->out, data, len) < 0)
		abort();
}

void raw_init(struct raw *r, bool preface)
{
	buf_init(&r->out, 64 * 1024 * 1024);
	if (nghttp2_hd_deflate_new(&r->deflater, 4096) != 0)
		abort();
	if (!preface)
		return;
	add(r, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
	raw_frame(r, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
}

void raw_done(struct raw *r)
{
	nghttp2_hd_deflate_del(r->deflater);
	buf_done(&r->out);
}

static void put_u32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

uint32_t raw_u32(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

void raw_frame(struct raw *r, uint8_t type, uint8_t flags, int32_t id, const void *payload, size_t len)
{
	uint8_t head[9] = { (uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, type, flags };
	put_u32(head + 5, (uint32_t)id);
	add(r, head, sizeof(head));
	if (len)
		add(r, payload, len);
}

static void send_fields(struct raw *r, int32_t id, uint8_t flags, nghttp2_nv *nv, size_t n)
{
	uint8_t block[60000];
	ssize_t len = nghttp2_hd_deflate_hd(r->deflater, block, sizeof(block), nv, n);
	if (len < 0)
		abort();
	raw_frame(r, NGHTTP2_HEADERS, flags | NGHTTP2_FLAG_END_HEADERS, id, block, (size_t)len);
}

void raw_headers(struct raw *r, int32_t id, int flags, ...)
{
	nghttp2_nv nv[200];
	size_t n = 0;
	va_list ap;
	va_start(ap, flags);
	for (char *name; (name = va_arg(ap, char *));) {
		char *value = va_arg(ap, char *);
		nv[n++] = (nghttp2_nv){ (uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value), 0 };
	}
	va_end(ap);
	send_fields(r, id, (uint8_t)flags, nv, n);
}

void raw_request(struct raw *r, int32_t id, uint8_t flags, const char *path)
{
	raw_headers(r, id, flags, ":method", "POST", ":scheme", "http", ":path", path, ":authority", "a", "te", "trailers",
		    "content-type", "application/grpc", NULL);
}

void raw_window_update(struct raw *r, int32_t id, uint32_t n)
{
	uint8_t p[4];
	put_u32(p, n);
	raw_frame(r, NGHTTP2_WINDOW_UPDATE, 0, id, p, sizeof(p));
}

void raw_rst(struct raw *r, int32_t id, uint32_t code)
{
	uint8_t p[4];
	put_u32(p, code);
	raw_frame(r, NGHTTP2_RST_STREAM, 0, id, p, sizeof(p));
}

void raw_setting(struct raw *r, uint16_t id, uint32_t value)
{
	uint8_t p[6] = { (uint8_t)(id >> 8), (uint8_t)id };
	put_u32(p + 2, value);
	raw_frame(r, NGHTTP2_SETTINGS, 0, 0, p, sizeof(p));
}

void raw_data(struct raw *r, int32_t id, uint8_t flags, size_t len)
{
	static const uint8_t zeros[16384];
	raw_frame(r, NGHTTP2_DATA, flags, id, zeros, len);
}

bool raw_next(const struct buf *in, struct raw_seen *f)
{
	if (buf_len(in) < f->at + 9)
		return false;
	const uint8_t *p = buf_head(in) + f->at;
	f->len = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
	f->type = p[3];
	f->flags = p[4];
	f->id = (int32_t)(raw_u32(p + 5) & 0x7fffffff);
	f->payload = p + 9;
	f->at += 9 + f->len;
	return f->at <= buf_len(in);
}
