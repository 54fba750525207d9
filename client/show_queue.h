/* Queues as text. */
#ifndef REINS_CLIENT_SHOW_QUEUE_H
#define REINS_CLIENT_SHOW_QUEUE_H

#include "client/output.h"
#include "reins/v1/admin_service.pb-c.h"

struct table *show_queue_table(void);
void show_queue_row(struct table *t, const Reins__V1__QueueInfo *q);

#endif
