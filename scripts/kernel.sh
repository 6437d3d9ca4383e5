#!/usr/bin/env bash
# Fetches the Linux kernel that tests boot virtual machines with, and prints
# where it is. It is taken out of the distribution's package, which apt checks;
# nothing is installed, and this machine keeps its own kernel.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

kernel=$PWD/bin/tools/vmlinuz
if [[ ! -s $kernel ]]; then
	command -v apt-get >/dev/null || die "cannot fetch a kernel: there is no apt-get; set AGENTDOCK_TEST_KERNEL to a kernel file"
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	chmod 755 "$work" # apt downloads as another user
	# What the distribution's general package stands for.
	find_package() {
		local meta found
		for meta in linux-image-cloud-amd64 linux-image-amd64 linux-image-virtual; do
			found=$(apt-cache depends "$meta" 2>/dev/null | awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9]/ { print $2 }') || continue
			[[ -z $found ]] || { echo "${found%%$'\n'*}" && return; }
		done
	}
	package=$(find_package)
	if [[ -z $package ]] || ! (cd "$work" && apt-get download -qq "$package") >/dev/null 2>&1; then
		apt-get update -qq >&2
		package=$(find_package)
		[[ -n $package ]] || die "cannot fetch a kernel: no package source has one; set AGENTDOCK_TEST_KERNEL to a kernel file"
		(cd "$work" && apt-get download -qq "$package") >&2
	fi
	dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work" --wildcards './boot/vmlinuz-*'
	mkdir -p "$(dirname "$kernel")"
	mv "$work"/boot/vmlinuz-* "$kernel.new"
	mv "$kernel.new" "$kernel"
fi
echo "$kernel"
