/* Builds Outcome messages; the only place that decides how an attempt ended. */
#include "worker/outcome.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/pb/pb.h"
#include "worker/state_dir.h"

#define KIND(name) REINS__V1__OUTCOME__KIND__##name

Reins__V1__Outcome__Kind outcome_kind(const struct outcome_facts *f)
{
	if (f->lost)
		return KIND(LOST);
	if (f->stop_kind != KIND(KIND_UNSPECIFIED))
		return f->stop_kind;
	if (f->launch_failed)
		return KIND(LAUNCH_FAILED);
	return f->exited && f->code == 0 && f->signal == 0 ? KIND(SUCCEEDED) : KIND(FAILED);
}

/* The bytes of the result into *ret (malloc'ed or NULL), its size into *ret_size. */
static void read_result(int dir_fd, const char *name, int64_t max, uint8_t **ret, size_t *ret_len, int64_t *ret_size)
{
	struct stat st;
	int fd = state_dir_open_theirs(dir_fd, name, STATE_RESULT, &st);
	if (fd < 0)
		return;
	*ret_size = st.st_size;
	uint8_t *data = st.st_size > 0 && st.st_size <= max ? malloc((size_t)st.st_size) : NULL;
	size_t len = 0;
	for (ssize_t n; data && len < (size_t)st.st_size; len += (size_t)n)
		if ((n = read(fd, data + len, (size_t)st.st_size - len)) <= 0)
			break;
	*ret = data;
	*ret_len = len;
	close(fd);
}

static void describe(const struct outcome_facts *f, char *out, size_t cap)
{
	const char *oom = f->oom_text ? f->oom_text : "";
	switch (outcome_kind(f)) {
	case KIND(SUCCEEDED):
		out[0] = '\0';
		break;
	case KIND(FAILED):
		if (f->signal)
			snprintf(out, cap, "%s%sended by signal %d (%s)", oom, *oom ? "; " : "", f->signal, strsignal(f->signal));
		else
			snprintf(out, cap, "%s%sexit code %d", oom, *oom ? "; " : "", f->code);
		break;
	case KIND(LOST):
		snprintf(out, cap, "%s", f->text ? f->text : "its supervisor died: nobody can say how it ended");
		break;
	default:
		snprintf(out, cap, "%s", f->text ? f->text : "");
	}
}

struct blob *outcome_pack(const struct outcome_facts *f, int dir_fd, const char *name, int64_t result_max,
			  int64_t error_max)
{
	Reins__V1__Outcome o = REINS__V1__OUTCOME__INIT;
	Google__Protobuf__Timestamp started, finished;
	char error[1536];
	_cleanup_free_ uint8_t *result = NULL;
	o.task_id = (char *)f->task_id;
	o.attempt = f->attempt;
	o.kind = outcome_kind(f);
	if (o.kind == KIND(STOPPED))
		o.stop_reason = f->stop_reason;
	if (f->exited && !f->launch_failed) {
		if (f->signal) {
			o.signal = f->signal;
		} else {
			o.has_exit_code_case = REINS__V1__OUTCOME__HAS_EXIT_CODE_EXIT_CODE;
			o.exit_code = f->code;
		}
		read_result(dir_fd, name, result_max, &result, &o.result.len, &o.result_bytes);
		o.result.data = result;
	}
	o.oom_killed = f->oom_text && o.kind == KIND(FAILED);
	describe(f, error, sizeof(error));
	o.error.data = (uint8_t *)error;
	o.error.len = min_sz(strlen(error), (size_t)max_i64(error_max, 0));
	if (f->started_wall_us) {
		pb_timestamp_set(&started, f->started_wall_us);
		o.started_at = &started;
	}
	pb_timestamp_set(&finished, f->finished_wall_us);
	o.finished_at = &finished;
	o.log_end = f->log_end;
	return pb_pack_blob(&o);
}
