#!/bin/bash
# Clients and proxies of others against a real master and worker: tests/interop.  At its end stands a table: client, version,
# protocol, what was called, result.  What can't be had here (the npm registry, a package) is skipped and says so.
#
#   interop.sh [BUILD [ARGUMENT OF PYTEST...]]
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build-tests}
shift || true
[ $# -gt 0 ] || set -- tests/interop
REINS_BUILD=$build exec /usr/bin/python3 -m pytest -q -p no:cacheprovider --tb=short "$@"
