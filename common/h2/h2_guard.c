/* Rules against abuse that the library leaves to us.  Frames are counted in windows of 10 s:
 *
 *   control   PING, SETTINGS, PRIORITY and WINDOW_UPDATE: 500 and ten times the frames that carry something;
 *   resets    RST_STREAMs that the peer's mistakes made us send (CVE-2025-8671): 100;
 *   empty     DATA frames without bytes and without an end: 10 in a row;
 *   premature of each 1,000 streams, those that the peer reset within a second of their work having begun and
 *             before they were answered (CVE-2023-44487): 500.  Streams that never reached a handler are cheap
 *             and are left to the library's rate limit, so that a client which gives up many uploads is served;
 *   pings     one every ping_min_ns, with and without streams: the third in a row that comes earlier ends the connection
 *             with "too_many_pings", which gRPC clients understand (they double their interval). A tenth less is let
 *             pass, since the way of a PING is not always the same; a PING in time, and anything that we send, begins
 *             the count anew: clients measure the path while they receive.
 *
 * Only a server keeps them: a client chose its peer. */
#include "common/h2/h2_impl.h"

#define WINDOW_NS (10 * NS_PER_S)
#define CONTROL_FREE 500
#define CONTROL_RATIO 10
#define RESETS_SENT_MAX 100
#define EMPTY_DATA_MAX 10
#define PREMATURE_NS NS_PER_S
#define PREMATURE_SAMPLE 1000
#define PREMATURE_MAX 500
#define PING_STRIKES 2

static void roll(struct h2 *h)
{
	struct h2_guard *g = &h->guard;
	if (h->now - g->window_start_mono_ns < WINDOW_NS)
		return;
	g->window_start_mono_ns = h->now;
	g->control = g->traffic = g->resets_sent = 0;
}

static bool is_empty_data(const nghttp2_frame *f)
{
	if (f->hd.type != NGHTTP2_DATA || (f->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return false;
	return f->hd.length == f->data.padlen;
}

static void count_ping(struct h2 *h)
{
	struct h2_guard *g = &h->guard;
	int64_t min = h->limits.ping_min_ns;
	if (min <= 0)
		return;
	if (!g->ping_mono_ns || h->now - g->ping_mono_ns >= min - min / 10) {
		g->ping_mono_ns = h->now;
		g->ping_strikes = 0;
	} else if (++g->ping_strikes > PING_STRIKES) {
		h2_fail(h, H2_ENHANCE_YOUR_CALM, "too_many_pings");
	}
}

void h2_guard_recv(struct h2 *h, const nghttp2_frame *frame)
{
	struct h2_guard *g = &h->guard;
	if (h->role != H2_SERVER)
		return;
	roll(h);
	switch (frame->hd.type) {
	case NGHTTP2_DATA:
		if (!is_empty_data(frame)) {
			g->empty_data = 0;
			g->traffic++;
		} else if (++g->empty_data > EMPTY_DATA_MAX) {
			h2_fail(h, H2_ENHANCE_YOUR_CALM, "too many empty DATA frames");
		}
		break;
	case NGHTTP2_HEADERS:
		g->traffic++;
		if (frame->headers.cat == NGHTTP2_HCAT_REQUEST && ++g->streams >= PREMATURE_SAMPLE)
			g->streams = g->premature = 0;
		break;
	case NGHTTP2_PING:
		if (frame->hd.flags & NGHTTP2_FLAG_ACK)
			break;
		g->control++;
		count_ping(h);
		break;
	case NGHTTP2_SETTINGS:
		if (frame->hd.flags & NGHTTP2_FLAG_ACK)
			break;
		g->control++;
		break;
	case NGHTTP2_PRIORITY:
	case NGHTTP2_WINDOW_UPDATE:
		g->control++;
		break;
	default:
		break;
	}
	if (g->control > CONTROL_FREE && g->control - CONTROL_FREE > (uint64_t)CONTROL_RATIO * g->traffic)
		h2_fail(h, H2_ENHANCE_YOUR_CALM, "too many control frames");
}

void h2_guard_reset_received(struct h2 *h, const struct h2_stream *s)
{
	struct h2_guard *g = &h->guard;
	if (h->role != H2_SERVER || !s->started || s->answered || h->now - s->opened_mono_ns >= PREMATURE_NS)
		return;
	if (++g->premature > PREMATURE_MAX)
		h2_fail(h, H2_ENHANCE_YOUR_CALM, "too many streams reset before they were answered");
}

void h2_guard_sent(struct h2 *h, const nghttp2_frame *frame)
{
	struct h2_guard *g = &h->guard;
	if (h->role != H2_SERVER)
		return;
	roll(h);
	switch (frame->hd.type) {
	case NGHTTP2_DATA:
	case NGHTTP2_HEADERS:
		g->traffic++;
		g->ping_mono_ns = 0;
		g->ping_strikes = 0;
		break;
	case NGHTTP2_RST_STREAM:
		if (frame->rst_stream.error_code == NGHTTP2_NO_ERROR || frame->rst_stream.error_code == NGHTTP2_CANCEL ||
		    frame->rst_stream.error_code == NGHTTP2_REFUSED_STREAM)
			break;
		if (++g->resets_sent > RESETS_SENT_MAX)
			h2_fail(h, H2_ENHANCE_YOUR_CALM, "too many faulty streams");
		break;
	default:
		break;
	}
}
