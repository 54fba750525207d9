/* The migrations, embedded from schema/: the i-th leads from version i to i + 1. */
#ifndef REINS_PG_SCHEMA_SQL_H
#define REINS_PG_SCHEMA_SQL_H

#define PG_SCHEMA_VERSION 6
extern const char *const pg_schema_migrations[PG_SCHEMA_VERSION];

#endif
