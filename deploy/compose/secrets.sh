#!/bin/sh
# Makes the secrets that compose.yaml names, at random, where there are none yet.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets
random() { od -An -tx1 -N24 /dev/urandom | tr -d ' \n'; }
make_secret() {
	[ -e "secrets/$1" ] || printf '%s' "$2" >"secrets/$1"
}
make_secret postgres_password "$(random)"
make_secret redis_password "$(random)"
make_secret s3_access_key "$(random)"
make_secret s3_secret_key "$(random)"
make_secret database_url "postgres://agentdock:$(cat secrets/postgres_password)@postgres:5432/agentdock?sslmode=disable"
make_secret redis_url "redis://:$(cat secrets/redis_password)@redis:6379/0"
# Compose mounts each file with its mode, and the programs are not root. The
# directory keeps everybody else on this host out.
chmod 0444 secrets/*
chmod 0700 secrets
