/* reins dev: lines, places, addresses, environments; the processes are tested from outside. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "client/dev_lines.h"
#include "client/dev_place.h"

/* ---- lines ---- */

struct seen {
	char text[4 * DEV_LINE_MAX];
	size_t len;
	int lines;
};

static void on_line(void *arg, const char *line, size_t len)
{
	struct seen *s = arg;
	assert_true(s->len + len <= sizeof s->text);
	assert_true(len > 0 && line[len - 1] == '\n');
	memcpy(s->text + s->len, line, len);
	s->len += len;
	s->lines++;
}

static void assert_seen(struct seen *s, const char *text)
{
	s->text[s->len] = 0;
	assert_string_equal(s->text, text);
}

static void an_error_is_found(void **state)
{
	static struct dev_lines l;
	static const struct { const char *said, *error; } lines[] = {
		{ "2026-11-30T04:54:29.627Z ERROR worker: it is so", "worker: it is so" },
		{ "2026-11-30T04:54:29.627Z ERROR ", "" },
		{ "2026-11-30T04:54:29.627Z WARN  worker: Z ERROR no", "before" },
		{ "Z ERROR ", "before" },
		{ "", "before" },
	};
	for (int color = 0; color < 32; color += 31) {
		dev_lines_init(&l, "worker", color);
		for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
			char line[200], text[20] = "before";
			int n = snprintf(line, sizeof line, "%s%s\n", l.prefix, lines[i].said);
			dev_lines_error(&l, line, (size_t)n, text, sizeof text);
			assert_string_equal(text, lines[i].error);
		}
	}
}

static void a_line_comes_out_when_it_is_complete(void **state)
{
	static const char said[] = "one\ntwo\n\nthr", wanted[] = "reinsd | one\nreinsd | two\nreinsd | \n";
	static struct seen s;
	static struct dev_lines l;
	/* However it is cut. */
	for (size_t piece = 1; piece <= sizeof said; piece++) {
		s.len = 0;
		dev_lines_init(&l, "reinsd", 0);
		for (size_t i = 0; i < sizeof said - 1; i += piece)
			dev_lines_add(&l, said + i, min_sz(piece, sizeof said - 1 - i), on_line, &s);
		assert_seen(&s, wanted);
		dev_lines_end(&l, on_line, &s);
		dev_lines_end(&l, on_line, &s);
		assert_seen(&s, "reinsd | one\nreinsd | two\nreinsd | \nreinsd | thr\n");
	}
}

static void the_name_alone_has_a_color(void **state)
{
	static struct seen s;
	static struct dev_lines l;
	dev_lines_init(&l, "worker", 33);
	dev_lines_add(&l, "x\n", 2, on_line, &s);
	assert_seen(&s, "\033[33mworker |\033[0m x\n");
}

static void a_line_without_end_comes_in_pieces(void **state)
{
	static struct seen s;
	static struct dev_lines l;
	static char much[2 * DEV_LINE_MAX + 2];
	memset(much, 'x', sizeof much);
	much[sizeof much - 1] = '\n';
	dev_lines_init(&l, "w", 0);
	dev_lines_add(&l, much, sizeof much, on_line, &s);
	assert_int_equal(s.lines, 3);
	assert_int_equal(s.len, sizeof much - 1 + 3 * strlen("w | \n"));
	/* One that just fits is whole, whether its end comes with it or after. */
	for (size_t piece = 1; piece <= 2; piece++) {
		s.len = 0;
		s.lines = 0;
		dev_lines_add(&l, much, DEV_LINE_MAX - 1, on_line, &s);
		dev_lines_add(&l, "x\n", piece, on_line, &s);
		if (piece == 1)
			dev_lines_add(&l, "\n", 1, on_line, &s);
		assert_int_equal(s.lines, 1);
	}
}

/* ---- places ---- */

static char root[64];

static char *at(const char *below)
{
	static char path[4][256];
	static int next;
	char *p = path[next++ % 4];
	snprintf(p, sizeof path[0], "%s/%s", root, below);
	return p;
}

static void make_program(const char *below, mode_t mode)
{
	int fd = open(at(below), O_CREAT | O_WRONLY | O_CLOEXEC, mode);
	assert_true(fd >= 0);
	close(fd);
}

static int set_up(void **state)
{
	static const char *const folders[] = { "client", "server", "bin", "path1", "path2" };
	(void)state;
	snprintf(root, sizeof root, "/tmp/reins-test-dev-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		if (mkdir(at(folders[i]), 0755) < 0)
			return -1;
	return 0;
}

static int tear_down(void **state)
{
	char command[96];
	(void)state;
	snprintf(command, sizeof command, "rm -rf %s", root);
	return system(command);
}

static void assert_found(const char *self, const char *search_path, const char *wanted)
{
	char *found = dev_find_in(self, "reinsd", "server", search_path);
	if (wanted) {
		assert_non_null(found);
		assert_string_equal(found, wanted);
	} else {
		assert_null(found);
	}
	free(found);
}

static void programs_are_found_beside_then_in_the_build_then_in_path(void **state)
{
	char search[600];
	snprintf(search, sizeof search, "::%s:relative:%s", at("path1"), at("path2"));
	assert_found(at("client/reins"), search, NULL);
	assert_found(at("client/reins"), NULL, NULL);
	assert_found(at("client/reins"), "", NULL);
	make_program("path1/reinsd", 0644); /* not for execution */
	assert_found(at("client/reins"), search, NULL);
	make_program("path2/reinsd", 0755);
	assert_found(at("client/reins"), search, at("path2/reinsd"));
	make_program("server/reinsd", 0755);
	assert_found(at("client/reins"), search, at("server/reinsd"));
	assert_found(at("bin/reins"), search, at("server/reinsd"));
	make_program("bin/reinsd", 0755);
	assert_found(at("bin/reins"), search, at("bin/reinsd"));
	assert_found("reins", search, at("path2/reinsd"));
}

static void a_data_directory_is_made_and_locked(void **state)
{
	char err[600], *path, *again;
	int fd, fd2;
	struct stat st;
	assert_int_equal(dev_data_open(at("data"), &path, &fd, err, sizeof err), 0);
	assert_string_equal(path, at("data"));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	/* The lock is the process's, so another one has to ask. */
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		char wanted[48];
		int r = dev_data_open(at("data"), &again, &fd2, err, sizeof err);
		snprintf(wanted, sizeof wanted, "(process %ld)", (long)getppid());
		_exit((r == -EAGAIN || r == -EACCES) && strstr(err, wanted) && strstr(err, path) ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(fd);
	free(path);
	/* Once more, when it is there. */
	assert_int_equal(dev_data_open(at("data"), &path, &fd, err, sizeof err), 0);
	close(fd);
	free(path);
}

static void a_data_directory_that_cannot_be_is_named(void **state)
{
	char err[600], *path;
	int fd;
	assert_int_equal(dev_data_open(at("none/data"), &path, &fd, err, sizeof err), -ENOENT);
	assert_non_null(strstr(err, at("none/data")));
	make_program("file", 0644);
	assert_int_equal(dev_data_open(at("file"), &path, &fd, err, sizeof err), -ENOTDIR);
	assert_non_null(strstr(err, at("file")));
}

/* ---- addresses ---- */

static void the_address_is_as_clients_need_it(void **state)
{
	struct dev_address a;
	char err[600], text[64], wanted[64];
	assert_int_equal(dev_address_choose("localhost:0", &a, err, sizeof err), 0);
	assert_true(a.loopback);
	assert_int_equal(strncmp(a.listen, "127.0.0.1:", 10), 0);
	assert_true(strtol(a.listen + 10, NULL, 10) > 0);
	assert_int_equal(strncmp(a.url, "http://127.0.0.1:", 17), 0);
	assert_string_equal(a.url + 17, a.listen + 10);
	assert_int_equal(dev_address_choose("0.0.0.0:0", &a, err, sizeof err), 0);
	assert_false(a.loopback);
	assert_int_equal(strncmp(a.listen, "0.0.0.0:", 8), 0);
	assert_int_equal(strncmp(a.url, "http://127.0.0.1:", 17), 0);
	assert_int_equal(dev_address_choose("unix:/tmp/x.sock", &a, err, sizeof err), 0);
	assert_string_equal(a.listen, "unix:/tmp/x.sock");
	assert_string_equal(a.url, "unix:/tmp/x.sock");

	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof in;
	assert_int_equal(bind(fd, (struct sockaddr *)&in, len), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(in.sin_port));
	assert_int_equal(dev_address_choose(text, &a, err, sizeof err), -EADDRINUSE);
	snprintf(wanted, sizeof wanted, "port %d is in use", ntohs(in.sin_port));
	assert_non_null(strstr(err, wanted));
	close(fd);
	assert_int_equal(dev_address_choose(text, &a, err, sizeof err), 0);
	assert_string_equal(a.listen, text);

	static const char *const refused[] = { "tls://127.0.0.1:0", "gpu-1:7346", "127.0.0.1:x", "", "127.0.0.1:70000" };
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		assert_int_equal(dev_address_choose(refused[i], &a, err, sizeof err), -EINVAL);
		assert_non_null(strstr(err, "--listen"));
	}
}

/* ---- environments ---- */

static void the_environment_leads_nowhere_else(void **state)
{
	char *from[] = { (char[]){ "HOME=/h" }, (char[]){ "REINS_SERVER=https://far" }, (char[]){ "REINS_TOKEN=t" },
			 (char[]){ "REINS_TLS_CA=ca" }, (char[]){ "REINS_CLIENT_CA=ca" }, (char[]){ "REINS_ID=me" },
			 (char[]){ "REINS_ID_X=kept" }, (char[]){ "REINS_LOG_LEVEL=debug" }, NULL };
	char *with[] = { (char[]){ "REINS_ID=dev" }, NULL, (char[]){ "REINS_SERVER=http://near" } };
	static const char *const wanted[] = { "HOME=/h", "REINS_ID_X=kept", "REINS_LOG_LEVEL=debug", "REINS_ID=dev", "REINS_SERVER=http://near" };
	char **env = dev_env(from, with, ARRAY_LEN(with));
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
		assert_non_null(env[i]);
		assert_string_equal(env[i], wanted[i]);
	}
	assert_null(env[ARRAY_LEN(wanted)]);
	free(env);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_error_is_found),
		cmocka_unit_test(a_line_comes_out_when_it_is_complete),
		cmocka_unit_test(the_name_alone_has_a_color),
		cmocka_unit_test(a_line_without_end_comes_in_pieces),
		cmocka_unit_test_setup_teardown(programs_are_found_beside_then_in_the_build_then_in_path, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_data_directory_is_made_and_locked, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_data_directory_that_cannot_be_is_named, set_up, tear_down),
		cmocka_unit_test(the_address_is_as_clients_need_it),
		cmocka_unit_test(the_environment_leads_nowhere_else),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
