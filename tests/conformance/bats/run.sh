#!/bin/bash
# run.sh RUNTIME [FILE.bats...] runs runc's own command-line tests on ibex or
# runc and holds the results, test by test, against runc's on the same kind of
# machine. As root; in namespaces of its own.
#
# The tests come from the version of runc that tests/tools pins; the two root
# file systems that they download are made here. TAP output:
# out/conformance/bats-RUNTIME/. With FILEs, only the results are printed.
#
#   UPDATE=1 run.sh runc   writes the baseline
#   IBEX=FILE              an ibex that is built already
#   T=300, TRIES=2         seconds for one file, and how often one with failures is tried
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
suite=bats

# layout copies the tests and builds their helper programs.
layout() {
	local src=$1 d arch
	arch=$(go env GOARCH)
	rm -rf "$CONF/runc"
	mkdir -p "$CONF/runc"
	cp -r "$src/tests" "$src/go.mod" "$CONF/runc/"
	chmod -R u+w "$CONF/runc"
	find "$CONF/runc" -name '*.sh' -exec chmod +x {} +
	mkdir "$CONF/runc/tests/cmd/_bin"
	(cd "$src" && CGO_ENABLED=1 GOFLAGS='' go build -trimpath -buildvcs=false -tags seccomp \
		-o "$CONF/runc/tests/cmd/_bin/" ./tests/cmd/...)
	d=$(mktemp -d)
	busybox_root "$d"
	tar -C "$d" -cf "$CONF/runc/tests/integration/testdata/busybox-$arch.tar.xz" .
	rm -rf "$d"
	ln -f "$CONF/debian.tar" "$CONF/runc/tests/integration/testdata/debian-$arch.tar.xz"
}

# busybox_root lays one out as the image does that the tests download: applets
# are hard links, so that a mount over one does not cover the others. /proc and
# /sys are missing: some tests put things of their own there.
busybox_root() {
	local a
	mkdir -p "$1"/{bin,dev,etc,home,root,run,tmp,usr/sbin,var/run,var/www}
	chmod 755 "$1"
	chmod 1777 "$1/tmp"
	cp "$(command -v busybox)" "$1/bin/busybox"
	for a in $(busybox --list); do [ "$a" = busybox ] || ln "$1/bin/busybox" "$1/bin/$a"; done
	cp -r --remove-destination "$CONF/rootfs/." "$1/"
	printf 'root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false\n' > "$1/etc/passwd"
	printf 'root:x:0:\ndaemon:x:1:\nnogroup:x:65534:\n' > "$1/etc/group"
}

debian() {
	local d
	d=$(mktemp -d)
	chmod 755 "$d"
	debootstrap --variant=minbase bookworm "$d"
	# Each test that wants it unpacks it: what none of them uses is left out.
	rm -rf "$d"/usr/share/{doc,man,locale,i18n,zoneinfo,common-licenses,perl*} "$d"/usr/lib/*/{gconv,perl*} \
		"$d"/usr/bin/perl* "$d"/var/lib/dpkg/info "$d"/var/lib/apt/lists/* "$d"/var/cache/* "$d"/dev/*
	tar -C "$d" -cf "$CONF/debian.tar" .
	rm -rf "$d"
}

# list turns TAP output into states and names.
list() { # FILE
	sed -nE -e 's/^ok [0-9]+ (.*) # skip.*/skipped \1/p' -e t -e 's/^ok [0-9]+ (.*)/passed \1/p' -e 's/^not ok [0-9]+ (.*)/failed \1/p' "$OUT/$1.tap" |
		sed -E 's/ in [0-9]+(ms|sec)$//' | awk -v f="${1%.bats}" '{ s = $1; sub(/^[a-z]+ /, ""); n = f " / " $0; if (c[n]++) n = n " (" c[n] ")"; print s, n }'
}

# orphans ends console receivers that a failed test has left: bats would wait for
# the pipe that they hold. It sees the sandbox's own processes only.
orphans() {
	local idle=0
	while sleep 3; do
		if pgrep -f bats-exec-test > /dev/null; then idle=0; else idle=$((idle + 1)); fi
		[ "$idle" -lt 3 ] || pkill -x recvtty || true
	done
}

# inside runs in the sandbox. A file with failures gets a second try: the tests
# race with their own console receiver. They want a controlling terminal, one
# that stays quiet. The limit is one for a file, not bats' for a test: a test
# that waits for all its children would wait for that.
inside() {
	cd "$CONF/runc/tests/integration"
	[ $# -gt 0 ] || set -- *.bats
	export RUNC=$RUNTIME
	local f
	orphans &
	for f; do
		for _ in $(seq "${TRIES:-2}"); do
			socat -lf /dev/null -u EXEC:"timeout --foreground ${T:-300} bats --tap $f",pty,setsid,ctty,stderr - |
				tr -d '\r' > "$OUT/$f.tap" || true
			grep -qE '^not ok ' "$OUT/$f.tap" || break
		done
		list "$f"
	done > "$OUT/results"
	kill %1
}

if [ "${IN_SANDBOX:-}" = 1 ]; then
	inside "$@"
	exit
fi
# shellcheck source=../oci/lib.sh
. "$here/../oci/lib.sh"
runtime=${1:?which runtime? ibex or runc}
shift
prepare "$runtime"
"$here/../../apt.sh" bats debootstrap gawk jq gcc libc6-dev libseccomp-dev socat xz-utils busybox-static
version=$(awk '$1 == "github.com/opencontainers/runc" { print $2 }' "$top/tests/tools/go.mod")
src=$(cd "$top/tests/tools" && go mod download -json "github.com/opencontainers/runc@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
once debian bookworm debian
once bats "$version $(sha256sum "$here/run.sh" | cut -c1-16)" layout "$src"
start=$SECONDS
"$here/../sandbox.sh" "$here/run.sh" "$@" 7>&- > "$OUT/sandbox.log" 2>&1 || { cat "$OUT/sandbox.log" >&2 && die "the sandbox failed"; }
say "bats on $runtime took $((SECONDS - start)) s; output in $OUT"
if [ $# -gt 0 ]; then
	cat "$OUT/results"
	exit
fi
judge "$runtime"
