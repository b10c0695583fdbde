set -eu
[ "$(sh greet.sh world)" = "hello world" ]
echo "1 test passed"
