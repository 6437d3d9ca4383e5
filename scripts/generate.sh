#!/bin/sh
# Regenerates the Go code of api/execd/v1/execd.proto. With --check it changes
# nothing and fails when what is committed differs. Versions are pinned: other
# ones write other code.
set -eu

PROTOC_VERSION=3.21.12 # Debian 12, package protobuf-compiler
GEN_GO=google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GEN_CONNECT=connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1

cd "$(dirname "$0")/.."

have=$(protoc --version 2>/dev/null | cut -d' ' -f2) || true
if [ "$have" != "$PROTOC_VERSION" ]; then
	echo "cannot generate: protoc is '${have:-missing}', need $PROTOC_VERSION; install Debian's protobuf-compiler" >&2
	exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GOBIN="$work/bin" go install "$GEN_GO"
GOBIN="$work/bin" go install "$GEN_CONNECT"
mkdir "$work/out"
PATH="$work/bin:$PATH" protoc -I . \
	--go_out="$work/out" --go_opt=paths=source_relative \
	--connect-go_out="$work/out" --connect-go_opt=paths=source_relative \
	api/execd/v1/execd.proto

if [ "${1:-}" = --check ]; then
	for f in api/execd/v1/execd.pb.go api/execd/v1/execdv1connect/execd.connect.go; do
		if ! diff -q "$f" "$work/out/$f" >/dev/null 2>&1; then
			echo "$f is not what execd.proto generates; run scripts/generate.sh and commit it" >&2
			exit 1
		fi
	done
	exit 0
fi
cp -R "$work/out/api" .
