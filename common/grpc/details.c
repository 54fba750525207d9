/* The few messages of google/rpc, written and read by hand: this folder is below what generated code needs. */
#include "common/grpc/details.h"

#include <string.h>

struct writer {
	uint8_t *data;
	size_t len, cap;
	bool full; /* something had no room */
};

static void put(struct writer *w, const void *data, size_t len)
{
	if (len > w->cap - w->len) {
		w->full = true;
		return;
	}
	if (len)
		memcpy(w->data + w->len, data, len);
	w->len += len;
}

static void put_varint(struct writer *w, uint64_t v)
{
	uint8_t b[10];
	size_t n = 0;
	do {
		b[n] = (uint8_t)(v & 127);
		v >>= 7;
		if (v)
			b[n] |= 128;
		n++;
	} while (v);
	put(w, b, n);
}

static void put_int(struct writer *w, unsigned field, uint64_t v)
{
	if (!v)
		return;
	put_varint(w, field << 3);
	put_varint(w, v);
}

static void put_bytes(struct writer *w, unsigned field, const void *data, size_t len)
{
	put_varint(w, field << 3 | 2);
	put_varint(w, len);
	put(w, data, len);
}

static void put_text(struct writer *w, unsigned field, const char *text) { put_bytes(w, field, text, strlen(text)); }

/* ---- the details ---- */

#define DOMAIN "reins.dev"
#define INNER_CAP 768 /* field 128 + message 512 and heads */

static void bad_request(struct writer *w, const struct refusal *r)
{
	uint8_t buf[INNER_CAP];
	struct writer violation = { .data = buf, .cap = sizeof(buf) };
	put_text(&violation, 1, r->field);
	put_text(&violation, 2, r->message);
	put_bytes(w, 1, violation.data, violation.len);
}

static void retry_info(struct writer *w, const struct refusal *r)
{
	uint8_t buf[32];
	struct writer delay = { .data = buf, .cap = sizeof(buf) };
	put_int(&delay, 1, (uint64_t)r->retry_after_ms / 1000);
	put_int(&delay, 2, (uint64_t)r->retry_after_ms % 1000 * 1000000);
	put_bytes(w, 1, delay.data, delay.len);
}

static void error_info(struct writer *w, const struct refusal *r)
{
	put_text(w, 1, reason_name(r->reason));
	put_text(w, 2, DOMAIN);
	for (size_t i = 0; i < r->n_more; i++) {
		uint8_t buf[INNER_CAP];
		struct writer entry = { .data = buf, .cap = sizeof(buf) };
		put_text(&entry, 1, r->more[i].key);
		put_text(&entry, 2, r->more[i].value);
		put_bytes(w, 3, entry.data, entry.len);
	}
}

static void resource_info(struct writer *w, const struct refusal *r)
{
	put_text(w, 1, r->resource_type);
	put_text(w, 2, r->resource_name);
}

void details_build(struct details *d, const struct refusal *r)
{
	const struct {
		const char *type;
		void (*put)(struct writer *w, const struct refusal *r);
		bool due;
	} all[DETAILS_MAX] = {
		{ "google.rpc.BadRequest", bad_request, r->field[0] != 0 },
		{ "google.rpc.RetryInfo", retry_info, r->retry_after_ms > 0 },
		{ "google.rpc.ErrorInfo", error_info, r->reason != REASON_NONE },
		{ "google.rpc.ResourceInfo", resource_info, r->resource_type != NULL },
	};
	size_t used = 0;
	d->n = 0;
	for (size_t i = 0; i < DETAILS_MAX; i++) {
		struct writer w = { .data = d->bytes + used, .cap = sizeof(d->bytes) - used };
		if (!all[i].due)
			continue;
		all[i].put(&w, r);
		if (w.full)
			continue;
		d->at[d->n++] = (struct detail){ all[i].type, w.data, w.len };
		used += w.len;
	}
}

size_t details_status(const struct refusal *r, uint8_t ret_data[static DETAILS_STATUS_CAP])
{
	static const char prefix[] = "type.googleapis.com/";
	struct writer w = { .data = ret_data, .cap = DETAILS_STATUS_CAP };
	struct details d;
	details_build(&d, r);
	if (!d.n)
		return 0;
	put_int(&w, 1, r->code);
	put_text(&w, 2, r->message);
	for (size_t i = 0; i < d.n; i++) {
		uint8_t url[64], buf[DETAILS_CAP + 96];
		struct writer type = { .data = url, .cap = sizeof(url) }, any = { .data = buf, .cap = sizeof(buf) };
		put(&type, prefix, sizeof(prefix) - 1);
		put(&type, d.at[i].type, strlen(d.at[i].type));
		put_bytes(&any, 1, type.data, type.len);
		put_bytes(&any, 2, d.at[i].data, d.at[i].len);
		struct writer before = w;
		put_bytes(&w, 3, any.data, any.len);
		if (w.full)
			w = before;
	}
	return w.len;
}

/* ---- reading ---- */

struct reader {
	const uint8_t *p, *end;
	uint64_t value;   /* of a varint field */
	struct { const uint8_t *p; size_t len; } bytes;
	unsigned field, type;
};

static bool get_varint(struct reader *r, uint64_t *ret)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 64 && r->p < r->end; shift += 7) {
		uint8_t b = *r->p++;
		v |= (uint64_t)(b & 127) << shift;
		if (!(b & 128)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

/* The next field; false at the end or at bytes that are no message. */
static bool get_field(struct reader *r)
{
	uint64_t tag, n = 0;
	if (r->p == r->end || !get_varint(r, &tag))
		return false;
	r->field = (unsigned)(tag >> 3);
	r->type = tag & 7;
	if (r->type == 0)
		return get_varint(r, &r->value);
	if (r->type == 1 || r->type == 5)
		n = r->type == 1 ? 8 : 4;
	else if (r->type != 2 || !get_varint(r, &n))
		return false;
	if (n > (uint64_t)(r->end - r->p))
		return false;
	r->bytes.p = r->p;
	r->bytes.len = (size_t)n;
	r->p += n;
	return true;
}

static struct reader inside(const struct reader *r)
{
	return (struct reader){ .p = r->bytes.p, .end = r->bytes.p + r->bytes.len };
}

static int64_t duration_ms(struct reader d)
{
	uint64_t s = 0, ns = 0;
	while (get_field(&d)) {
		if (d.type == 0 && d.field == 1)
			s = d.value;
		else if (d.type == 0 && d.field == 2)
			ns = d.value;
	}
	if (s > 86400 * UINT64_C(365) || ns > 999999999)
		return 0;
	return (int64_t)(s * 1000 + (ns + 999999) / 1000000);
}

int64_t details_retry_ms(const uint8_t *data, size_t len)
{
	static const char type[] = "type.googleapis.com/google.rpc.RetryInfo";
	struct reader status = { .p = data, .end = data + len };
	while (len && get_field(&status)) {
		if (status.type != 2 || status.field != 3)
			continue;
		struct reader any = inside(&status), value = { 0 };
		bool is_retry = false;
		while (get_field(&any)) {
			if (any.type == 2 && any.field == 1)
				is_retry = any.bytes.len == sizeof(type) - 1 && memcmp(any.bytes.p, type, sizeof(type) - 1) == 0;
			else if (any.type == 2 && any.field == 2)
				value = inside(&any);
		}
		while (is_retry && value.p && get_field(&value))
			if (value.type == 2 && value.field == 1)
				return duration_ms(inside(&value));
	}
	return 0;
}
