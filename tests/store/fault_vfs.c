#include "tests/store/fault_vfs.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct file {
	sqlite3_file base;
	const char *name; /* SQLite keeps it as long as the file is open */
	sqlite3_file *real;
};

static sqlite3_vfs gate, *disk;
static _Atomic(const char *) full, sync_fails, read_fails;
static atomic_long syncs, synced;

static bool ends(const char *name, const char *suffix)
{
	size_t n = name ? strlen(name) : 0, s = suffix ? strlen(suffix) : 0;
	return suffix && n >= s && strcmp(name + n - s, suffix) == 0;
}

static struct file *of(sqlite3_file *f) { return (struct file *)(void *)f; }
static sqlite3_file *real(sqlite3_file *f) { return of(f)->real; }

static int on_close(sqlite3_file *f) { return real(f)->pMethods ? real(f)->pMethods->xClose(real(f)) : SQLITE_OK; }

static int on_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
	return ends(of(f)->name, read_fails) ? SQLITE_IOERR_READ : real(f)->pMethods->xRead(real(f), to, n, at);
}

static int on_write(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
	return ends(of(f)->name, full) ? SQLITE_FULL : real(f)->pMethods->xWrite(real(f), from, n, at);
}

static int on_truncate(sqlite3_file *f, sqlite3_int64 n) { return real(f)->pMethods->xTruncate(real(f), n); }

static int on_size(sqlite3_file *f, sqlite3_int64 *n) { return real(f)->pMethods->xFileSize(real(f), n); }
static int on_sync(sqlite3_file *f, int flags)
{
	if (ends(of(f)->name, sync_fails))
		return SQLITE_IOERR_FSYNC;
	sqlite3_int64 size = 0;
	bool counts = ends(of(f)->name, "-wal") && !ends(of(f)->name, "-logs-wal");
	if (counts)
		on_size(f, &size);
	int rc = real(f)->pMethods->xSync(real(f), flags);
	if (rc == SQLITE_OK && counts) {
		atomic_fetch_add(&syncs, 1);
		synced = (long)size;
	}
	return rc;
}

static int on_lock(sqlite3_file *f, int l) { return real(f)->pMethods->xLock(real(f), l); }
static int on_unlock(sqlite3_file *f, int l) { return real(f)->pMethods->xUnlock(real(f), l); }
static int on_check(sqlite3_file *f, int *r) { return real(f)->pMethods->xCheckReservedLock(real(f), r); }
static int on_control(sqlite3_file *f, int op, void *arg) { return real(f)->pMethods->xFileControl(real(f), op, arg); }
static int on_sector(sqlite3_file *f) { return real(f)->pMethods->xSectorSize(real(f)); }
static int on_device(sqlite3_file *f) { return real(f)->pMethods->xDeviceCharacteristics(real(f)); }
static int on_map(sqlite3_file *f, int page, int size, int extend, void volatile **ret)
{
	return real(f)->pMethods->xShmMap(real(f), page, size, extend, ret);
}
static int on_shm_lock(sqlite3_file *f, int at, int n, int flags) { return real(f)->pMethods->xShmLock(real(f), at, n, flags); }
static void on_barrier(sqlite3_file *f) { real(f)->pMethods->xShmBarrier(real(f)); }
static int on_unmap(sqlite3_file *f, int drop) { return real(f)->pMethods->xShmUnmap(real(f), drop); }

static const sqlite3_io_methods methods = {
	2, on_close, on_read, on_write, on_truncate, on_sync, on_size, on_lock, on_unlock, on_check, on_control, on_sector,
	on_device, on_map, on_shm_lock, on_barrier, on_unmap, NULL, NULL,
};

static int on_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *ret_flags)
{
	struct file *file = of(f);
	file->name = name;
	file->real = (sqlite3_file *)(void *)(file + 1);
	memset(file->real, 0, (size_t)disk->szOsFile);
	int rc = disk->xOpen(disk, name, file->real, flags, ret_flags);
	file->base.pMethods = rc == SQLITE_OK ? &methods : NULL;
	return rc;
}

void fault_vfs_install(void)
{
	disk = sqlite3_vfs_find(NULL);
	gate = *disk;
	gate.zName = "fault";
	gate.szOsFile = (int)sizeof(struct file) + disk->szOsFile;
	gate.xOpen = on_open;
	if (sqlite3_vfs_register(&gate, 1) != SQLITE_OK)
		abort();
}

void fault_vfs_full(const char *suffix) { full = suffix; }
void fault_vfs_sync_fails(const char *suffix) { sync_fails = suffix; }
void fault_vfs_read_fails(const char *suffix) { read_fails = suffix; }
long fault_vfs_wal_syncs(void) { return syncs; }
long fault_vfs_wal_synced(void) { return synced; }
