#!/usr/bin/env bash
# Runs the sample repository's tests and build in a sandbox and collects what
# the build made. Safe to repeat: an image that is there is not built again.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
need_linux "run a sandbox"
need_root "run a sandbox"

out=build-output-dir
say "preparing the sandbox image"
bin/agentdock image build

say "running the sample repository's tests and build in a sandbox"
rm -rf "$out"
bin/agentdock run --fixture --artifact 'dist/**' --out "$out" -- python3 tools/check.py

[[ -n $(find "$out" -name report.json 2>/dev/null) ]] ||
	die "the run ended well and $out holds no report.json: artifacts were not collected"
say "collected in $out:"
find "$out" -type f -printf '    %P (%s bytes)\n' | sort
