#!/usr/bin/env bash
# Everything that must hold, on real sandboxes. A case that cannot run here
# fails the run, unless scripts/allowed-skips.txt names it with a reason.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
need_go
need_linux "run all tests"
need_root "run all tests"
scripts/deps.sh --tests
kernel=$(scripts/kernel.sh)

say "gofmt"
unformatted=$(gofmt -l .)
[[ -z $unformatted ]] || die "these files are not formatted; run gofmt -w on them: ${unformatted//$'\n'/ }"

say "go vet"
go vet ./...

say "preparing the sandbox image"
bin/agentdock image build

# In variables first: bash does not notice a failure inside <(...).
race=$(scripts/packages.sh race)
alone=$(scripts/packages.sh alone)
mapfile -t race <<<"$race"
[[ -n ${race[0]} ]] || die "cannot run tests: no package has any"

export AGENTDOCK_TEST_REQUIRE_REAL=1
export AGENTDOCK_TEST_BIN=$PWD/bin
export AGENTDOCK_TEST_KERNEL=$kernel
gate=$(mktemp -d)
trap 'rm -rf "$gate"' EXIT
go build -buildvcs=false -o "$gate/testgate" ./tools/testgate
# What failed, again and in short, for whoever starts this script.
failures=${AGENTDOCK_TEST_FAILURES:-$gate/failures}
failed=()

say "tests with the race detector: ${#race[@]} packages"
CGO_ENABLED=1 "$gate/testgate" -strict -allow scripts/allowed-skips.txt -failures "$failures" -- \
	-race -count=1 -timeout 10m "${race[@]}" || failed+=("with the race detector")

if [[ -n $alone ]]; then
	mapfile -t alone <<<"$alone"
	say "tests on real sandboxes, one package at a time: ${#alone[@]} packages"
	CGO_ENABLED=0 "$gate/testgate" -strict -allow scripts/allowed-skips.txt -failures "$failures" -- \
		-p 1 -count=1 -timeout 20m "${alone[@]}" || failed+=("on real sandboxes")
fi

[[ ${#failed[@]} -eq 0 ]] || die "tests failed: ${failed[*]}"
say "all tests passed"
