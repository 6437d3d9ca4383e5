#!/bin/sh
# Takes away what no program in a sandbox needs: package lists and caches,
# documentation, translations, logs, and where the packages came from (a
# mirror's address can be internal or hold a password). The C.UTF-8 locale
# stays; it is part of libc-bin and not in /usr/share/locale.
#
# Runs inside the image while it is built, as root.
set -eu
rm -rf \
	/etc/apt/apt.conf.d/99mmdebstrap \
	/etc/apt/auth.conf \
	/etc/apt/auth.conf.d/* \
	/etc/apt/sources.list \
	/etc/apt/sources.list.d/* \
	/etc/ssh/ssh_host_* \
	/usr/share/doc-base \
	/usr/share/groff \
	/usr/share/info \
	/usr/share/lintian \
	/usr/share/linda \
	/usr/share/locale/* \
	/usr/share/man \
	/var/cache/apt/* \
	/var/cache/debconf/*-old \
	/var/lib/apt/lists/* \
	/var/lib/dpkg/*-old \
	/var/log/*.log \
	/var/log/apt
# Licences must stay with what they cover.
find /usr/share/doc -depth -type f ! -name copyright -delete
find /usr/share/doc -depth -type l ! -name copyright -delete 2>/dev/null || true
find /usr/share/doc -depth -type d -empty -delete
: >/etc/machine-id
