#!/bin/bash
# Ten minutes of faults with two masters on Postgres and Redis, three with one on SQLite.
set -euo pipefail
export REINS_BUILD=$1
code=0
"$(dirname "$0")/../chaos/run" --minutes 10 || code=1
"$(dirname "$0")/../chaos/run" --minutes 3 --store sqlite || code=1
exit $code
