#!/usr/bin/env bash
# What can be checked without root and without services, for between edits.
# Cases that need more skip, and are named at the end.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
need_go

unset AGENTDOCK_TEST_REQUIRE_REAL
packages=$(scripts/packages.sh race)
mapfile -t packages <<<"$packages"
[[ -n ${packages[0]} ]] || die "cannot run tests: no package has any"
CGO_ENABLED=0 go run ./tools/testgate -- -short -timeout 1m "${packages[@]}"
