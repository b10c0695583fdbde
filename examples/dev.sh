#!/usr/bin/env bash
# A Brain with a Foot in this folder, on your own home. Ctrl-C ends both.
set -euo pipefail
cd "$(dirname "$0")/.."
bin="$(cd "${CARGO_TARGET_DIR:-target}/debug" && pwd)"
# The Foot starts when the Brain is there; a Brain that does not start has said why.
exec 3< <(exec "$bin/vance-brain" serve)
brain=$!
trap 'kill "$brain" 2>/dev/null; wait "$brain" 2>/dev/null || true' EXIT
IFS= read -r ready <&3
echo "$ready"
echo "In another terminal, for example: $bin/vancetope tasks   (Ctrl-C here ends both)"
"$bin/vancetope" --no-ui
