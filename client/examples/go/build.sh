#!/bin/sh
# Makes the Go package of the contract and builds the client with Debian's packages, without the network:
# build.sh [FOLDER], default build-examples/go of this repository. The program is FOLDER/client.
#
# (golang-github-golang-protobuf-1-5-dev, and not 1-3: the older one can't read what protoc-gen-go makes.)
#
# With modules instead: run the same protoc line, put a go.mod beside client.go, and `go get google.golang.org/grpc`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=${1:-$root/build-examples/go}
mkdir -p "$out/src"
out=$(cd "$out" && pwd)
protoc -I"$root/proto" -I/usr/include --go_out="$out/src" --go-grpc_out="$out/src" "$root"/proto/reins/v1/*.proto
# Package "reins.dev/reins/v1" is now below $out/src, and Debian's libraries are below /usr/share/gocode/src.
GO111MODULE=off GOFLAGS='' GOPATH="$out:/usr/share/gocode" go build -o "$out/client" "$here/client.go"
