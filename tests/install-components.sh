#!/bin/sh
# Installs the real MCP servers that the tests talk to, in pinned versions, outside the tree:
#   $VANCE_TEST_CACHE (default ~/.cache/vancetope-test)/npm/node_modules   servers from npm
#   $VANCE_TEST_CACHE/venv                                               servers from PyPI
# Runs again at no cost: what is there in the right version stays.
set -eu

cache="${VANCE_TEST_CACHE:-$HOME/.cache/vancetope-test}"
npm_packages="@modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31"
pip_packages="mcp-server-git==2026.10.19 mcp-server-time==2026.10.19"

mkdir -p "$cache"
# Two runs at once must not write into one folder.
if command -v flock >/dev/null 2>&1; then
    exec 9>"$cache/.lock"
    flock 9
fi

stamp_is() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

if stamp_is "$cache/npm/.installed" "$npm_packages"; then
    echo "npm servers: present in $cache/npm"
else
    command -v npm >/dev/null || { echo "npm not found: install Node.js 20 or newer" >&2; exit 1; }
    rm -rf "$cache/npm" && mkdir -p "$cache/npm"
    # shellcheck disable=SC2086 # a list of words
    npm install --prefix "$cache/npm" --no-audit --no-fund --loglevel=error $npm_packages
    printf '%s' "$npm_packages" >"$cache/npm/.installed"
    echo "npm servers: installed in $cache/npm"
fi

if stamp_is "$cache/venv/.installed" "$pip_packages"; then
    echo "PyPI servers: present in $cache/venv"
else
    command -v python3 >/dev/null || { echo "python3 not found: install Python 3.10 or newer" >&2; exit 1; }
    rm -rf "$cache/venv"
    python3 -m venv "$cache/venv"
    # shellcheck disable=SC2086
    "$cache/venv/bin/pip" install --quiet --disable-pip-version-check $pip_packages
    printf '%s' "$pip_packages" >"$cache/venv/.installed"
    echo "PyPI servers: installed in $cache/venv"
fi
