/* The list: where programs are found, who and where they are, language and time, proxies and their certificates, which
 * GPUs the worker itself was given (a worker that hands out GPUs replaces it), and the way back to the master. */
#include "worker/environment.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static const char *const inherited[] = {
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR", "TMPDIR", "LD_LIBRARY_PATH",
	"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy",
	"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
	"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
	"REINS_SERVER",
};

static const char *const kept_back[] = {
	"REINS_*", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID",
	"INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MAINPID", "MANAGERPID", "FDSTORE", "CREDENTIALS_DIRECTORY",
	"TRACEPARENT",
};

static bool among(const char *name, const char *const *patterns, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (fnmatch(patterns[i], name, 0) == 0)
			return true;
	return false;
}

static bool wanted(const char *variable, const struct setting_list *more)
{
	size_t n = strcspn(variable, "=");
	_cleanup_free_ char *name = strndup(variable, n);
	if (!name || variable[n] != '=' || n == 0)
		return false;
	if (among(name, kept_back, ARRAY_LEN(kept_back)))
		return strcmp(name, "REINS_SERVER") == 0;
	return among(name, inherited, ARRAY_LEN(inherited)) || among(name, (const char *const *)more->at, more->len);
}

char **environment_inherit(char *const *from, const struct setting_list *more)
{
	size_t n = 0, k = 0;
	while (from[n])
		n++;
	char **out = xcalloc(n + 1, sizeof(*out));
	for (size_t i = 0; i < n; i++)
		if (wanted(from[i], more))
			out[k++] = from[i];
	return out;
}

int environment_check(const struct setting_list *more, char *err, size_t cap)
{
	for (size_t i = 0; i < more->len; i++)
		if (strpbrk(more->at[i], "= \t/")) {
			snprintf(err, cap, "--inherit-env \"%.255s\": the name of a variable is allowed, with * for any part of it; "
				 "a value is given in the worker's environment", more->at[i]);
			return -1;
		}
	return 0;
}
