#include "tests/unit/grpc_peer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void on_ready(void *arg, int events)
{
	struct peer *p = arg;
	uint8_t bytes[4096];
	ssize_t n;
	while ((n = stream_read(p->s, bytes, sizeof(bytes))) > 0)
		assert_int_equal(buf_add(&p->got, bytes, (size_t)n), 0);
	if (n != -EAGAIN) {
		p->ended = true;
		stream_want(p->s, 0);
	}
}

void peer_init(struct peer *p, const struct grpc_limits *l, bool preface)
{
	static const struct stream_events events = { .on_ready = on_ready };
	static const struct stream_events none;
	struct stream *server_end;
	memset(p, 0, sizeof(*p));
	rig_init(&p->rig, l, NULL, false);
	assert_int_equal(stream_pair(p->rig.loop, 65536, &events, p, &none, NULL, &p->s, &server_end), 0);
	assert_int_equal(grpc_server_adopt(p->rig.server, server_end), 0);
	raw_init(&p->raw, preface);
	buf_init(&p->got, 1 << 24);
	stream_want(p->s, LOOP_READ);
}

void peer_done(struct peer *p)
{
	stream_close(p->s);
	raw_done(&p->raw);
	buf_done(&p->got);
	rig_done(&p->rig);
}

/* Gives the server what was said, and it some turns to answer. */
void talk(struct peer *p)
{
	for (int i = 0; i < 6 || (buf_len(&p->raw.out) && i < 10000); i++) {
		if (buf_len(&p->raw.out)) {
			struct iovec iov = { (void *)(uintptr_t)buf_head(&p->raw.out), buf_len(&p->raw.out) };
			ssize_t n = stream_writev(p->s, &iov, 1);
			if (n < 0 && n != -EAGAIN)
				buf_clear(&p->raw.out);
			else if (n > 0)
				buf_consume(&p->raw.out, (size_t)n);
		}
		loop_turn(p->rig.loop, false);
	}
}

static void keep(char *to, size_t cap, const nghttp2_nv *nv) { snprintf(to, cap, "%.*s", (int)nv->valuelen, nv->value); }

static void keep_field(struct answer *a, const nghttp2_nv *nv)
{
	static const struct {
		const char *name;
		size_t at, cap;
	} fields[] = {
		{ ":status", offsetof(struct answer, http), 8 },
		{ "grpc-status", offsetof(struct answer, status), 8 },
		{ "content-type", offsetof(struct answer, type), 64 },
		{ "grpc-message", offsetof(struct answer, message), sizeof(a->message) },
		{ "grpc-accept-encoding", offsetof(struct answer, accept), 64 },
		{ "server", offsetof(struct answer, server), 32 },
		{ "grpc-status-details-bin", offsetof(struct answer, details), sizeof(a->details) },
		{ "grpc-retry-pushback-ms", offsetof(struct answer, pushback), 16 },
		{ "grpc-encoding", offsetof(struct answer, encoding), 16 },
	};
	a->list += nv->namelen + nv->valuelen + 32;
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		if (nv->namelen == strlen(fields[i].name) && memcmp(nv->name, fields[i].name, nv->namelen) == 0) {
			keep((char *)a + fields[i].at, fields[i].cap, nv);
			return;
		}
	snprintf(a->odd, sizeof(a->odd), "%.*s", (int)nv->namelen, nv->name);
}

static void inflate(nghttp2_hd_inflater *inflater, const struct raw_seen *f, struct answer *a)
{
	const uint8_t *p = f->payload;
	size_t left = f->len;
	for (;;) {
		nghttp2_nv nv;
		int flags = 0;
		ssize_t n = nghttp2_hd_inflate_hd2(inflater, &nv, &flags, p, left, 1);
		assert_true(n >= 0);
		p += n;
		left -= (size_t)n;
		if (a && (flags & NGHTTP2_HD_INFLATE_EMIT))
			keep_field(a, &nv);
		if (flags & NGHTTP2_HD_INFLATE_FINAL)
			break;
	}
	nghttp2_hd_inflate_end_headers(inflater);
}

struct answer answer(struct peer *p, int32_t id)
{
	struct answer a = { 0 };
	struct raw_seen f = { 0 };
	nghttp2_hd_inflater *inflater;
	assert_int_equal(nghttp2_hd_inflate_new(&inflater), 0);
	while (raw_next(&p->got, &f)) {
		bool mine = f.id == id;
		if (f.type == NGHTTP2_HEADERS && mine)
			a.list = 0;
		if (f.type == NGHTTP2_HEADERS)
			inflate(inflater, &f, mine ? &a : NULL);
		if (f.type == NGHTTP2_HEADERS && mine && a.blocks == 0)
			a.status_first = a.status[0] != 0;
		if (!mine)
			continue;
		assert_false(a.reset); /* nothing after it */
		if (f.type == NGHTTP2_RST_STREAM) {
			a.reset = true;
			a.reset_code = raw_u32(f.payload);
			continue;
		}
		if (f.type == NGHTTP2_HEADERS || f.type == NGHTTP2_DATA)
			assert_false(a.ended);
		a.blocks += f.type == NGHTTP2_HEADERS;
		a.data += f.type == NGHTTP2_DATA ? f.len : 0;
		a.ended |= (f.type == NGHTTP2_HEADERS || f.type == NGHTTP2_DATA) && (f.flags & NGHTTP2_FLAG_END_STREAM);
	}
	nghttp2_hd_inflate_del(inflater);
	return a;
}

void send_bytes(struct peer *p, int32_t id, bool end, const void *data, size_t len)
{
	raw_frame(&p->raw, NGHTTP2_DATA, end ? NGHTTP2_FLAG_END_STREAM : 0, id, data, len);
}
