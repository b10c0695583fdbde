echo "hello $1"
