/* The end of a call as text for a person. Internal to client/lib. */
#ifndef REINS_STATUS_TEXT_H
#define REINS_STATUS_TEXT_H

#include "client/lib/client.h"
#include "common/grpc/grpc.h"

/* Message, then what it does not name of google.rpc.BadRequest's fields, ErrorInfo's metadata and ResourceInfo; RetryInfo into
 * retry_after_ms, ErrorInfo's reason into reason.
 * Details that cannot be read are left out: the message is what counts. */
void status_text(const struct grpc_status *status, struct client_error *ret);
/* Valid UTF-8 without control characters (each becomes a blank). */
void status_text_clean(const char *s, char *ret_text, size_t cap);

#endif
