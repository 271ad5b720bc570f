#!/bin/bash
# build.sh TOOL... builds the pinned tools that tests, lint and benchmarks use,
# each only when it is not there yet. Without arguments it lists them.
#
#   tests/tools/build.sh containerd ctr runc
#   export PATH="$(tests/tools/build.sh --bin):$PATH"
#
# Versions come from go.mod beside this script and are held by go.sum. A tool is
# built inside its own module with the go.mod and go.sum of its authors, so it is
# what they release, and goes to CACHE/tools/NAME/VERSION/NAME, where CACHE is
# $IBEX_CACHE or ~/.cache/ibex. CACHE/tools/bin holds links to the newest build
# of each. Two runs at once are safe: whoever comes second waits and finds it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${IBEX_CACHE:-${HOME:-/root}/.cache/ibex}
bin=$cache/tools/bin

say() { echo "tools: $*" >&2; }

# recipe NAME sets module, pkg, cgo, tags, ldflags and secs: the seconds that two
# idle cores need for it from an empty build cache, downloads not counted.
recipe() {
	cgo=0 tags='' ldflags='-s -w' secs=60
	local ctd=github.com/containerd/containerd/v2
	case $1 in
	containerd)
		module=$ctd pkg=cmd/containerd secs=120
		tags='urfave_cli_no_docs static_build'
		ldflags+=" -X $ctd/version.Version={version} -X $ctd/version.Package=$ctd"
		;;
	ctr)
		module=$ctd pkg=cmd/ctr secs=60
		tags='urfave_cli_no_docs static_build'
		ldflags+=" -X $ctd/version.Version={version} -X $ctd/version.Package=$ctd"
		;;
	containerd-shim-runc-v2) # the tags and flags of its own Makefile
		module=$ctd pkg=cmd/containerd-shim-runc-v2 secs=30
		tags='urfave_cli_no_docs static_build no_grpc'
		ldflags+=" -X $ctd/version.Version={version} -X $ctd/version.Package=$ctd"
		;;
	runc) # static and with seccomp, as released; without libpathrs, which distributions do not ship
		module=github.com/opencontainers/runc pkg=. cgo=1 secs=40
		tags='netgo osusergo seccomp urfave_cli_no_docs'
		ldflags+=' -extldflags -static'
		;;
	crictl)
		module=sigs.k8s.io/cri-tools pkg=cmd/crictl secs=120
		ldflags+=" -X $module/pkg/version.Version={version}"
		;;
	golangci-lint)
		module=github.com/golangci/golangci-lint/v2 pkg=cmd/golangci-lint secs=120
		ldflags+=' -X main.version={version}'
		;;
	benchstat) module=golang.org/x/perf pkg=cmd/benchstat secs=20 ;;
	govulncheck) module=golang.org/x/vuln pkg=cmd/govulncheck secs=30 ;;
	*) say "no such tool: $1 (there are: ${all[*]})" && exit 2 ;;
	esac
}
all=(containerd ctr containerd-shim-runc-v2 runc crictl benchstat golangci-lint govulncheck)

# pinned MODULE prints its version from go.mod.
pinned() {
	awk -v m="$1" '$1 == m { print $2; found = 1 } END { exit !found }' "$here/go.mod"
}

# loudly WHAT SECS LOG CMD... runs CMD with its output in LOG, says every 20
# seconds that it still does, and shows the end of LOG if CMD fails.
loudly() {
	local what=$1 secs=$2 log=$3 start=$SECONDS pid tick=0
	shift 3
	"$@" > "$log" 2>&1 &
	pid=$!
	while kill -0 "$pid" 2> /dev/null; do
		sleep 0.5
		tick=$((tick + 1))
		[ $((tick % 40)) -ne 0 ] || say "... $what: $((SECONDS - start)) s of about $secs s"
	done
	wait "$pid" && return
	say "$what: it did not build; the end of $log:"
	tail -n 30 "$log" >&2
	return 1
}

build() {
	local name=$1 version dir source start
	local module pkg cgo tags ldflags secs
	recipe "$name"
	version=$(pinned "$module")
	dir=$cache/tools/$name/$version
	mkdir -p "$dir" "$bin"
	exec 9> "$dir/.lock"
	flock -n 9 || { say "$name $version: another run is building it, waiting" && flock 9; }
	# What it was built from: a changed recipe or compiler builds it again.
	local key
	key="$(go env GOVERSION GOARCH | tr '\n' ' ') cgo=$cgo tags=$tags ldflags=$ldflags"
	if [ ! -x "$dir/$name" ] || [ "$(cat "$dir/.key" 2> /dev/null)" != "$key" ]; then
		start=$SECONDS
		say "$name $version: fetching sources"
		# Inside this module, so that go.sum is checked.
		source=$(cd "$here" && GOFLAGS='' go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
		[ "$cgo" = 0 ] || "$here/../apt.sh" gcc libc6-dev pkg-config libseccomp-dev
		say "$name $version: building, about $secs s on two idle cores"
		(
			cd "$source"
			export GOFLAGS='' GOWORK=off CGO_ENABLED=$cgo
			loudly "$name" "$secs" "$dir/.log" go build -trimpath -buildvcs=false -tags "$tags" \
				-ldflags "${ldflags//\{version\}/$version}" -o "$dir/.new" "./$pkg"
		)
		mv "$dir/.new" "$dir/$name"
		echo "$key" > "$dir/.key"
		say "$name $version: built in $((SECONDS - start)) s"
	fi
	ln -sfn "../$name/$version/$name" "$bin/.$name.$$" && mv -fT "$bin/.$name.$$" "$bin/$name"
	exec 9>&-
}

case ${1:-} in
'') printf '%s\n' "${all[@]}" && exit ;;
--bin) echo "$bin" && exit ;;
all) set -- "${all[@]}" ;;
esac
for tool; do
	[ "$tool" != shim-runc ] || tool=containerd-shim-runc-v2
	build "$tool"
done
