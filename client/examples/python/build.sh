#!/bin/sh
# Makes the Python modules of the contract: build.sh [FOLDER], default build-examples/python of this repository.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
out=${1:-$root/build-examples/python}
mkdir -p "$out"
protoc -I"$root/proto" -I/usr/include --python_out="$out" --grpc_python_out="$out" \
	--plugin=protoc-gen-grpc_python="$(command -v grpc_python_plugin)" "$root"/proto/reins/v1/*.proto
