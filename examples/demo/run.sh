#!/usr/bin/env bash
# The main job, live: a Brain, a Foot with a real MCP server from npm, a task tree whose last task waits for a second Foot.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin="${CARGO_TARGET_DIR:-target}/debug"
bin="$(cd "$bin" && pwd)"
here="$(pwd)/examples/demo"
cache="${VANCE_TEST_CACHE:-$HOME/.cache/vancetope-test}"
work="$(mktemp -d "${TMPDIR:-/tmp}/vancetope-demo.XXXXXX")"
pids=()
unset VANCE_BRAIN VANCE_TOKEN VANCE_HOME VANCE_BRAIN_LISTEN

cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# Waits for a line in a file: at most a minute.
await() {
  for _ in $(seq 600); do
    grep -q "$2" "$1" 2>/dev/null && return 0
    sleep 0.1
  done
  echo "waited in vain for '$2':" >&2
  cat "$1" "${1%.out}.log" >&2 || true
  exit 1
}

mkdir -p "$work/home/foot-tools" "$work/home2" "$work/laptop1" "$work/laptop2"
echo "milk, bread, tea" > "$work/laptop1/shopping.txt"
echo "Boil the water, add the tea." > "$work/laptop2/recipe.txt"
cat > "$work/home/foot-tools/everything.json" <<JSON
{
  "name": "everything",
  "type": "mcp_server",
  "parameters": {
    "transport": "stdio",
    "command": ["node", "$cache/npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js", "stdio"]
  }
}
JSON

say "1. The Brain starts"
VANCE_HOME="$work/home" "$bin/vance-brain" serve --listen 127.0.0.1:0 > "$work/brain.out" 2> "$work/brain.log" &
pids+=($!)
await "$work/brain.out" '^brain ready'
brain="$(sed -n 's/^brain ready //p' "$work/brain.out")"
echo "brain ready $brain"

say "2. The first Foot connects: native tools and @modelcontextprotocol/server-everything"
(cd "$work/laptop1" && VANCE_HOME="$work/home" exec "$bin/vancetope" --daemon --brain "$brain" --name first) > "$work/foot1.out" 2> "$work/foot1.log" &
pids+=($!)
await "$work/foot1.out" '^foot ready'
(cd "$work/laptop1" && VANCE_HOME="$work/home" "$bin/vancetope" sessions list --brain "$brain")

say "3. A task tree of four tasks; the last one needs a laptop that is not there"
export VANCE_HOME="$work/home" VANCE_BRAIN="$brain"
(
  # As soon as everything else is done and the last task waits, the second laptop is opened.
  for _ in $(seq 600); do
    waiting="$("$bin/vancetope" tasks list --state blocked --json 2>/dev/null | grep -c 'Waiting for Client for Tool: read_local_file' || true)"
    finished="$("$bin/vancetope" tasks list --state completed --json 2>/dev/null | { grep -o '"task_id"' || true; } | wc -l)"
    [ "$waiting" -ge 1 ] && [ "$finished" -ge 3 ] && break
    sleep 0.2
  done
  sleep 2
  touch "$work/second-opened"
  cd "$work/laptop2"
  VANCE_TOKEN="$(cat "$work/home/brain/local.token")" VANCE_HOME="$work/home2" exec "$bin/vancetope" --daemon --brain "$brain" --name second
) > "$work/foot2.out" 2> "$work/foot2.log" &
pids+=($!)
"$bin/vancetope" run --no-tools "$here/tree.yaml"

say "4. What came out"
[ -e "$work/second-opened" ] || { echo "the last task did not wait for the second Foot" >&2; exit 1; }
"$bin/vancetope" tasks list
last="$("$bin/vancetope" tasks list --json | grep -o '"task_id": *"[^"]*"' | cut -d'"' -f4 | sort | tail -n 1)"
"$bin/vancetope" tasks show "$last"
say "Done: the task for the second laptop waited, was requeued by itself and completed."
