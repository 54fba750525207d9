/* A disk that fails when told: SQLite's own file system behind a gate.  Registered as the default, so that the store
 * under test needs to know nothing of it.  Settings may be changed at any time, by any thread. */
#ifndef TESTS_STORE_FAULT_VFS_H
#define TESTS_STORE_FAULT_VFS_H

#include <stdbool.h>

/* Once, before the first connection. */
void fault_vfs_install(void);
/* Files whose name ends so; NULL: none. The string must stay. */
void fault_vfs_full(const char *suffix);       /* writes find no space */
void fault_vfs_sync_fails(const char *suffix); /* writes work, fsync doesn't */
void fault_vfs_read_fails(const char *suffix);
/* fsyncs that worked, of files whose name ends in -wal and is not a log's. */
long fault_vfs_wal_syncs(void);
/* Such a file's size when it was synced last. */
long fault_vfs_wal_synced(void);

#endif
