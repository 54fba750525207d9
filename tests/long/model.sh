#!/bin/bash
# All configurations and mutations of the protocol's model, and the large ones: half an hour of one core, up to 5 GB.
set -euo pipefail
code=0
"$(dirname "$0")/../model/run" && "$(dirname "$0")/../model/run" --large || code=$?
[ $code -ne 77 ] || exit 0 # it has said why
exit $code
