#!/bin/bash
# run.sh SUITE RUNTIME [SUITE-ARG...] runs an outside suite on a runtime and holds
# the results, name by name, against the incumbent's on the same kind of machine.
#
#   SUITE    critest  the CRI validation suite, through containerd's CRI
#            client   containerd's client suite: the task API
#            cri      containerd's CRI suite: restarts, shims that die, leaks
#            bench    critest's benchmarks (N=100 lifecycles; no comparison)
#   RUNTIME  ibex     io.containerd.ibex.v1
#            dropin   ibex under the name containerd-shim-runc-v2
#            runc     containerd-shim-runc-v2 and runc: the incumbent
#
# As root, offline once built; everything runs in namespaces of its own. Results,
# logs and the daemon's log: out/conformance/SUITE-RUNTIME/. With SUITE-ARGs, such
# as -ginkgo.focus REGEXP or -test.run REGEXP, only the results are printed.
#
#   UPDATE=1 run.sh SUITE runc   writes the baseline
#   SHIM=FILE                    an ibex that is built already
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
export HOME=${HOME:-/root} CGO_ENABLED=0 GOWORK=off
export IBEX_CACHE=${IBEX_CACHE:-$HOME/.cache/ibex}
export CONF=$IBEX_CACHE/conformance

say() { echo "conformance: $*"; }
die() { echo "conformance: $*" >&2 && exit 1; }
usage() { sed -n '2,/^set -/ { /^set -/!s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}" >&2 && exit 2; }

suite=${1:-} runtime=${2:-}
case $suite in critest | client | cri | bench) ;; *) usage ;; esac
export HANDLER=ibex TYPE=io.containerd.ibex.v1 RUNC='' RUNC_FLAVOR=ibex
case $runtime in
ibex) ;;
dropin) HANDLER=runc TYPE=io.containerd.runc.v2 ;;
runc) HANDLER=runc TYPE=io.containerd.runc.v2 RUNC_FLAVOR=runc ;;
*) usage ;;
esac
shift 2
[ "$(id -u)" = 0 ] || die "the suites make namespaces, mounts and cgroups: run them as root"
command -v go > /dev/null || die "Go 1.26 or newer is needed, from https://go.dev/dl/"

mkdir -p "$CONF"
exec 7> "$CONF/run.lock"
flock -n 7 || { say "another run of a suite goes on; waiting for it" && flock 7; }
"$top/tests/tools/build.sh" containerd ctr containerd-shim-runc-v2 runc
"$here/build.sh" "${suite/bench/critest}"
(cd "$here" && go test ./results > /dev/null && go build -trimpath -o "$CONF/bin/results" ./results) ||
	die "the comparer does not pass its own tests: go test ./results in tests/conformance"

# Scratch files are on a disk: overlays do not stack on tmpfs with all features.
export RUN=$CONF/run OUT=$top/out/conformance/$suite-$runtime
prepare() {
	umount -R "$RUN"/* 2> /dev/null || true
	rm -rf "$RUN" "$OUT"
	mkdir -p "$RUN" "$OUT"
}
prepare
bin=$CONF/shim
rm -rf "$bin"
mkdir -p "$bin"
if [ "$runtime" != runc ]; then
	name=containerd-shim-ibex-v1
	[ -n "${SHIM:-}" ] || (cd "$top" && go build -trimpath -o "$bin/$name" ./cmd/$name)
	[ -z "${SHIM:-}" ] || install -m 755 "$SHIM" "$bin/$name"
	[ "$runtime" = ibex ] || mv "$bin/$name" "$bin/containerd-shim-runc-v2"
fi
export PATH=$bin:$CONF/bin:$("$top/tests/tools/build.sh" --bin):$PATH

# sandboxed ARG... runs suites.sh in its sandbox and gives its exit code. The
# cgroups that the suites leave at the top of a hierarchy go, if they were not
# there before.
sandboxed() {
	local rc=0 before d
	before=$(cgroups)
	"$here/sandbox.sh" "$here/suites.sh" "$@" 7>&- || rc=$?
	for d in $(comm -13 <(echo "$before") <(cgroups)); do
		find "$d" -depth -type d -exec rmdir {} + 2> /dev/null || true
	done
	return "$rc"
}
cgroups() {
	find /sys/fs/cgroup -maxdepth 2 -type d |
		grep -E '/(k8s\.io|testing|testing-[^/]*|nnn+)$' | sort
}

say "running $suite on $runtime"
start=$SECONDS rc=0
TIMEFORMAT='%U %S'
time=$({ time sandboxed "$suite" "$@" > "$OUT/sandbox.log" 2>&1; } 2>&1) || rc=$?
cpu=$(awk '{ print int($1 + $2 + 0.5) }' <<< "$time")
say "$suite on $runtime took $((SECONDS - start)) s and $cpu s of CPU; logs in $OUT"
[ ! -s "$OUT/sandbox.log" ] || cat "$OUT/sandbox.log"

if [ "$suite" = bench ]; then
	[ "$rc" = 0 ] || die "the benchmark failed"
	"$here/bench.sh" "$OUT"
	exit
fi

# list DIR turns what a run left there into a list of results.
list() {
	case $suite in
	critest) results critest "$1/report.json" ;;
	*) results gotest "$1/log" ;;
	esac
}
list "$OUT" > "$OUT/results" || die "no results: see $OUT/log"
if [ $# -gt 0 ]; then
	grep -v '^skipped' "$OUT/results" || true
	exit "$rc"
fi
update() {
	[ "$runtime" != runc ] || [ -z "${UPDATE:-}" ] || cp "$OUT/results" "$here/baseline/$suite.txt"
}
update
compare() {
	results compare -baseline "$here/baseline/$suite.txt" -known "$here/known/$suite-$runtime.txt" "$@" "$OUT/results"
}

# On a busy machine some tests lose races of their own, such as a signal before
# its trap is set. Few that failed get a second try, on a quieter machine: they
# run alone. It is said, and what fails twice has failed.
mapfile -t again < <(compare -names 2> /dev/null)
if [ ${#again[@]} -gt 0 ] && [ ${#again[@]} -le "${RETRY:-6}" ]; then
	say "a second try for:"
	printf '  %s\n' "${again[@]}"
	case $suite in
	critest) # ginkgo matches the texts joined by spaces
		pattern=$(printf '%s\n' "${again[@]}" | sed 's: / : :g; s/[][().*+?{}|^$\\]/\\&/g' | paste -sd '|')
		set -- -ginkgo.focus "$pattern"
		;;
	*) set -- -test.run "^($(printf '%s\n' "${again[@]%%/*}" | sort -u | paste -sd '|'))\$" ;;
	esac
	first=$OUT OUT=$OUT/again
	prepare
	sandboxed "$suite" "$@" > "$OUT/sandbox.log" 2>&1 || true
	if list "$OUT" > "$OUT/results"; then
		printf '%s\n' "${again[@]}" | results merge "$first/results" "$OUT/results" > "$first/merged"
		mv "$first/results" "$first/results-1" && mv "$first/merged" "$first/results"
	fi
	OUT=$first
	update
fi
compare
