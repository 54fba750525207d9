/* Owns the way from a path to open connections: the lock, the files, what is in them, and what SQLite's errors
 * mean to a person.  Every file is looked at before anything is written to it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/num.h"
#include "server/store/sqlite/sq.h"

#define LENGTH_MAX (64 << 20) /* bytes of one value or row; far above the limits at the door */
#define BUSY_MS 500

enum sq_down sq_meaning(const struct sq_db *db, char *text, size_t cap)
{
	const char *path = db->h ? sqlite3_db_filename(db->h, "main") : NULL;
	path = path ? path : "the store";
	static const struct {
		int rc;
		enum sq_down down;
		const char *words;
	} rows[] = {
		{SQLITE_BUSY, SQ_AGAIN, "is locked by another program"},
		{SQLITE_LOCKED, SQ_AGAIN, "is locked by another program"},
		{SQLITE_FULL, SQ_AGAIN, "can't grow: no space is left on the disk"},
		{SQLITE_READONLY, SQ_AGAIN, "is read-only"},
		{SQLITE_PERM, SQ_AGAIN, "may not be read"},
		{SQLITE_CANTOPEN, SQ_AGAIN, "can't be opened"},
		{SQLITE_IOERR, SQ_AGAIN, "can't be read or written"},
		{SQLITE_CORRUPT, SQ_STAYS, "is damaged; it was left as it is: recover it, or put a copy in its place"},
		{SQLITE_NOTADB, SQ_STAYS, "is not a store of Reins, or is damaged; it was left as it is"},
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].rc == (db->rc & 0xff)) {
			int os = db->h ? sqlite3_system_errno(db->h) : 0;
			bool say_os = rows[i].rc == SQLITE_IOERR || rows[i].rc == SQLITE_CANTOPEN;
			snprintf(text, cap, "%.110s %s%s%.40s", path, rows[i].words, say_os && os ? ": " : "",
				 say_os && os ? strerrordesc_np(os) : "");
			return rows[i].down;
		}
	snprintf(text, cap, "%.110s: SQLite says: %.70s", path, db->text);
	return SQ_AGAIN;
}

/* ---- paths and the lock ---- */

static int fail_errno(const char *path, int rc, char *text, size_t cap)
{
	bool denied = rc == -EACCES || rc == -EROFS || rc == -EPERM;
	snprintf(text, cap, "%.110s can't be %s: %s", path, denied ? "written, it or its directory is read-only" : "opened",
		 strerrordesc_np(-rc));
	return rc;
}

/* Made by us, so that its mode is ours; SQLite gives its other files the same.  One that is there is not opened: to close
 * it would drop the locks that another connection of this process has on it. */
static int make_file(const char *path, char *text, size_t cap)
{
	struct stat st;
	int rc = 0;
	if (stat(path, &st) == 0) {
		rc = S_ISREG(st.st_mode) ? 0 : S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	} else {
		int fd = errno == ENOENT ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
		if (fd >= 0)
			close(fd);
		else
			rc = -errno;
	}
	return rc < 0 ? fail_errno(path, rc, text, cap) : 0;
}

/* Links are followed, so that two names of one file are one store; the file is there from now on. */
static int resolve(const char *path, char ret[static SQ_PATH_MAX], char *text, size_t cap)
{
	char whole[PATH_MAX];
	int rc = make_file(path, text, cap);
	if (rc < 0)
		return rc;
	if (!realpath(path, whole))
		return fail_errno(path, -errno, text, cap);
	if (strlen(whole) >= SQ_PATH_MAX)
		return fail_errno(path, -ENAMETOOLONG, text, cap);
	memcpy(ret, whole, strlen(whole) + 1);
	return 0;
}

static void who_holds(int fd, const char *path, char *text, size_t cap)
{
	char pid[24] = "";
	ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);
	if (n > 0)
		pid[strcspn(pid, "\n")] = '\0';
	snprintf(text, cap, "%.110s is in use by another master%s%s%s", path, pid[0] ? " (process " : "", pid,
		 pid[0] ? ")" : "");
}

static int take_lock(struct sq_files *f, bool reads, char *text, size_t cap)
{
	char name[SQ_PATH_MAX + 8];
	snprintf(name, sizeof(name), "%s-lock", f->path);
	int fd = open(name, (reads ? O_RDONLY : O_RDWR) | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fail_errno(f->path, -errno, text, cap);
	struct flock whole = {.l_type = reads ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};
	if (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
		int rc = -errno;
		if (rc == -EAGAIN || rc == -EACCES)
			who_holds(fd, f->path, text, cap);
		else
			fail_errno(f->path, rc, text, cap);
		close(fd);
		return rc;
	}
	f->lock_fd = fd;
	if (reads)
		return 0;
	/* For the one who is refused; nothing depends on it. */
	char pid[24];
	int n = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) < 0)
		errno = 0;
	return 0;
}

bool sq_files_same(const struct sq_files *f)
{
	struct stat st;
	return stat(f->path, &st) == 0 && (uint64_t)st.st_dev == f->dev && (uint64_t)st.st_ino == f->ino;
}

void sq_files_done(struct sq_files *f)
{
	if (f->lock_fd >= 0)
		close(f->lock_fd);
	f->lock_fd = -1;
}

/* ---- connections ---- */

static void open_db(const char *path, bool only_reads, struct sq_db *db)
{
	sqlite3 *handle;
	/* No URI names and no other directory than the file's: what the path says is what is opened. */
	int how = only_reads ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
	int rc = sqlite3_open_v2(path, &handle, how | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
	sq_db_init(db, handle);
	if (rc != SQLITE_OK) {
		db->rc = rc;
		snprintf(db->text, sizeof(db->text), "%s", sqlite3_errstr(rc));
		return;
	}
	sqlite3_busy_timeout(handle, BUSY_MS);
	sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, LENGTH_MAX);
	sqlite3_limit(handle, SQLITE_LIMIT_ATTACHED, 0);
	sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	if (!only_reads && sqlite3_db_readonly(handle, "main") == 1) {
		db->rc = SQLITE_READONLY;
		snprintf(db->text, sizeof(db->text), "read-only");
	}
}

/* synchronous=FULL: a commit returns when the write-ahead log is synced, which is what an acknowledgement stands on.
 * Checkpoints are made by us, after the answers were handed out. */
static void set_up(struct sq_db *db, bool reads)
{
	sq_exec(db, "PRAGMA synchronous = FULL; PRAGMA secure_delete = OFF; PRAGMA temp_store = MEMORY;"
		    "PRAGMA cell_size_check = ON; PRAGMA foreign_keys = OFF; PRAGMA mmap_size = 0;"
		    "PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 67108864");
	sq_exec(db, reads ? "PRAGMA query_only = ON; PRAGMA cache_size = -8192" : "PRAGMA cache_size = -65536");
}

int sq_open_more(const struct sq_files *f, bool logs, bool reads, struct sq_db *ret_db)
{
	open_db(logs ? f->logs : f->path, false, ret_db);
	set_up(ret_db, reads);
	return ret_db->rc ? -1 : 0;
}

static void read_id(struct sq_db *db, char ret[static UUID_TEXT_LEN + 1])
{
	sqlite3_stmt *q = sq_begin(db, "SELECT value FROM meta WHERE key = 'store_id'");
	ret[0] = '\0';
	if (sq_row(db, q)) {
		snprintf(ret, UUID_TEXT_LEN + 1, "%s", sq_text(q, 0));
		sq_end(q);
	}
}

void sq_moved_get(struct sq_db *tasks, char ret[static SQ_MOVED_MAX])
{
	sqlite3_stmt *q = sq_begin(tasks, "SELECT value FROM meta WHERE key = 'moved_to'");
	ret[0] = '\0';
	if (sq_row(tasks, q)) {
		snprintf(ret, SQ_MOVED_MAX, "%s", sq_text(q, 0));
		sq_end(q);
	}
}

void sq_moved_set(struct sq_db *tasks, const char *to)
{
	if (!to) {
		sq_exec(tasks, "DELETE FROM meta WHERE key = 'moved_to'");
		return;
	}
	sqlite3_stmt *q = sq_begin(tasks, "INSERT OR REPLACE INTO meta (key, value) VALUES ('moved_to', ?)");
	sq_bind_text(tasks, to);
	sq_run(tasks, q);
}

/* Two masters, one on the file and one on what was made of it, would run every task twice. */
static enum sq_down check_moved(const struct sq_files *f, struct sq_db *db, char *text, size_t cap)
{
	char to[SQ_MOVED_MAX];
	sq_moved_get(db, to);
	if (!to[0] || db->rc)
		return SQ_OK;
	if (f->ignore_moved) {
		sq_moved_set(db, NULL);
		return SQ_OK;
	}
	size_t len = strlen(f->path), cut = len > 55 ? len - 55 : 0;
	snprintf(text, cap, "%s was moved to %.60s: start reinsd on that, or on this file again with --ignore-moved", f->path + cut, to);
	return SQ_STAYS;
}

static enum sq_down open_tasks(struct sq_files *f, struct sq_db *db, char *text, size_t cap)
{
	if (make_file(f->path, text, cap) < 0)
		return SQ_AGAIN;
	open_db(f->path, false, db);
	enum sq_down down = sq_schema_update(db, false, f->path, NULL, text, cap);
	if (down != SQ_OK)
		return down;
	set_up(db, false);
	char id[UUID_TEXT_LEN + 1];
	read_id(db, id);
	struct stat st;
	down = check_moved(f, db, text, cap);
	if (db->rc)
		return sq_meaning(db, text, cap);
	if (down != SQ_OK)
		return down;
	if (strlen(id) != UUID_TEXT_LEN) {
		snprintf(text, cap, "%.110s has no store id: it is damaged, or not a store of Reins", f->path);
		return SQ_STAYS;
	}
	if (stat(f->path, &st) < 0) {
		fail_errno(f->path, -errno, text, cap);
		return SQ_AGAIN;
	}
	memcpy(f->store_id, id, sizeof(id));
	f->dev = (uint64_t)st.st_dev;
	f->ino = (uint64_t)st.st_ino;
	return SQ_OK;
}

/* Only made ready here; the lanes that use it open their own connections. */
static enum sq_down prepare_logs(struct sq_files *f, char *text, size_t cap)
{
	struct sq_db db;
	char id[UUID_TEXT_LEN + 1];
	if (make_file(f->logs, text, cap) < 0)
		return SQ_AGAIN;
	open_db(f->logs, false, &db);
	enum sq_down down = sq_schema_update(&db, true, f->logs, f->store_id, text, cap);
	if (down == SQ_OK) {
		read_id(&db, id);
		if (db.rc) {
			down = sq_meaning(&db, text, cap);
		} else if (strcmp(id, f->store_id) != 0) {
			snprintf(text, cap, "%.110s holds the logs of another store: move it away", f->logs);
			down = SQ_STAYS;
		}
	}
	sq_db_done(&db);
	return down;
}

enum sq_down sq_open(const char *path, struct sq_files *f, struct sq_db *ret_db, char *text, size_t cap)
{
	if (f->lock_fd < 0) {
		if (resolve(path, f->path, text, cap) < 0)
			return SQ_AGAIN;
		snprintf(f->logs, sizeof(f->logs), "%s-logs", f->path);
		if (take_lock(f, false, text, cap) < 0)
			return SQ_AGAIN;
	}
	enum sq_down down = open_tasks(f, ret_db, text, cap);
	if (down == SQ_OK)
		down = prepare_logs(f, text, cap);
	if (down != SQ_OK)
		sq_db_done(ret_db);
	return down;
}

/* ---- to be read only ---- */

static enum sq_down open_to_read(const char *path, bool logs, char ret_id[static UUID_TEXT_LEN + 1], struct sq_db *db, char *text,
				 size_t cap)
{
	open_db(path, true, db);
	sq_exec(db, "PRAGMA query_only = ON; PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA cache_size = -65536");
	enum sq_down down = sq_schema_check(db, logs, path, text, cap);
	if (down != SQ_OK)
		return down;
	read_id(db, ret_id);
	if (!db->rc && strlen(ret_id) != UUID_TEXT_LEN) {
		snprintf(text, cap, "%.110s has no store id: it is damaged, or not a store of Reins", path);
		return SQ_STAYS;
	}
	return db->rc ? sq_meaning(db, text, cap) : SQ_OK;
}

enum sq_down sq_open_to_read(const char *path, struct sq_files *f, struct sq_db *ret_tasks, struct sq_db *ret_logs, char *text,
			     size_t cap)
{
	char logs_id[UUID_TEXT_LEN + 1];
	int rc = access(path, F_OK) < 0 ? fail_errno(path, -errno, text, cap) : resolve(path, f->path, text, cap);
	if (rc < 0)
		return rc == -ENOENT || rc == -EISDIR || rc == -EINVAL ? SQ_STAYS : SQ_AGAIN;
	snprintf(f->logs, sizeof(f->logs), "%s-logs", f->path);
	rc = take_lock(f, true, text, cap);
	if (rc < 0)
		return rc == -EAGAIN || rc == -EACCES ? SQ_STAYS : SQ_AGAIN;
	enum sq_down down = open_to_read(f->path, false, f->store_id, ret_tasks, text, cap);
	if (down != SQ_OK || access(f->logs, F_OK) < 0)
		return down;
	down = open_to_read(f->logs, true, logs_id, ret_logs, text, cap);
	if (down == SQ_OK && strcmp(logs_id, f->store_id) != 0) {
		snprintf(text, cap, "%.110s holds the logs of another store: move it away", f->logs);
		down = SQ_STAYS;
	}
	return down;
}
