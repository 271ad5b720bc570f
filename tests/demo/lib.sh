# shellcheck shell=bash disable=SC2154
# lib.sh: the parts of demo.sh that are not about containers. demo.sh sets top,
# tools, work (the temporary directory) and ns (containerd's namespace).
image=ibex.local/busybox:demo

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' plain=$'\e[0m'; else bold='' dim='' red='' plain=''; fi
say() { echo "${dim}demo: $*${plain}"; }
title() { printf '\n%s\n' "${bold}== $*${plain}"; }
die() { echo "${red}demo: $*${plain}" >&2 && exit 1; }

# show CMD... prints the command as a person would type it.
show() {
	local a line=''
	for a; do
		case $a in *[!-a-zA-Z0-9_./:=@,]* | '') a="'$a'" ;; esac
		line+=" $a"
	done
	echo "${bold}\$${line}${plain}"
}
# run CMD... shows and runs it; a failure ends the demo.
run() {
	show "$@"
	"$@" 2>&1
}
# expect CODE CMD... shows and runs a command that ends with CODE.
expect() {
	local want=$1 got=0
	shift
	show "$@"
	"$@" 2>&1 || got=$?
	[ "$got" = "$want" ] || die "it ended with $got, not $want"
	say "ended with $got, as it should"
}
export CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=1 # of cgroup v1 hosts, with every command
ctr() { timeout 60 "$ctr" --address "$work/containerd.sock" --namespace "$ns" "$@"; }

# find_containerd sets containerd and ctr: those on PATH from 1.7 on, else the pinned ones.
find_containerd() {
	containerd=$(command -v containerd || true) ctr=$(command -v ctr || true)
	local version=''
	[ -z "$containerd" ] || [ -z "$ctr" ] || version=$("$containerd" --version | awk '{print $3}' | sed 's/^v//')
	if [ -n "$version" ] && [ "$(printf '1.7\n%s\n' "$version" | sort -V | head -n1)" = 1.7 ]; then return; fi
	say "no containerd from 1.7 on here${version:+ (only $version)}: building the pinned one, 2-3 minutes the first time"
	"$top/tests/tools/build.sh" containerd ctr
	containerd=$tools/containerd ctr=$tools/ctr
}

# start_containerd runs a daemon whose every file is below $work. What this demo
# does not use is off: CRI would listen on a port and want CNI.
start_containerd() {
	snapshotter=${SNAPSHOTTER:-overlayfs}
	[ "$(stat -f -c %T "$work")" != overlayfs ] || snapshotter=native # it does not stack
	cat > "$work/config.toml" <<-TOML
		version = 2
		root = "$work/root"
		state = "$work/state"
		disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
		  "io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
		  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs",
		  "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
		[grpc]
		  address = "$work/containerd.sock"
		[[plugins."io.containerd.transfer.v1.local".unpack_config]]
		  platform = "linux/$(go env GOARCH)"
		  snapshotter = "$snapshotter"
	TOML
	"$containerd" --config "$work/config.toml" > "$work/containerd.log" 2>&1 &
	daemon=$!
	echo "$daemon" > "$work/containerd.pid"
	local i
	for i in $(seq 150); do
		ctr version > /dev/null 2>&1 && break
		if ! kill -0 "$daemon" 2> /dev/null || [ "$i" = 150 ]; then
			tail "$work/containerd.log" >&2
			die "containerd did not start"
		fi
		sleep 0.1
	done
}

stop_containerd() {
	[ -n "${daemon:-}" ] || return 0
	say "stopping containerd"
	kill "$daemon" 2> /dev/null || true
	wait "$daemon" 2> /dev/null || true
	daemon=''
}

# make_image TAR: the format of `docker save`: a configuration, one layer, a manifest.
make_image() {
	local d=$work/image applet
	mkdir -p "$d"/layer/{bin,dev,etc,proc,sys,tmp}
	cp "$(command -v busybox)" "$d/layer/bin/busybox"
	for applet in sh cat echo hostname ls ps sleep tail true xargs; do ln "$d/layer/bin/busybox" "$d/layer/bin/$applet"; done
	echo root:x:0:0:root:/:/bin/sh > "$d/layer/etc/passwd"
	tar -C "$d/layer" --owner 0 --group 0 --numeric-owner -cf "$d/layer.tar" .
	cat > "$d/config.json" <<-JSON
		{"architecture": "$(go env GOARCH)", "os": "linux", "config": {"Env": ["PATH=/bin"], "Cmd": ["sh"]},
		 "rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum < "$d/layer.tar" | cut -d' ' -f1)"]}}
	JSON
	echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"$image\"], \"Layers\": [\"layer.tar\"]}]" > "$d/manifest.json"
	tar -C "$d" -cf "$1" manifest.json config.json layer.tar
}

# note_socket ID remembers the sockets that a container's shim listens on, to look
# for them at the end.
note_socket() {
	local p
	for p in /proc/[0-9]*; do
		tr '\0' ' ' 2> /dev/null < "$p/cmdline" | grep -q -- "-namespace $ns -id $1 " || continue
		find "$p/fd" -lname 'socket:*' -printf '%l\n' | tr -dc '0-9\n' |
			awk 'NR == FNR { mine[$1]; next } ($7 in mine) && $8 { print $8 }' - /proc/net/unix >> "$work/sockets"
	done
	[ -s "$work/sockets" ] || die "no shim of $1 listens anywhere"
}

await_exit() {
	local i
	for i in $(seq 100); do
		ctr task ls | grep -q "^$1 .*STOPPED" && return
		sleep 0.1
	done
	die "$1 did not end within 10 s"
}

# left KIND prints what there is of the demo: processes by its directory on their
# command line and by their cgroup.
left() {
	local p f
	case $1 in
	processes)
		for p in /proc/[0-9]*; do
			case $p in "/proc/$$" | "/proc/$BASHPID") continue ;; esac
			if grep -qs "/$ns/" "$p/cgroup" || { tr '\0' '\n' < "$p/cmdline" | grep -q "$work"; } 2> /dev/null; then
				echo "$p $(tr '\0' ' ' 2> /dev/null < "$p/cmdline" || true)"
			fi
		done
		;;
	cgroups) find /sys/fs/cgroup -depth -type d -path "*/$ns/*" 2> /dev/null || true ;;
	mounts) # in this and in every other mount namespace
		{ cat /proc/[0-9]*/mountinfo 2> /dev/null || true; } | awk -v d="$work" '$5 == d || index($5, d "/") == 1 {print $5}' | sort -u
		;;
	sockets)
		find /run/containerd/s /run/ibex -type s 2> /dev/null | grep -Fxf "$work/sockets" || true
		grep -F -f "$work/sockets" /proc/net/unix || true
		while read -r f; do [ ! -e "$f" ] || echo "$f"; done < "$work/sockets"
		;;
	esac
}

check_nothing_left() {
	local kind found i bad=0
	for kind in processes cgroups mounts sockets; do
		for i in $(seq 30); do # a shim ends by itself once its last container is gone
			found=$(left "$kind")
			[ -n "$found" ] || break
			sleep 0.1
		done
		[ -z "$found" ] || { echo "${red}$kind left:${plain}"$'\n'"$found" && bad=1; }
	done
	rmdir_namespace
	[ "$bad" = 0 ] || die "something was left behind"
	result="${bold}Nothing was left behind: no process, no cgroup, no mount, no socket.${plain}"
}

# rmdir_namespace removes the parent cgroup that the demo's name made, which runtimes leave.
rmdir_namespace() {
	find /sys/fs/cgroup -depth -type d -name "$ns" -exec rmdir {} + 2> /dev/null || true
}

# finish CODE: always, after success, failure or ^C.
finish() {
	trap - EXIT INT TERM
	[ "$1" = 0 ] || { say "ended early; the last lines of containerd's log:" && grep -E 'level=(warn|error|fatal)' "$work/containerd.log" 2> /dev/null | tail -n 8; } || true
	stop_containerd
	rmdir_namespace
	echo "0 0" > "$work/owner" # it is nobody's any more
	(cd "$top" && go run ./tests/clean -q -prefix "$ns") || true
	[ -z "${result:-}" ] || echo "$result"
	exit "$1"
}
