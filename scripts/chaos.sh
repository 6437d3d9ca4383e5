#!/usr/bin/env bash
# The long forms of tests/chaos and tests/platform. KILLS is how many (2000 unless
# set), and ROUNDS how often each fault of the platform is caused (5); a run is
# made again with AGENTDOCK_CHAOS_SEED.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
need_go
need_linux "kill sandboxes"
need_root "kill sandboxes"

export AGENTDOCK_TEST_BIN=$PWD/bin
mkdir -p docs/benchmarks
CGO_ENABLED=0 go test ./tests/chaos -count=1 -v -timeout 2h \
	-chaos.kills "${KILLS:-2000}" -chaos.report "$PWD/docs/benchmarks/chaos.md"
CGO_ENABLED=0 go test ./tests/platform -count=1 -v -timeout 2h \
	-platform.rounds "${ROUNDS:-2}" -platform.report "$PWD/docs/benchmarks/platform-faults.md"
