#!/bin/bash
# run.sh: boot the machines of matrix.txt, run this checkout's tests in them, compare what was skipped where.
#   RUN=NAME      only that machine (also several, or as arguments); RUN=runner: the tests of vm.sh itself
#   QUICK=1       only the machines marked quick
#   LIST=NAME     lists/NAME.txt instead of each machine's own list
# `make test-vm` is this without arguments. Results: ${IBEX_CACHE:-$HOME/.cache/ibex}/vm/results/MACHINE.log, console logs beside.
# IBEX_HOST_RESULTS=FILE is the output of `go test -json` of the same packages on a host; without it, a whole run makes its own.
# IBEX_VM_REQUIRED=1: a machine that cannot be had is a failure and not a skip.
# Status: 0, or 1 if a test failed or (in a whole run) is skipped on every machine and on the host.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd) top=$(cd "$(dirname "$0")/../.." && pwd)
cache=${IBEX_CACHE:-$HOME/.cache/ibex} C=${IBEX_CACHE:-$HOME/.cache/ibex}/vm
RUN=${RUN-} QUICK=${QUICK-} LIST=${LIST-} results=$C/results
for a in "$@"; do
  case $a in RUN=* | QUICK=* | LIST=*) declare "$a" ;; [a-z]*) RUN+=" $a" ;; *) sed -n '2,/^set/s/^# \?//p' "$0" >&2; exit 2 ;; esac
done
RUN=${RUN# }
say() { echo "test-vm: $*" >&2; }
die() { say "$*"; exit 2; }

# rows FILE prints a table without comments.
rows() { sed 's/#.*//; /^[[:space:]]*$/d' "$1"; }
# list_of NAME prints the lines of a list that count in this run.
list_of() {
  local f=$here/lists/${LIST:-$1}.txt other=quick
  [ -r "$f" ] || die "there is no list $f"
  [ -z "$QUICK" ] || other=full
  rows "$f" | grep -vw -- "$other" || true
}

# The machines to run, as lines of the matrix.
machines=()
while read -r name when rest; do
  if [ -n "$RUN" ]; then [[ " $RUN " == *" $name "* ]] || continue
  elif [ -n "$QUICK" ]; then [ "$when" = quick ] || continue; fi
  machines+=("$name $rest")
done < <(rows "$here/matrix.txt")
[ ${#machines[@]} -gt 0 ] || [ "$RUN" = runner ] || die "matrix.txt has no machine ${RUN:-marked quick}; it has: $(rows "$here/matrix.txt" | awk '{printf "%s ", $1}')"

# lab prepares what a machine needs, or says why that cannot be had.
declare -A kernels
lab() {
  local rc=0
  kernels[$1]=$("$here/lab.sh" "$2" "$3") || rc=$?
  [ $rc != 3 ] || { say "SKIP $1: its packages cannot be had here, see above"; skipped+=("$1"); return 1; }
  [ $rc = 0 ] || die "lab.sh ends with status $rc"
}

# build makes the test binaries and all programs. What does not compile is not worth booting for.
stage=$C/stage failures=() skipped=()
build() {
  local package packages dir
  rm -rf "$stage"; mkdir -p "$stage"/{bin,tools}
  packages=$(for m in "${machines[@]}"; do set -- $m; list_of "$5"; done | sort -u)
  if grep -qw tools <<<"$packages"; then
    "$top/tests/tools/build.sh" containerd ctr containerd-shim-runc-v2 runc >&2 || failures+=("tests/tools/build.sh")
  fi
  packages=$(awk '{print $1}' <<<"$packages" | sort -u)
  export CGO_ENABLED=0 GOOS=linux GOARCH=amd64
  for package in $packages; do
    (cd "$top" && go test -c -ldflags='-s -w' -o "$stage/bin/${package//\//_}.test" "./$package") || true
    [ -e "$stage/bin/${package//\//_}.test" ] || failures+=("$package (no test binary)")
  done
  for dir in "$top"/cmd/*/ "$top"/tests/cmd/*/; do
    compgen -G "$dir*.go" >/dev/null || continue
    (cd "$top" && go build -ldflags='-s -w' -o "$stage/bin/" "$dir") || failures+=("${dir#"$top"/} (does not build)")
  done
  [ ${#failures[@]} = 0 ] || { say "FAILED: $(printf '%s; ' "${failures[@]}")"; exit 1; }
  for dir in containerd ctr containerd-shim-runc-v2 runc crictl critest; do
    [ ! -e "$cache/tools/bin/$dir" ] || cp -L "$cache/tools/bin/$dir" "$stage/tools/"
  done
}

# machine runs one line of the matrix.
machine() {
  local name=$1 init=$4 list=$5 kernel=${kernels[$1]} rc=0 limit=60 slow=10 p seconds words opts=(); shift 5
  [ "$("$here/accel.sh" "$kernel")" != kvm ] || slow=2
  mkdir -p "$stage/plan"; : >"$stage/plan/$name"
  while read -r p seconds words; do
    [ -e "$stage/bin/${p//\//_}.test" ] || continue
    words=$(tr ' ' '\n' <<<"$words" | grep '^-test' | tr '\n' ' ') || true
    echo "$p $seconds $words" >>"$stage/plan/$name"; limit=$((limit + seconds))
  done < <(list_of "$list")
  [ "$init" != systemd ] || opts+=(-S)
  rm -rf "$results/$name.log" "$results/$name"
  say "$name: linux $(cat "$kernel/version"), $init${*:+, $*}"
  (cd "$top" && "$here/vm.sh" -v -k "$kernel" -a "$*" -t "$limit" "${opts[@]}" -i "$top" -i "$stage" -l "$results/$name" \
    -e "SRC=$top" -e "BIN=$stage/bin" -e "IBEX_TEST_BIN=$stage/bin" \
    -e "IBEX_TOOLS=$stage/tools" -e "IBEX_TEST_SHIM=$stage/bin/containerd-shim-ibex-v1" -e "IBEX_TEST_SLOW=$slow" -e "IBEX_TEST_VM=$name" \
    -e "PATH=$stage/bin:$stage/tools:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    -- bash /run/vm/tests "$stage/plan/$name") | tee "$results/$name.log" |
    { grep --line-buffered -vE '^=== (RUN|PAUSE|CONT|NAME)' || true; } || rc=$?
  [ $rc = 0 ] || failures+=("$name (status $rc)")
}

# runner runs the tests of vm.sh with a kernel that is there.
runner() {
  say "the runner's own tests"
  (cd "$top" && CGO_ENABLED=0 IBEX_VM_KERNEL=$1 go test -count=1 ${QUICK:+-short} ./tests/vm) || failures+=(runner)
}

mkdir -p "$results"
exec 9>"$C/run.lock"
flock -n 9 || { say "another run goes on; waiting for it"; flock 9; }
rm -f "$results"/*.log
if [ "$RUN" = runner ]; then # no machine of the matrix, but its first kernel
  read -r name _ suite package _ < <(rows "$here/matrix.txt")
  if lab runner "$suite" "$package"; then runner "${kernels[runner]}"; fi
else
  there=()
  for m in "${machines[@]}"; do if lab $m; then there+=("$m"); fi; done
  machines=("${there[@]}")
  if [ ${#machines[@]} -gt 0 ]; then
    build
    [ -n "$RUN" ] || runner "${kernels[${machines[0]%% *}]}"
    for m in "${machines[@]}"; do machine $m; done
  fi
fi

# The comparison. Only a whole run decides: in a part of the matrix a skip may be right.
logs=("$results"/*.log)
host=${IBEX_HOST_RESULTS-} decide=
if [ -z "$RUN$QUICK$LIST" ] && [ ${#skipped[@]} = 0 ]; then
  decide=-decide
  if [ -z "$host" ]; then
    host=$results/host.json
    say "the same packages on this host"
    packages=$(cut -d' ' -f1 "$stage"/plan/* | sort -u | sed 's|^|./|')
    # A failure here is the business of `make test`.
    (cd "$top" && CGO_ENABLED=0 go test -json -p 1 -timeout 20m $packages) >"$host" || say "the host's run of these tests ends with status $?"
  fi
fi
if [ -e "${logs[0]}" ]; then
  (cd "$top" && CGO_ENABLED=0 go run ./tests/vm/check $decide ${host:+-host "$host"} -never "$here/never.txt" "${logs[@]}") ||
    failures+=("the comparison of skips")
fi

if [ ${#skipped[@]} -gt 0 ] && [ -n "${IBEX_VM_REQUIRED-}" ]; then failures+=("machines that cannot be had"); fi
if [ ${#failures[@]} -gt 0 ]; then
  say "FAILED: $(printf '%s; ' "${failures[@]}")"; exit 1
fi
say "ok${skipped:+, but these were skipped: ${skipped[*]}}"
