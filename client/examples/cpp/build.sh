#!/bin/sh
# Makes the C++ code of the contract and builds the client: build.sh [FOLDER], default build-examples/cpp of this
# repository. The program is FOLDER/client. CXX and CXXFLAGS as usual.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=${1:-$root/build-examples/cpp}
mkdir -p "$out"
protoc -I"$root/proto" -I/usr/include --cpp_out="$out" --grpc_out="$out" \
	--plugin=protoc-gen-grpc="$(command -v grpc_cpp_plugin)" reins/v1/task.proto reins/v1/task_service.proto
# shellcheck disable=SC2046,SC2086
${CXX:-g++} -std=c++17 ${CXXFLAGS--O1} -I"$out" -o "$out/client" "$here/client.cc" "$out"/reins/v1/*.cc \
	$(pkg-config --cflags --libs grpc++ protobuf)
