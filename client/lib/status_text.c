/* Reads google.rpc.Status as it came with a failed call; owns nothing. */
#include "client/lib/status_text.h"

#include <stdio.h>
#include <string.h>

#include "common/pb/pb.h"
#include "common/pb/utf8.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"

void status_text_clean(const char *s, char *ret_text, size_t cap)
{
	utf8_make_valid(s, strlen(s), ret_text, cap, NULL);
	for (char *p = ret_text; *p; p++) {
		unsigned char c = (unsigned char)*p;
		if (c < 0x20 || c == 0x7f)
			*p = ' ';
		else if (c == 0xc2 && (unsigned char)p[1] < 0xa0)
			p[0] = p[1] = ' '; /* U+0080 to U+009F */
	}
}

static void append(struct client_error *e, const char *text)
{
	size_t n = strlen(e->message);
	char clean[1024];
	status_text_clean(text, clean, sizeof clean);
	snprintf(e->message + n, sizeof e->message - n, "%s", clean);
	/* What snprintf cut may be half a character. */
	char whole[sizeof e->message];
	utf8_make_valid(e->message, strlen(e->message), whole, sizeof whole, NULL);
	memcpy(e->message, whole, sizeof whole);
}

static void add_bad_request(const Google__Protobuf__Any *any, struct client_error *e)
{
	struct refusal r;
	Google__Rpc__BadRequest *bad =
		pb_unpack(&google__rpc__bad_request__descriptor, any->value.data, any->value.len, NULL, &r);
	if (!bad)
		return;
	for (size_t i = 0; i < bad->n_field_violations && i < 8; i++) {
		const Google__Rpc__BadRequest__FieldViolation *v = bad->field_violations[i];
		bool has_field = strstr(e->message, v->field) != NULL;
		bool has_text = strstr(e->message, v->description) != NULL;
		if (has_field && has_text)
			continue;
		append(e, e->message[0] ? " (" : "(");
		append(e, v->field);
		if (!has_text) {
			append(e, ": ");
			append(e, v->description);
		}
		append(e, ")");
	}
	pb_free(bad);
}

/* What the code says anyway is left out. */
static bool says_more(const char *reason, enum status_code code)
{
	struct refusal bare, field;
	(void)refuse(&bare, code, NULL, " ");
	(void)refuse(&field, code, "field", " ");
	return strcmp(reason, reason_name(bare.reason)) != 0 && strcmp(reason, reason_name(field.reason)) != 0;
}

/* " (key value)", if the message has not said it. */
static void add_pair(struct client_error *e, const char *key, const char *value)
{
	if (!*value || strstr(e->message, value))
		return;
	append(e, " (");
	append(e, key);
	append(e, *key ? " " : "");
	append(e, value);
	append(e, ")");
}

static void add_error_info(const Google__Protobuf__Any *any, struct client_error *e)
{
	struct refusal r;
	Google__Rpc__ErrorInfo *info = pb_unpack(&google__rpc__error_info__descriptor, any->value.data, any->value.len, NULL, &r);
	if (!info)
		return;
	for (size_t i = 0; i < info->n_metadata && i < 8; i++)
		add_pair(e, info->metadata[i]->key, info->metadata[i]->value);
	if (says_more(info->reason, e->code)) {
		char clean[sizeof e->message];
		status_text_clean(info->reason, clean, sizeof clean);
		snprintf(e->reason, sizeof e->reason, "%.*s", (int)sizeof e->reason - 1, clean);
	}
	pb_free(info);
}

static void add_resource_info(const Google__Protobuf__Any *any, struct client_error *e)
{
	struct refusal r;
	Google__Rpc__ResourceInfo *info =
		pb_unpack(&google__rpc__resource_info__descriptor, any->value.data, any->value.len, NULL, &r);
	if (info)
		add_pair(e, info->resource_type, info->resource_name);
	pb_free(info);
}

static void add_retry_info(const Google__Protobuf__Any *any, struct client_error *e)
{
	struct refusal r;
	int64_t ns;
	Google__Rpc__RetryInfo *info =
		pb_unpack(&google__rpc__retry_info__descriptor, any->value.data, any->value.len, NULL, &r);
	if (info && info->retry_delay && !pb_duration_ns(info->retry_delay, &ns) && ns > 0)
		e->retry_after_ms = (ns + NS_PER_MS - 1) / NS_PER_MS;
	pb_free(info);
}

void status_text(const struct grpc_status *status, struct client_error *ret)
{
	struct client_error e = { .code = status->code, .retry_after_ms = status->retry_after_ms };
	struct refusal r;
	status_text_clean(status->message, e.message, sizeof e.message);
	Google__Rpc__Status *rich = status->details_len ? pb_unpack(&google__rpc__status__descriptor, status->details,
								    status->details_len, NULL, &r) :
							  NULL;
	for (size_t i = 0; rich && i < rich->n_details; i++) {
		const Google__Protobuf__Any *any = rich->details[i];
		const char *slash = strrchr(any->type_url, '/');
		const char *type = slash ? slash + 1 : any->type_url;
		if (!strcmp(type, "google.rpc.BadRequest"))
			add_bad_request(any, &e);
		else if (!strcmp(type, "google.rpc.RetryInfo"))
			add_retry_info(any, &e);
		else if (!strcmp(type, "google.rpc.ErrorInfo"))
			add_error_info(any, &e);
		else if (!strcmp(type, "google.rpc.ResourceInfo"))
			add_resource_info(any, &e);
	}
	pb_free(rich);
	if (!e.message[0] && e.code != STATUS_OK)
		snprintf(e.message, sizeof e.message, "%s", status_code_name(e.code));
	*ret = e;
}
