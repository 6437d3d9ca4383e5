#!/usr/bin/env bash
# Installs the Debian packages that AgentDock needs and this machine lacks.
# Installs nothing, and needs no root, where they are all present.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

# package, what shows that it is there, and why it is needed
needed=(
	"erofs-utils|/usr/bin/mkfs.erofs|makes the read-only root image of a sandbox"
	"mmdebstrap|/usr/bin/mmdebstrap|fetches the contents of the default image"
	"debian-archive-keyring|/usr/share/keyrings/debian-archive-keyring.gpg|checks the signatures of those contents"
	"ca-certificates|/etc/ssl/certs/ca-certificates.crt|lets downloads be verified"
	"git|/usr/bin/git|checks out repositories"
)
if [[ ${1:-} == --tests ]]; then
	needed+=(
		"gcc|/usr/bin/gcc|links tests with the race detector"
		"libc6-dev|/usr/include/stdlib.h|links tests with the race detector"
		"systemd|/usr/bin/systemd-analyze|checks the units, without running"
		"postgresql|/usr/lib/postgresql/*/bin/postgres|is the database that tests use"
		"redis-server|/usr/bin/redis-server|is the broker that tests use"
		"npm|/usr/bin/npm|installs the clients that tests run against this platform"
		"docker.io|/usr/sbin/dockerd|is the daemon of the development fallback"
		"uidmap|/usr/bin/newuidmap|lets that daemon run without root"
		"rootlesskit|/usr/bin/rootlesskit|lets that daemon run without root"
		"slirp4netns|/usr/bin/slirp4netns|is the network of that daemon, where it has one"
		"qemu-system-x86|/usr/bin/qemu-system-x86_64|boots a machine with the other version of cgroups"
	)
fi

missing=()
for entry in "${needed[@]}"; do
	IFS='|' read -r package proof why <<<"$entry"
	# The proof may be a pattern, where a version is part of the path.
	if ! compgen -G "$proof" >/dev/null && ! command -v "$(basename "$proof")" >/dev/null; then
		say "missing: $package, which $why"
		missing+=("$package")
	fi
done
# A Go of 1.21 or later fetches the version that go.mod names. Older ones cannot,
# and need_go then says what to do.
if ! command -v go >/dev/null && [[ ! -x /usr/local/go/bin/go ]] && command -v apt-cache >/dev/null; then
	[[ $(id -u) != 0 ]] || apt-get update -qq
	candidate=$(apt-cache policy golang-go 2>/dev/null | awk '/Candidate:/ { print $2 }')
	if [[ -n $candidate && $candidate != "(none)" ]] && dpkg --compare-versions "$candidate" ge "2:1.21"; then
		say "missing: golang-go, which compiles AgentDock"
		missing+=(golang-go)
	fi
fi
[[ ${#missing[@]} -gt 0 ]] || exit 0

command -v apt-get >/dev/null ||
	die "cannot install ${missing[*]}: this is neither Debian nor Ubuntu; install them, by the names they have here, and try again"
[[ $(id -u) == 0 ]] ||
	die "cannot install ${missing[*]}: that needs root; run: sudo apt-get install ${missing[*]}"

say "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "${missing[@]}" >/dev/null
