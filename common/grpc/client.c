/* Owns a channel: its connection and the order of its end: calls first, then on_closed. */
#include "common/grpc/client.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/grpc/client_impl.h"

static void channel_done(struct grpc_channel *ch)
{
	client_call_free_spares(ch);
	conn_done(&ch->base);
	free(ch->authority);
	free(ch->user_agent);
	if (ch->authorization)
		explicit_bzero(ch->authorization, strlen(ch->authorization));
	free(ch->authorization);
	free(ch);
}

static void bury(struct loop_grave *g)
{
	channel_done(container_of(g, struct grpc_channel, grave));
}

static void on_stream(struct conn *c, struct h2_stream *s, unsigned news)
{
	client_call_news(container_of(c, struct grpc_channel, base), s, news);
}

static void on_ready(struct conn *c)
{
	struct grpc_channel *ch = container_of(c, struct grpc_channel, base);
	loop_timer_stop(&ch->connect_timer);
	if (ch->cfg.on_ready)
		ch->cfg.on_ready(ch->cfg.arg);
}

static void on_goaway(struct conn *c)
{
	struct grpc_channel *ch = container_of(c, struct grpc_channel, base);
	if (ch->cfg.on_goaway)
		ch->cfg.on_goaway(ch->cfg.arg);
}

static void on_closed(struct conn *c, const char *text)
{
	struct grpc_channel *ch = container_of(c, struct grpc_channel, base);
	const char *goaway = h2_goaway_text(c->h2);
	if (goaway[0])
		text = goaway;
	else if (!text)
		text = "closed";
	loop_timer_stop(&ch->connect_timer);
	client_call_end_all(ch, text);
	if (!ch->freed && ch->cfg.on_closed)
		ch->cfg.on_closed(ch->cfg.arg, text);
}

static const struct conn_ops CONN_OPS = {
	.on_stream = on_stream,
	.on_ready = on_ready,
	.on_goaway = on_goaway,
	.on_closed = on_closed,
};

static void on_connect_deadline(struct loop_timer *t)
{
	struct grpc_channel *ch = container_of(t, struct grpc_channel, connect_timer);
	conn_fail(&ch->base, ch->base.state == CONN_OPENING ? "connect: timed out" : "no HTTP/2 settings in time");
}

static void on_work(struct loop_dirty *d)
{
	struct grpc_channel *ch = container_of(d, struct grpc_channel, dirty);
	client_call_work(ch);
	if (ch->shutdown && !ch->freed && ch->base.state == CONN_OPENING)
		conn_fail(&ch->base, NULL);
}

static int copy_texts(struct grpc_channel *ch)
{
	const struct grpc_channel_config *cfg = &ch->cfg;
	ch->authority = strdup(cfg->authority ? cfg->authority : "localhost");
	ch->user_agent = strdup(cfg->user_agent ? cfg->user_agent : "reins/" REINS_VERSION);
	if (cfg->bearer_token && asprintf(&ch->authorization, "Bearer %s", cfg->bearer_token) < 0) {
		ch->authorization = NULL;
		return -ENOMEM;
	}
	return ch->authority && ch->user_agent ? 0 : -ENOMEM;
}

static int channel_new(struct loop *loop, const struct grpc_channel_config *cfg, bool tls, struct grpc_channel **ret)
{
	struct grpc_channel *ch = calloc(1, sizeof(*ch));
	if (!ch)
		return -ENOMEM;
	ch->cfg = *cfg;
	ch->scheme = tls ? "https" : "http";
	list_init(&ch->calls);
	list_init(&ch->marked);
	list_init(&ch->spare);
	loop_dirty_init(&ch->dirty, LOOP_WORK, on_work);
	loop_timer_init(&ch->connect_timer, loop, on_connect_deadline);
	int rc = copy_texts(ch);
	if (rc == 0)
		rc = conn_init(&ch->base, loop, H2_CLIENT, &ch->cfg.limits, &CONN_OPS);
	if (rc < 0) {
		channel_done(ch);
		return rc;
	}
	*ret = ch;
	return 0;
}

int grpc_channel_connect(struct loop *loop, const struct sockaddr *addr, socklen_t len, struct tls_context *tls,
			 const char *server_name, int64_t connect_deadline_mono_ns, const struct grpc_channel_config *cfg,
			 struct grpc_channel **ret)
{
	struct grpc_channel *ch;
	int rc = channel_new(loop, cfg, tls != NULL, &ch);
	if (rc < 0)
		return rc;
	struct stream *s;
	rc = stream_connect(loop, addr, len, tls, server_name, &conn_stream_events, &ch->base, &s);
	if (rc < 0) {
		channel_done(ch);
		return rc;
	}
	conn_attach(&ch->base, s, false);
	if (connect_deadline_mono_ns != GRPC_NO_DEADLINE)
		loop_timer_set(&ch->connect_timer, connect_deadline_mono_ns);
	*ret = ch;
	return 0;
}

int grpc_channel_adopt(struct loop *loop, struct stream *s, const struct grpc_channel_config *cfg, struct grpc_channel **ret)
{
	struct grpc_channel *ch;
	int rc = channel_new(loop, cfg, stream_peer(s)->tls, &ch);
	if (rc < 0)
		return rc;
	conn_attach(&ch->base, s, true);
	*ret = ch;
	return 0;
}

void grpc_channel_shutdown(struct grpc_channel *ch)
{
	if (ch->shutdown)
		return;
	ch->shutdown = true;
	if (ch->base.state == CONN_OPENING)
		loop_mark(ch->base.loop, &ch->dirty);
	else
		conn_drain(&ch->base, NULL);
}

void grpc_channel_free(struct grpc_channel *ch)
{
	if (!ch || ch->freed)
		return;
	ch->freed = true;
	loop_timer_stop(&ch->connect_timer);
	conn_shut(&ch->base);
	client_call_end_all(ch, "the channel was closed");
	loop_unmark(&ch->dirty);
	loop_bury(ch->base.loop, &ch->grave, bury);
}

const struct stream_peer *grpc_channel_peer(const struct grpc_channel *ch)
{
	static const struct stream_peer gone = { .address = "gone", .alpn = "" };
	return ch->base.stream ? stream_peer(ch->base.stream) : &gone;
}
