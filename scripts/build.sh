#!/usr/bin/env bash
# Compiles each command into bin/, static and without paths of this machine.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
need_go

commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
modified=false
[[ -z $(git status --porcelain --untracked-files=no 2>/dev/null) ]] || modified=true
# The CLI reports the gVisor of this build and does not link it, so it has to be told.
gvisor=$(go list -m -f '{{.Version}}' gvisor.dev/gvisor 2>/dev/null || echo unknown)
version=$(go list ./internal/version)

flags="-s -w -X $version.commit=$commit -X $version.modified=$modified -X $version.gvisor=$gvisor"

mkdir -p bin
for dir in cmd/*/; do
	name=$(basename "$dir")
	say "building bin/$name"
	# Go's own stamp is off: it fails the build where git refuses to answer.
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "$flags" -o "bin/$name" "./cmd/$name"
done
