# shellcheck shell=bash
# lib.sh: sourced by run.sh beside it and by bats/run.sh, which drive a
# runc-like command line. It takes their first argument, ibex or runc, and sets
#
#   CONF     what was built for the suites, in $IBEX_CACHE or ~/.cache/ibex
#   RUN      scratch, on a disk
#   OUT      results and logs: out/conformance/SUITE-RUNTIME
#   RUNTIME  the program under test
: "${here:?}" "${suite:?}"
top=$(cd "$here/../../.." && pwd)
export HOME=${HOME:-/root} GOWORK=off
export IBEX_CACHE=${IBEX_CACHE:-$HOME/.cache/ibex}
export CONF=$IBEX_CACHE/conformance
export RUN=$CONF/run-cli

say() { echo "conformance: $*" >&2; }
die() { say "$*" && exit 1; }

# once NAME KEY CMD... runs CMD unless it already ran with this KEY.
once() {
	local name=$1 key="$2 $(go env GOVERSION GOARCH | xargs)" mark=$CONF/.built/$1 start=$SECONDS
	shift 2
	[ "$(cat "$mark" 2> /dev/null)" != "$key" ] || return 0
	say "building $name"
	rm -f "$mark"
	# In the background, or errexit would not hold in it.
	("$@") > "$CONF/.built/$name.log" 2>&1 &
	wait $! || {
		tail -n 30 "$CONF/.built/$name.log" >&2
		die "$name: it did not build; the whole log is $CONF/.built/$name.log"
	}
	echo "$key" > "$mark"
	say "$name: built in $((SECONDS - start)) s"
}

# prepare RUNTIME builds it and makes a fresh RUN and OUT.
prepare() {
	[ "$(id -u)" = 0 ] || die "the suite makes namespaces, mounts and cgroups: run it as root"
	command -v go > /dev/null || die "Go 1.26 or newer is needed, from https://go.dev/dl/"
	mkdir -p "$CONF/.built"
	exec 7> "$CONF/cli.lock"
	flock -n 7 || { say "another run of a suite goes on; waiting for it" && flock 7; }
	"$here/../build.sh"
	(cd "$here/.." && CGO_ENABLED=0 go build -trimpath -o "$CONF/bin/results" ./results)
	export OUT=$top/out/conformance/$suite-$1
	umount -R "$RUN"/* 2> /dev/null || true
	rm -rf "$RUN" "$OUT"
	mkdir -p "$RUN/bin" "$OUT"
	case $1 in
	ibex)
		export RUNTIME=$RUN/bin/ibex
		[ -z "${IBEX:-}" ] || install -m 755 "$IBEX" "$RUNTIME"
		[ -n "${IBEX:-}" ] || (cd "$top" && CGO_ENABLED=0 go build -trimpath -o "$RUNTIME" ./cmd/ibex)
		;;
	runc)
		"$top/tests/tools/build.sh" runc
		RUNTIME=$(realpath "$("$top/tests/tools/build.sh" --bin)/runc")
		export RUNTIME
		;;
	*) die "which runtime? ibex or runc" ;;
	esac
	export PATH=$CONF/bin:$PATH
}

# judge RUNTIME holds the results against the incumbent's.
judge() {
	if [ "$1" = runc ] && [ -n "${UPDATE:-}" ]; then
		cp "$OUT/results" "$here/baseline.txt"
		say "wrote baseline.txt"
	fi
	results compare -baseline "$here/baseline.txt" -known "$here/known-$1.txt" "$OUT/results"
}
