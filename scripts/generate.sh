#!/bin/sh
# Regenerates the Go code of the .proto files and of api/openapi.yaml. With
# --check it changes nothing and fails when what is committed differs. Versions
# are pinned: other ones write other code.
set -eu

PROTOC_VERSION=3.21.12 # Debian 12, package protobuf-compiler
GEN_GO=google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GEN_CONNECT=connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1
GEN_OPENAPI=github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2

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
GOBIN="$work/bin" go install "$GEN_OPENAPI"
mkdir -p "$work/out/api" "$work/out/internal/httpapi"
PATH="$work/bin:$PATH" protoc -I . \
	--go_out="$work/out" --go_opt=paths=source_relative \
	--connect-go_out="$work/out" --connect-go_opt=paths=source_relative \
	api/execd/v1/execd.proto \
	internal/compat/e2b/processpb/process.proto internal/compat/e2b/filesystempb/filesystem.proto

openapi() { # config, output
	"$work/bin/oapi-codegen" -config "$1" -o "$work/out/$2" api/openapi.yaml
}
openapi api/types.cfg.yaml api/types.gen.go
openapi internal/httpapi/server.cfg.yaml internal/httpapi/server.gen.go

if [ "${1:-}" = --check ]; then
	for f in api/execd/v1/execd.pb.go api/execd/v1/execdv1connect/execd.connect.go \
		internal/compat/e2b/processpb/process.pb.go internal/compat/e2b/processpb/processpbconnect/process.connect.go \
		internal/compat/e2b/filesystempb/filesystem.pb.go internal/compat/e2b/filesystempb/filesystempbconnect/filesystem.connect.go \
		api/types.gen.go internal/httpapi/server.gen.go; do
		if ! diff -q "$f" "$work/out/$f" >/dev/null 2>&1; then
			echo "$f is not what the contract generates; run scripts/generate.sh and commit it" >&2
			exit 1
		fi
	done
	exit 0
fi
cp -R "$work/out/api" "$work/out/internal" .
