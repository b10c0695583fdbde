#!/bin/sh
# Feeds the readers with whatever libFuzzer comes up with, each for a while. Ends with an error if one of them fell; the text
# that did it stays in target/fuzz/found/.
#   fuzz/run.sh [TARGET…]      all targets, unless some are named
#   FUZZ_SECONDS   for each target (60)
# No tool is needed but the toolchain: `cargo fuzz` would pass the same flags.
set -eu
cd "$(dirname "$0")/.."

seconds="${FUZZ_SECONDS:-60}"
out="$PWD/target/fuzz"
all=$(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v '^vance-fuzz$')
host=$(rustc -vV | sed -n 's/^host: //p')
sancov="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"

# With a target named, build scripts and macros are built without these flags. Not --locked: what the readers' crates newly depend on
# gets into this workspace's lock file by itself, and is no reason to fail at night.
RUSTFLAGS="$sancov --cfg fuzzing" "${CARGO:-cargo}" build --release --quiet \
    --manifest-path fuzz/Cargo.toml --target-dir "$out" --target "$host"

# fenced LANGUAGE FILE… > one file for each such block of the documents.
fenced() {
    awk -v language="$1" -v into="$2" '
        open && /^```/ { close(file); open = 0; next }
        open { print > file }
        $0 == "```" language { open = 1; file = into "/doc-" ++n }
    ' README.md docs/*.md
}

status=0
for target in ${*:-$all}; do
    corpus="$out/corpus/$target" seeds="$out/seeds/$target"
    rm -rf "$seeds" && mkdir -p "$corpus" "$seeds" "$out/found/$target"
    cp fuzz/seeds/"$target"/* "$seeds" 2>/dev/null || true
    case "$target" in
    wire) cp shared/src/wire/golden/*.json "$seeds" && fenced json "$seeds" ;;
    pack) fenced json "$seeds" ;;
    openapi) cp shared/rest/tests/cases/*.yaml "$seeds" ;;
    request) ;;
    tree)
        # Several examples have a file of the same name.
        for file in examples/*/*.yaml; do cp "$file" "$seeds/$(echo "$file" | tr / -)"; done
        fenced yaml "$seeds"
        ;;
    *) fenced yaml "$seeds" ;;
    esac
    log="$out/found/$target.log"
    if "$out/$host/release/$target" "$corpus" "$seeds" -max_total_time="$seconds" -max_len=8192 -timeout=10 \
        -rss_limit_mb=2048 -artifact_prefix="$out/found/$target/" -print_final_stats=1 >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        echo "fuzz: $target: $runs texts in $seconds s, nothing found"
        [ -z "${VANCE_SUMMARY:-}" ] || echo "$runs texts read by the $target readers" >>"$VANCE_SUMMARY"
    else
        status=1
        echo "FAIL [fuzz] $target: see $log"
        grep -E 'panicked at|ERROR: libFuzzer|Test unit written' -A 2 "$log" | head -n 12
    fi
done
exit "$status"
