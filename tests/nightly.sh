#!/bin/sh
# Runs every test with many more random cases, the long ones included, and says at the end what was run.
#   SEEDS           seeds of the simulations (1000)
#   PROPTEST_CASES  cases of each property, at least (5000)
# Other arguments go to cargo nextest run, such as a filter.
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

minutes=$((($(date +%s) - begin + 59) / 60))
echo
echo "nightly run, $(date -u +%F), $minutes minutes, $(uname -sm), $(getconf _NPROCESSORS_ONLN) cores"
sed -n 's/^ *Summary \[[^]]*\] */  /p' "$log" | tail -n 1
awk '{ n = $1; $1 = ""; sum[$0] += n } END { for (what in sum) printf "  %d%s\n", sum[what], what }' "$VANCE_SUMMARY" | sort -k 2
echo "  $PROPTEST_CASES cases of each property, at least"
grep -E '^ *(FAIL|SIG[A-Z]+|ABORT|TIMEOUT|LEAK-FAIL) \[' "$log" | sort -u
exit "$status"
