#!/bin/bash
# build.sh SUITE... builds what the suites critest, client and cri need: the
# image server and its programs, the CNI plugins and the suites themselves, into
# CACHE/conformance, where CACHE is $IBEX_CACHE or ~/.cache/ibex. What is there
# and was built from the same sources stays. The suites come from the versions
# of containerd and cri-tools that tests/tools pins, each built inside its own
# module; the rest from the go.mod beside this file.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tools=$here/../tools
cache=${IBEX_CACHE:-${HOME:-/root}/.cache/ibex}
conf=$cache/conformance

say() { echo "conformance: $*" >&2; }

# source MODULE prints the directory of its pinned version, checked by go.sum.
source_of() {
	local v
	v=$(awk -v m="$1" '$1 == m { print $2 }' "$tools/go.mod")
	(cd "$tools" && go mod download -json "$1@$v" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
}

# once NAME KEY CMD... runs CMD unless it already ran with this KEY, and says
# how long it took. CMD leaves its results below $conf.
once() {
	local name=$1 key="$2 $(go env GOVERSION GOARCH | xargs)" mark=$conf/.built/$1 start=$SECONDS
	shift 2
	[ "$(cat "$mark" 2> /dev/null)" != "$key" ] || return 0
	say "building $name"
	rm -f "$mark"
	# In the background, or errexit would not hold in it.
	("$@") > "$conf/.built/$name.log" 2>&1 &
	wait $! || {
		say "$name: it did not build; the end of $conf/.built/$name.log:"
		tail -n 30 "$conf/.built/$name.log" >&2
		return 1
	}
	echo "$key" > "$mark"
	say "$name: built in $((SECONDS - start)) s"
}

# sum FILE... is a key made of the files' contents.
sum() { (cd "$here" && sha256sum "$@" | sha256sum | cut -c1-16); }

images() {
	cd "$here"
	go build -trimpath -ldflags '-s -w' -o "$conf/bin/" ./imgreg ./standin
	gcc -static -Os -s -o "$conf/bin/pause" pause/pause.c
}

# The images' shell is Debian's dynamic busybox with its libraries: the static
# one runs applets without exec, so it would not notice a masked /bin/ls. ipcs,
# pgrep and bash are no applets there, its nc ignores SIGTERM as PID 1, and
# passwd is there for its setuid bit.
rootfs() {
	local d lib r=$conf/rootfs
	d=$(mktemp -d)
	cd "$d"
	apt-get download busybox || { apt-get update -qq && apt-get download busybox; }
	dpkg -x busybox_*.deb .
	rm -rf "$r"
	mkdir -p "$r/bin" "$r/usr/bin"
	cp bin/busybox "$r/bin/sh"
	for lib in $(ldd bin/busybox | grep -o '/lib[^ ]*'); do install -D "$lib" "$r$lib"; done
	printf '#!/bin/sh\ncat /proc/sysvipc/shm\n' > "$r/bin/ipcs"
	printf '#!/bin/sh\nexec pidof "$1"\n' > "$r/bin/pgrep"
	printf '#!/bin/sh\nexec /bin/sh "$@"\n' > "$r/bin/bash"
	printf '#!/bin/sh\ntrap "exit 143" TERM\n/bin/busybox nc "$@" <&0 &\nwait $!\n' > "$r/bin/nc"
	install -m 4755 /dev/null "$r/usr/bin/passwd"
	rm -r "$d"
}

cni() {
	cd "$here"
	local p=github.com/containernetworking/plugins/plugins
	go build -trimpath -ldflags '-s -w' -o "$conf/cni/bin/" \
		$p/main/bridge $p/main/loopback $p/ipam/host-local $p/meta/portmap $p/meta/firewall $p/meta/tuning
}

critest() { # with the ginkgo that it was written for: -parallel calls it
	cd "$1"
	go test -c -trimpath -ldflags '-s -w' -o "$conf/bin/critest" ./cmd/critest
	go build -trimpath -ldflags '-s -w' -o "$conf/bin/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
}

client() {
	cd "$1"
	go test -c -trimpath -ldflags '-s -w' -o "$conf/bin/client.test" ./integration/client
	rm -rf "$conf/testdata"
	cp -r integration/client/testdata "$conf/"
	chmod -R u+w "$conf/testdata"
}

cri() {
	cd "$1"
	go test -c -trimpath -ldflags '-s -w' -o "$conf/bin/cri.test" ./integration
}

# failpoint builds the shim, runc and CNI plugins that fail on purpose.
failpoint() {
	cd "$1"
	go build -trimpath -ldflags '-s -w' -o "$conf/bin/" ./integration/failpoint/cmd/...
	mv "$conf"/bin/{cni-bridge-fp,loopback-v2} "$conf/cni/bin/"
}

mkdir -p "$conf"/{bin,cni/bin,.built}
exec 9> "$conf/.built/lock"
flock -n 9 || { say "another run is building; waiting for it" && flock 9; }
"$here/../apt.sh" gcc libc6-dev libseccomp-dev busybox-static iproute2 iptables procps jq
export CGO_ENABLED=0 GOWORK=off GOFLAGS=''
ctd=$(source_of github.com/containerd/containerd/v2)
cd "$here"
once images "$(sum go.sum imgreg/*.go standin/*.go pause/pause.c)" images
once rootfs "$(declare -f rootfs | sha256sum | cut -c1-16)" rootfs
once cni "$(sum go.sum)" cni
for suite; do
	case $suite in
	critest)
		tool=$(source_of sigs.k8s.io/cri-tools)
		once critest "$tool" critest "$tool"
		;;
	client)
		once failpoint "$ctd" failpoint "$ctd"
		once client "$ctd" client "$ctd"
		;;
	cri)
		"$here/../apt.sh" lsof strace xfsprogs
		once failpoint "$ctd" failpoint "$ctd"
		once cri "$ctd" cri "$ctd"
		;;
	*) say "no such suite: $suite" && exit 2 ;;
	esac
done
