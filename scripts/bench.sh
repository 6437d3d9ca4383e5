#!/usr/bin/env bash
# Runs the Go benchmarks, and no tests. Benchmarks of real sandboxes need root
# and the image, and skip without them.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
need_go

if [[ $(id -u) == 0 ]]; then
	say "preparing the sandbox image"
	bin/agentdock image build
else
	say "not root: benchmarks of real sandboxes will skip"
fi
export AGENTDOCK_TEST_BIN=$PWD/bin
CGO_ENABLED=0 go test -p 1 -run '^$' -bench . -benchtime "${BENCHTIME:-50x}" ./tests/bench ./tests/live
