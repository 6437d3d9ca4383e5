# Sourced by the other scripts: the same words and checks in all of them.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

say() { printf '==> %s\n' "$*"; }

die() {
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

# need_go stops with a sentence if there is no Go that can build this module.
# A Go of 1.21 or later fetches the version that go.mod names by itself.
need_go() {
	local want have
	want=$(awk '$1 == "go" { print $2 }' go.mod)
	if ! command -v go >/dev/null && [[ -x /usr/local/go/bin/go ]]; then
		PATH=$PATH:/usr/local/go/bin # where Go's own archive goes
	fi
	command -v go >/dev/null ||
		die "cannot build: there is no Go; install Go $want or later from https://go.dev/dl and put it on the PATH"
	have=$(go env GOVERSION 2>/dev/null) ||
		die "cannot build: $(GOTOOLCHAIN=local go version 2>&1 | tail -n 1) cannot fetch Go $want; install Go $want or later from https://go.dev/dl"
	have=${have#go}
	[[ $(printf '%s\n' "$want" "${have%%[- ]*}" | sort -V | head -n 1) == "$want" ]] ||
		die "cannot build: Go $have is too old; install Go $want or later from https://go.dev/dl"
}

need_linux() {
	[[ $(uname -s) == Linux ]] || die "cannot $1: sandboxes need Linux; on other systems use a Linux virtual machine"
}

need_root() {
	[[ $(id -u) == 0 ]] ||
		die "cannot $1: sandboxes need root to set up namespaces and cgroups; run it with sudo, or use make test-fast"
}
