#!/usr/bin/env bash
# Prints the packages with tests, one a line, in two groups.
#
# alone: those that link gVisor, whose sentry does not work under the race
# detector and takes minutes to compile for it; and those below tests/, which
# measure and limit the resources of the machine, so that nothing else may run.
# race: all others, which are tested with the race detector and side by side.
#
# Usage: packages.sh alone | race
set -euo pipefail
source "$(dirname "$0")/lib.sh"
need_go

[[ ${1:-} == alone || ${1:-} == race ]] || die "want one argument: alone or race"
module=$(go list -m)

# "go list -test" lists each test binary as <package>.test, with all it is made of.
# shellcheck disable=SC2016 # this is a Go template
template='{{if eq .Name "main"}}{{.ImportPath}} {{join .Deps " "}}{{end}}'
go list -test -f "$template" ./... |
	awk -v want="$1" -v tests="$module/tests/" '$1 ~ /\.test$/ {
		alone = (index($0, " gvisor.dev/gvisor/") > 0) || (index($1, tests) == 1)
		if ((want == "alone") == alone) { sub(/\.test$/, "", $1); print $1 }
	}'
