#!/bin/sh
# Why the store's schema is as it is: runs schema_choice.sql on a private Postgres, with a second session that
# holds an old snapshot for its last part.  About half a minute.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
dir=$(mktemp -d /tmp/reins-schema-XXXXXX)
as=''
if [ "$(id -u)" = 0 ]; then
	chown postgres "$dir"
	as='runuser -u postgres --'
fi
cd "$dir"
holder=''
finish() {
	if [ -n "$holder" ]; then
		kill "$holder" 2>/dev/null || true
	fi
	$as "$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1 || true
	rm -rf "$dir"
}
trap finish EXIT
$as "$bin/initdb" -D "$dir/data" -U reins -A trust -E UTF8 --locale=C --no-sync >/dev/null
$as "$bin/pg_ctl" -D "$dir/data" -w -l "$dir/log" \
	-o "-k $dir -c listen_addresses='' -c fsync=off -c shared_buffers=128MB -c autovacuum_naptime=1s" start >/dev/null
export PGHOST="$dir" PGUSER=reins PGDATABASE=postgres HOLD_DIR="$dir"
(
	while [ ! -e "$dir/go" ]; do sleep 0.1; done
	printf '%s\n' 'BEGIN ISOLATION LEVEL REPEATABLE READ;' 'SELECT count(*) FROM pg_class;' "\\! touch $dir/held" 'SELECT pg_sleep(60);' |
		psql -qAt >/dev/null 2>&1
) &
holder=$!
psql -q -f "$here/schema_choice.sql"
