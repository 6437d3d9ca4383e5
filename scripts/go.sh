#!/usr/bin/env bash
# The go command, after a check that it can build this module.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
need_go
exec go "$@"
