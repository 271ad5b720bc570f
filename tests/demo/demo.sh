#!/bin/bash
# demo.sh: one container's life under ibex, in a real containerd of its own.
# `make demo` builds the shim and calls this. It changes nothing outside its
# temporary directory that it does not take away again, and checks that at the end.
#
#   RUNTIME=io.containerd.runc.v2 tests/demo/demo.sh   the same with another runtime
# shellcheck disable=SC2016
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
runtime=${RUNTIME:-io.containerd.ibex.v1}
tools=$("$top/tests/tools/build.sh" --bin)
export PATH=$top/bin:$PATH:$tools
# shellcheck source=tests/demo/lib.sh
. "$top/tests/demo/lib.sh"

[ "$(id -u)" = 0 ] || die "containers need root: sudo make demo"
say "taking away what an earlier demo left, if one crashed"
(cd "$top" && go run ./tests/clean -prefix ibex-demo-)
find_containerd

work=$(mktemp -d /tmp/ibex-demo-XXXXXX)
ns=$(basename "$work") # containerd's namespace, and so the parent cgroup
echo "$$ $(awk '{print $22}' /proc/$$/stat)" > "$work/owner" # says to tests/clean that this run goes on
trap 'finish $?' EXIT
trap 'exit 130' INT TERM

say "starting containerd ($("$containerd" --version | awk '{print $3}')) in $work"
start_containerd
say "making an image of one program, busybox"
make_image "$work/image.tar"
run ctr image import --snapshotter "$snapshotter" "$work/image.tar"

title "A container prints, and its exit code comes back"
run ctr run --rm --runtime "$runtime" --snapshotter "$snapshotter" "$image" hello \
	sh -c 'echo "hello from process $$ on $(hostname)"; echo "my root: $(ls / | xargs)"'
expect 3 ctr run --rm --runtime "$runtime" --snapshotter "$snapshotter" "$image" three sh -c 'exit 3'

title "One that stays, with limits"
run ctr run -d --runtime "$runtime" --snapshotter "$snapshotter" \
	--memory-limit $((64 << 20)) --cpus 0.5 "$image" web sh -c 'trap "exit 0" TERM; while :; do sleep 1; done'
run ctr task ls
note_socket web

title "One more process in it"
run ctr task exec --exec-id e1 web ps -o pid,user,args

title "A command that does not exist is refused before anything is started"
expect 1 ctr task exec --exec-id e2 web no-such-command

title "What it uses, from its cgroup"
run ctr task metrics web

title "Kill and delete"
run ctr task kill --signal SIGTERM web
await_exit web
run ctr task delete web
run ctr container delete web

title "Nothing is left behind"
stop_containerd
check_nothing_left
