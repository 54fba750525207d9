/* Owns the stream objects: what each queued to send, what it received, and their reuse. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/h2/h2_impl.h"

/* Objects kept for reuse per connection, and the memory one may keep in a buffer. */
#define SPARE_MAX 128
#define SPARE_BUF 4096
/* The real bounds are the flow-control window plus what the owner retains, and h2_queued. */
#define BYTES_MAX (SIZE_MAX / 4)
/* Fields of one block that we send. */
#define SEND_FIELDS_MAX 32

void h2_news(struct h2_stream *s, unsigned news)
{
	if (!s->news) /* h2_next cleared it, so it is on no list */
		list_push_back(&s->h->ready, &s->ready);
	s->news |= news;
}

static void buf_recycle(struct buf *b, size_t max)
{
	if (b->cap > SPARE_BUF)
		buf_done(b);
	buf_clear(b);
	b->max = max;
}

static void stream_free(struct h2_stream *s)
{
	buf_done(&s->headers);
	buf_done(&s->trailers);
	buf_done(&s->out_trailers);
	buf_done(&s->in);
	buf_done(&s->out);
	free(s);
}

struct h2_stream *h2_stream_new(struct h2 *h, int32_t id)
{
	struct list *it = list_pop_front(&h->spare);
	struct h2_stream *s;
	if (it) {
		h->n_spare--;
		s = container_of(it, struct h2_stream, node);
		struct h2_stream keep = *s;
		memset(s, 0, sizeof(*s));
		s->headers = keep.headers;
		s->trailers = keep.trailers;
		s->out_trailers = keep.out_trailers;
		s->in = keep.in;
		s->out = keep.out;
	} else {
		s = calloc(1, sizeof(*s));
		if (!s)
			return NULL;
		buf_init(&s->headers, h->limits.max_header_list);
		buf_init(&s->trailers, h->limits.max_header_list);
		buf_init(&s->out_trailers, BYTES_MAX);
		buf_init(&s->in, BYTES_MAX);
		buf_init(&s->out, BYTES_MAX);
	}
	s->h = h;
	s->id = id;
	s->opened_mono_ns = h->now;
	list_init(&s->ready);
	list_push_back(&h->streams, &s->node);
	h->n_streams++;
	h->n_open++;
	return s;
}

static void drop_output(struct h2_stream *s)
{
	s->h->out_total -= buf_len(&s->out);
	buf_clear(&s->out);
}

void h2_stream_close(struct h2_stream *s, uint32_t code)
{
	if (s->closed)
		return;
	s->closed = true;
	s->close_code = code;
	if (code == H2_REFUSED_STREAM && s->h->role == H2_CLIENT)
		s->unprocessed = true;
	s->h->n_open--;
	drop_output(s);
	h2_news(s, H2_NEWS_CLOSED);
}

void h2_release(struct h2_stream *s)
{
	struct h2 *h = s->h;
	assert(s->closed);
	h->in_total -= buf_len(&s->in);
	h2_credit_connection(h);
	if (s->news)
		list_remove(&s->ready);
	list_remove(&s->node);
	h->n_streams--;
	if (h->n_spare >= SPARE_MAX) {
		stream_free(s);
		return;
	}
	buf_recycle(&s->headers, s->headers.max);
	buf_recycle(&s->trailers, s->trailers.max);
	buf_recycle(&s->out_trailers, BYTES_MAX);
	buf_recycle(&s->in, BYTES_MAX);
	buf_recycle(&s->out, BYTES_MAX);
	list_push_front(&h->spare, &s->node);
	h->n_spare++;
}

/* Kept where a checker for leaks finds them. */
static struct list kept = { &kept, &kept };
static int64_t abandoned;

int64_t h2_abandoned(void) { return abandoned; }

void h2_free(struct h2 *h)
{
	if (!h)
		return;
	h->dead = true; /* the callbacks of session_del */
	/* Without memory for its queue of DATA nghttp2 1.52 frees the item that it could not queue, and leaves it at its stream,
	 * from where session_del frees it again: then the session is left as it is. */
	if (!h->broken)
		nghttp2_session_del(h->session);
	struct list *it;
	while ((it = list_pop_front(&h->streams)))
		stream_free(container_of(it, struct h2_stream, node));
	while ((it = list_pop_front(&h->spare)))
		stream_free(container_of(it, struct h2_stream, node));
	if (!h->broken) {
		free(h);
		return;
	}
	abandoned++;
	list_push_back(&kept, &h->ready);
}

/* ---- sending ---- */

static size_t to_nv(const struct h2_header *hdrs, size_t n, nghttp2_nv *nv)
{
	assert(n <= SEND_FIELDS_MAX);
	for (size_t i = 0; i < n; i++) {
		nv[i] = (nghttp2_nv){
			.name = (uint8_t *)(uintptr_t)hdrs[i].name,
			.namelen = strlen(hdrs[i].name),
			.value = (uint8_t *)(uintptr_t)hdrs[i].value,
			.valuelen = hdrs[i].value_len,
			.flags = hdrs[i].flags & (H2_HEADER_SECRET | H2_HEADER_ONCE) ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE,
		};
	}
	return n;
}

/* The trailers were kept as records; they go out once the queue is empty. */
static int submit_trailers(struct h2_stream *s)
{
	nghttp2_nv nv[SEND_FIELDS_MAX];
	size_t n = 0;
	uint8_t *p = s->out_trailers.data + s->out_trailers.start;
	for (size_t left = buf_len(&s->out_trailers); left; n++) {
		uint16_t lens[2];
		memcpy(lens, p, sizeof(lens));
		size_t size = sizeof(lens) + lens[0] + lens[1] + 2u;
		uint8_t *name = p + sizeof(lens);
		nv[n] = (nghttp2_nv){ .name = name, .namelen = lens[0], .value = name + lens[0] + 1, .valuelen = lens[1] };
		/* "grpc-status: 0" is worth a place in the peer's table, texts and details are not. */
		if (lens[1] > 2)
			nv[n].flags = NGHTTP2_NV_FLAG_NO_INDEX;
		p += size;
		left -= size;
	}
	return nghttp2_submit_trailer(s->h->session, s->id, nv, n);
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *data, size_t len, uint32_t *flags,
		       nghttp2_data_source *source, void *arg)
{
	struct h2 *h = arg;
	if (h->dead)
		return NGHTTP2_ERR_DEFERRED; /* the object may be gone */
	struct h2_stream *s = source->ptr;
	size_t n = min_sz(len, buf_len(&s->out));
	if (!n && !s->out_ending)
		return NGHTTP2_ERR_DEFERRED;
	if (n) {
		memcpy(data, buf_head(&s->out), n);
		buf_consume(&s->out, n);
		buf_trim(&s->out);
		h->out_total -= n;
	}
	if (s->notify && buf_len(&s->out) <= s->low) {
		s->notify = false;
		h2_news(s, H2_NEWS_DRAINED);
	}
	if (s->out_ending && !buf_len(&s->out)) {
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		if (buf_len(&s->out_trailers)) {
			if (submit_trailers(s) != 0)
				return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
			*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
		}
	}
	return (ssize_t)n;
}

int h2_begin(struct h2 *h, const struct h2_header *hdrs, size_t n, bool end, void *user, struct h2_stream **ret)
{
	assert(h->role == H2_CLIENT);
	if (h->dead || h->draining || !nghttp2_session_check_request_allowed(h->session))
		return -ENOTCONN;
	if (h->n_streams >= h->limits.max_streams)
		return -EAGAIN;
	struct h2_stream *s = h2_stream_new(h, 0);
	if (!s)
		return -ENOMEM;
	nghttp2_nv nv[SEND_FIELDS_MAX];
	nghttp2_data_provider provider = { .source.ptr = s, .read_callback = on_read };
	int32_t id = nghttp2_submit_request(h->session, NULL, nv, to_nv(hdrs, n, nv), end ? NULL : &provider, s);
	if (id < 0) {
		s->closed = true;
		h->n_open--;
		h2_release(s);
		return id == NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE ? -ENOTCONN : -ENOMEM;
	}
	s->id = id;
	s->out_begun = true;
	s->out_ending = end;
	s->user = user;
	*ret = s;
	return 0;
}

void h2_respond(struct h2_stream *s, const struct h2_header *hdrs, size_t n, bool end)
{
	struct h2 *h = s->h;
	if (s->closed || h->dead || s->out_begun || s->reset)
		return;
	nghttp2_nv nv[SEND_FIELDS_MAX];
	nghttp2_data_provider provider = { .source.ptr = s, .read_callback = on_read };
	s->answered = true;
	s->out_begun = true;
	s->out_ending = end;
	if (nghttp2_submit_response(h->session, s->id, nv, to_nv(hdrs, n, nv), end ? NULL : &provider) != 0)
		h2_reset(s, H2_INTERNAL_ERROR);
}

uint8_t *h2_write_reserve(struct h2_stream *s, size_t n)
{
	if (s->closed || s->h->dead || s->out_ending)
		return NULL;
	return buf_reserve(&s->out, n);
}

static void resume(struct h2_stream *s)
{
	/* Says INVALID_ARGUMENT when the stream was not waiting for us. */
	(void)nghttp2_session_resume_data(s->h->session, s->id);
}

void h2_write_commit(struct h2_stream *s, size_t n)
{
	bool was_empty = buf_len(&s->out) == 0;
	buf_commit(&s->out, n);
	s->h->out_total += n;
	if (was_empty)
		resume(s);
}

size_t h2_queued(const struct h2_stream *s) { return buf_len(&s->out); }

void h2_notify_drained(struct h2_stream *s, size_t low)
{
	if (s->closed)
		return;
	s->notify = true;
	s->low = low;
	if (buf_len(&s->out) <= low) {
		s->notify = false;
		h2_news(s, H2_NEWS_DRAINED);
	}
}

void h2_finish(struct h2_stream *s, const struct h2_header *trailers, size_t n)
{
	if (s->closed || s->h->dead || s->out_ending || s->reset)
		return;
	assert(s->out_begun);
	for (size_t i = 0; i < n; i++)
		if (h2_fields_add(&s->out_trailers, (const uint8_t *)trailers[i].name, strlen(trailers[i].name),
				  (const uint8_t *)trailers[i].value, trailers[i].value_len) < 0) {
			h2_reset(s, H2_INTERNAL_ERROR);
			return;
		}
	s->out_ending = true;
	resume(s);
}

void h2_sent_end(struct h2_stream *s)
{
	s->out_closed = true;
	if (s->h->role == H2_SERVER && !s->in_closed && !s->read_to_end)
		h2_reset(s, H2_NO_ERROR);
}

void h2_reset(struct h2_stream *s, uint32_t code)
{
	/* A second one for a request still in the library's queue would go out alone, for an idle stream. */
	if (s->closed || s->h->dead || s->reset)
		return;
	s->reset = true;
	s->out_ending = true;
	s->discard = true;
	drop_output(s);
	if (nghttp2_submit_rst_stream(s->h->session, NGHTTP2_FLAG_NONE, s->id, code) != 0)
		h2_fail(s->h, H2_INTERNAL_ERROR, "no memory for RST_STREAM");
}

/* ---- asking ---- */

int32_t h2_id(const struct h2_stream *s) { return s->id; }
void h2_set_user(struct h2_stream *s, void *user) { s->user = user; }
void *h2_user(const struct h2_stream *s) { return s->user; }
uint32_t h2_close_code(const struct h2_stream *s) { return s->close_code; }
bool h2_unprocessed(const struct h2_stream *s) { return s->unprocessed; }
void h2_mark_started(struct h2_stream *s) { s->started = true; }
const char *h2_header(const struct h2_stream *s, const char *name) { return h2_fields_get(&s->headers, name); }
size_t h2_header_count(const struct h2_stream *s, const char *name) { return h2_fields_count(&s->headers, name); }
const char *h2_trailer(const struct h2_stream *s, const char *name) { return h2_fields_get(&s->trailers, name); }
bool h2_oversized(const struct h2_stream *s) { return s->oversized; }
bool h2_headers_only(const struct h2_stream *s) { return s->headers_only; }

/* ---- receiving ---- */

const uint8_t *h2_data(const struct h2_stream *s, size_t *ret_len)
{
	*ret_len = buf_len(&s->in);
	return *ret_len ? buf_head(&s->in) : NULL;
}

static void credit_stream(struct h2_stream *s, size_t n)
{
	s->in_uncredited -= n;
	if (n && !s->in_closed && !s->closed && !s->h->dead)
		(void)nghttp2_session_consume_stream(s->h->session, s->id, n); /* fails without memory only */
}

void h2_credit_connection(struct h2 *h)
{
	if (!h->in_uncredited || h->in_total > h->limits.in_budget || h->dead)
		return;
	(void)nghttp2_session_consume_connection(h->session, h->in_uncredited); /* fails without memory only */
	h->in_uncredited = 0;
}

void h2_drop(struct h2_stream *s, size_t n)
{
	buf_consume(&s->in, n);
	buf_trim(&s->in);
	s->h->in_total -= n;
	if (s->in_uncredited > buf_len(&s->in))
		credit_stream(s, s->in_uncredited - buf_len(&s->in));
	h2_credit_connection(s->h);
}

void h2_credit(struct h2_stream *s)
{
	credit_stream(s, s->in_uncredited);
}

void h2_discard(struct h2_stream *s)
{
	s->discard = true;
}

void h2_read_to_end(struct h2_stream *s)
{
	s->discard = s->read_to_end = true;
}
