#!/bin/bash
# run.sh STAGE... runs stages of the tests, after making sure that this machine
# has what they need and that no crashed run is in the way. All stages run, even
# after one that failed; the exit code is 0 if none did.
#
# Stages: prepare (no tests), lint, builds, unit, integration.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$top"
export CGO_ENABLED=0 GOWORK=off
export HOME=${HOME:-/root}
export IBEX_CACHE=${IBEX_CACHE:-$HOME/.cache/ibex}
tools=$(tests/tools/build.sh --bin)

say() { echo "== $*"; }
die() { echo "tests: $*" >&2 && exit 1; }

prepare() {
	[ "$(id -u)" = 0 ] || die "the tests make containers, cgroups and mounts: run them as root"
	command -v go > /dev/null || die "Go 1.26 or newer is needed, from https://go.dev/dl/"
	# gcc: runc and the race detector. libseccomp: runc, and the tests of the filter compiler.
	tests/apt.sh ca-certificates git gcc libc6-dev pkg-config libseccomp-dev busybox-static
	clean
}

# clean takes away what crashed runs left; a run that goes on is not touched.
clean() { go run ./tests/clean; }

lint() {
	tests/tools/build.sh golangci-lint || return 1
	go vet ./... || return 1
	"$tools/golangci-lint" run || return 1
	local f
	for f in $(git ls-files '*.sh' .ci/run); do bash -n "$f" || return 1; done
}

# builds tests what the other stages do not: another architecture, the race
# detector, and libseccomp as the oracle of the filter compiler, which needs cgo.
# exec/plan builds itself in all these ways in its own tests.
builds() {
	echo "arm64" && GOARCH=arm64 go vet ./... || return 1
	echo "race detector" && CGO_ENABLED=1 go test -timeout 8m -p 1 -race ./exec ./shim ./container/... || return 1
	echo "libseccomp" && (cd tests/seccomp-oracle && CGO_ENABLED=1 go test -timeout 8m -tags seccomp ./...)
}

unit() {
	# One package at a time: several measure the machine that they share.
	go list ./... | grep -v -e /tests/integration -e /tests/bench -e /tests/vm |
		xargs go test -timeout 10m -p 1
}

integration() {
	tests/tools/build.sh containerd ctr containerd-shim-runc-v2 runc || return 1
	make --no-print-directory -s build || return 1
	PATH=$top/bin:$PATH go test -timeout 15m -count 1 -v ./tests/integration/... 2>&1 |
		grep --line-buffered -vE '^=== (RUN|PAUSE|CONT|NAME)'
}

[ $# -gt 0 ] || die "which stage? prepare, lint, builds, unit, integration"
mkdir -p "$IBEX_CACHE"
exec 8> "$IBEX_CACHE/test.lock"
flock -n 8 || { say "another run of the tests goes on; waiting for it" && flock 8; }
prepare
trap 'go run ./tests/clean -q 8>&-' EXIT
failed=()
for stage; do
	[ "$stage" != prepare ] || continue
	say "$stage"
	start=$SECONDS
	if "$stage" 8>&-; then
		took="$((SECONDS - start)) s"
		# Nothing after the last stage's own lines: they say how it went.
		[ "$stage" = "${!#}" ] || echo "== $stage: ok ($took)"
	else
		failed+=("$stage")
	fi
done
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}"
