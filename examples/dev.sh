#!/usr/bin/env bash
# A Brain with a Foot in this folder, on your own home. Ctrl-C ends both.
set -euo pipefail
cd "$(dirname "$0")/.."
bin="$(cd "${CARGO_TARGET_DIR:-target}/debug" && pwd)"
"$bin/vance-brain" serve &
brain=$!
trap 'kill "$brain" 2>/dev/null; wait "$brain" 2>/dev/null || true' EXIT
"$bin/vancetope" --no-ui
