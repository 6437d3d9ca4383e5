#!/usr/bin/env bash
# Runs every fuzz target of the tree for some seconds each. Targets are found by
# looking for them, so that none is forgotten.
#
# FUZZTIME is how long each runs (10s unless set). A failing input is kept in
# testdata/fuzz of its package, where every later test run tries it again.
#
# Usage: fuzz.sh [part of a target's name]
set -euo pipefail
source "$(dirname "$0")/lib.sh"
need_go

targets=$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's#^\./(.*)/[^/]*:func (Fuzz.*)#\1 \2#' | sort)
[[ -n $targets ]] || die "cannot fuzz: there are no targets"
time=${FUZZTIME:-10s}
failed=() ran=0

while read -r package target; do
	[[ $target == *"${1:-}"* ]] || continue
	ran=$((ran + 1))
	say "$target in $package, $time"
	# Without a bound on minimizing, most of the time goes into making inputs
	# shorter that are new for reasons of timing.
	CGO_ENABLED=0 go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 5x -parallel 2 \
		"./$package" </dev/null | grep -vE '^(PASS|ok)' || failed+=("$package.$target")
done <<<"$targets"

[[ $ran -gt 0 ]] || die "cannot fuzz: no target is called like ${1:-}"
[[ ${#failed[@]} -eq 0 ]] || die "failed: ${failed[*]}"
say "$ran fuzz targets found nothing"
