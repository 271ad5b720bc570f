#!/bin/bash
# run.sh RUNTIME [PROGRAM...] runs the OCI runtime-tools validation programs on
# ibex or runc and holds the results, program by program, against runc's on the
# same kind of machine. As root; in namespaces of its own.
#
# A program passes if it asserts something, nothing of it fails, and it ends
# well with a plan; one that asserts nothing is skipped. TAP output:
# out/conformance/oci-RUNTIME/. With PROGRAMs, only the results are printed.
#
#   UPDATE=1 run.sh runc   writes the baseline
#   IBEX=FILE              an ibex that is built already
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
suite=oci

# programs builds them: each is run beside runtimetest and a root file system.
programs() {
	local p=github.com/opencontainers/runtime-tools
	cd "$here"
	rm -rf "$CONF/oci"
	mkdir -p "$CONF/oci/validation"
	go build -trimpath -ldflags '-s -w' -o "$CONF/oci/validation/" $p/validation/...
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$CONF/oci/" $p/cmd/runtimetest
	install -m 644 "$(go list -m -f '{{.Dir}}' $p)/rootfs-$(go env GOARCH).tar.gz" "$CONF/oci/"
}

# inside runs in the sandbox.
inside() {
	cd "$CONF/oci"
	[ $# -gt 0 ] || { cd validation && set -- * && cd ..; }
	local t rc ok bad skip state
	for t; do
		rc=0
		timeout 120 "validation/$t" > "$OUT/$t.tap" 2> "$OUT/$t.err" || rc=$?
		ok=$(grep -cE '^ok ' "$OUT/$t.tap" || true)
		bad=$(grep -cE '^not ok ' "$OUT/$t.tap" || true)
		skip=$(grep -ciE '^ok .*# *skip' "$OUT/$t.tap" || true)
		state=passed
		# Two have no plan: they end well if the runtime refused their configuration.
		case $t in process_capabilities_fail | process_rlimits_fail)
			[ "$rc" -eq 0 ] || state=failed
			echo "$state $t"
			continue
			;;
		esac
		if [ "$bad" -gt 0 ] || [ "$rc" -ne 0 ] || ! grep -qE '^1\.\.[0-9]' "$OUT/$t.tap"; then
			state=failed
		elif [ "$ok" -eq "$skip" ]; then
			state=skipped
		fi
		echo "$state $t"
	done > "$OUT/results"
}

if [ "${IN_SANDBOX:-}" = 1 ]; then
	inside "$@"
	exit
fi
# shellcheck source=lib.sh
. "$here/lib.sh"
runtime=${1:?which runtime? ibex or runc}
shift
prepare "$runtime"
"$here/../../apt.sh" jq
once oci "$(sha256sum "$here/go.sum" | cut -c1-16)" programs
start=$SECONDS
"$here/../sandbox.sh" "$here/run.sh" "$@" 7>&- > "$OUT/sandbox.log" 2>&1 || { cat "$OUT/sandbox.log" >&2 && die "the sandbox failed"; }
say "oci on $runtime took $((SECONDS - start)) s; output in $OUT"
if [ $# -gt 0 ]; then
	cat "$OUT/results"
	exit
fi
judge "$runtime"
