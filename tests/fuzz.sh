#!/bin/bash
# fuzz.sh [TIME] runs every fuzz target of the module for TIME (30s), one after
# the other. A crasher is written to testdata/fuzz beside its test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:-30s}
for dir in $(grep -rl --include '*_test.go' '^func Fuzz' . | xargs -r -n 1 dirname | sort -u); do
	for target in $(go test -list '^Fuzz' "$dir" | grep '^Fuzz'); do
		echo "== $dir $target for $time"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir"
	done
done
