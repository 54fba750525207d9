/* Two kinds of jobs on libuv's pool. */
#include "worker/disk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "common/log/log.h"
#include "worker/remove_tree.h"
#include "worker/state_dir.h"

#define RETRY_NS NS_PER_S

struct disk {
	struct loop *loop;
	struct spool *spool;
	void (*on_spooled)(void *arg, int err, uint64_t id);
	void *arg;
	struct loop_dirty dirty;
	struct loop_timer retry;
	uv_work_t work;
	struct spool_batch *batch; /* under way */
	int removals;
};

struct removal {
	uv_work_t work;
	struct disk *disk;
	int attempts_fd, err;
	char name[STATE_ATTEMPT_NAME_MAX + 8];
};

static void run_batch(uv_work_t *w)
{
	spool_batch_run(((struct disk *)w->data)->batch);
}

static void on_batch_done(uv_work_t *w, int status)
{
	struct disk *d = w->data;
	uint64_t id = 0;
	struct spool_batch *b = d->batch;
	d->batch = NULL;
	int r = spool_end(d->spool, b, &id);
	if (r < 0)
		loop_timer_set(&d->retry, loop_now_mono_ns(d->loop) + RETRY_NS);
	else
		loop_mark(d->loop, &d->dirty);
	d->on_spooled(d->arg, r, id);
}

static void flush(struct loop_dirty *dirty)
{
	struct disk *d = container_of(dirty, struct disk, dirty);
	if (d->batch || loop_timer_active(&d->retry))
		return;
	d->batch = spool_begin(d->spool);
	if (!d->batch)
		return;
	d->work.data = d;
	if (uv_queue_work(loop_uv(d->loop), &d->work, run_batch, on_batch_done) < 0)
		abort(); /* only for arguments that are wrong */
}

static void on_retry(struct loop_timer *t)
{
	struct disk *d = container_of(t, struct disk, retry);
	loop_mark(d->loop, &d->dirty);
}

int disk_new(struct loop *loop, struct spool *spool, void (*on_spooled)(void *arg, int err, uint64_t id), void *arg,
	     struct disk **ret)
{
	struct disk *d = xcalloc(1, sizeof(*d));
	d->loop = loop;
	d->spool = spool;
	d->on_spooled = on_spooled;
	d->arg = arg;
	loop_dirty_init(&d->dirty, LOOP_STORE, flush);
	loop_timer_init(&d->retry, loop, on_retry);
	*ret = d;
	return 0;
}

void disk_spool_dirty(struct disk *d)
{
	loop_mark(d->loop, &d->dirty);
}

static void run_removal(uv_work_t *w)
{
	struct removal *r = w->data;
	r->err = remove_tree(r->attempts_fd, r->name);
}

static void on_removed(uv_work_t *w, int status)
{
	struct removal *r = w->data;
	r->disk->removals--;
	if (r->err < 0)
		log_warn("worker", NULL, "attempts/%s can't be removed whole: %s", r->name,
			 r->err == -EXDEV ? "something is mounted below it" : strerror(-r->err));
	free(r);
}

void disk_remove_tree(struct disk *d, int attempts_fd, const char *name)
{
	struct removal *r = xcalloc(1, sizeof(*r));
	r->work.data = r;
	r->disk = d;
	r->attempts_fd = attempts_fd;
	snprintf(r->name, sizeof(r->name), "%s", name);
	d->removals++;
	if (uv_queue_work(loop_uv(d->loop), &r->work, run_removal, on_removed) < 0)
		abort();
}

bool disk_idle(const struct disk *d)
{
	return !d->batch && !d->removals && list_empty(&d->dirty.node) && !loop_timer_active(&d->retry);
}

void disk_free(struct disk *d)
{
	if (!d)
		return;
	loop_timer_stop(&d->retry);
	loop_unmark(&d->dirty);
	free(d);
}
