#!/usr/bin/env bash
# Runs the linters, and shellcheck where it is installed. golangci-lint is built
# from source at a pinned version, so that its verdict is the same everywhere;
# the first time takes some minutes.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
need_go

version=v2.15.0
linter=bin/tools/golangci-lint-$version
if [[ ! -x $linter ]]; then
	say "building golangci-lint $version"
	mkdir -p bin/tools
	CGO_ENABLED=0 GOBIN=$PWD/bin/tools go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
	mv bin/tools/golangci-lint "$linter"
fi
say "golangci-lint"
CGO_ENABLED=0 "$linter" run ./...

if command -v shellcheck >/dev/null; then
	say "shellcheck"
	shellcheck -x --source-path=SCRIPTDIR scripts/*.sh .ci/run
else
	say "shellcheck is not installed: scripts are not checked"
fi
