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
list_of() { local f=$here/lists/${LIST:-$1}.txt; [ -r "$f" ] || die "there is no list $f"; rows "$f"; }

# The machines to run, as lines of the matrix.
machines=()
while read -r name when rest; do
  if [ -n "$RUN" ]; then [[ " $RUN " == *" $name "* ]] || continue
  elif [ -n "$QUICK" ]; then [ "$when" = quick ] || continue; fi
  machines+=("$name $rest")
done < <(rows "$here/matrix.txt")
[ ${#machines[@]} -gt 0 ] || [ "$RUN" = runner ] || die "matrix.txt has no machine ${RUN:-marked quick}; it has: $(rows "$here/matrix.txt" | awk '{printf "%s ", $1}')"

# build makes the test binaries and all programs. One that does not build is a failure, but the others run.
stage=$C/stage failures=() skipped=()
build() {
  local package packages dir
  rm -rf "$stage"; mkdir -p "$stage"/{bin,tools}
  packages=$(for m in "${machines[@]}"; do set -- $m; list_of "$5"; done | awk '{print $1}' | sort -u)
  export CGO_ENABLED=0 GOOS=linux GOARCH=amd64
  for package in $packages; do
    (cd "$top" && go test -c -ldflags='-s -w' -o "$stage/bin/${package//\//_}.test" "./$package") || true
    [ -e "$stage/bin/${package//\//_}.test" ] || failures+=("$package (no test binary)")
  done
  for dir in "$top"/cmd/*/ "$top"/tests/cmd/*/; do
    compgen -G "$dir*.go" >/dev/null || continue
    (cd "$top" && go build -ldflags='-s -w' -o "$stage/bin/" "$dir") || failures+=("${dir#"$top"/} (does not build)")
  done
  for dir in containerd ctr containerd-shim-runc-v2 runc crictl critest; do
    [ ! -e "$cache/tools/bin/$dir" ] || cp -L "$cache/tools/bin/$dir" "$stage/tools/"
  done
}

# machine runs one line of the matrix.
machine() {
  local name=$1 suite=$2 package=$3 init=$4 list=$5; shift 5
  local kernel rc=0 limit=60 slow=20 p seconds opts=()
  kernel=$("$here/lab.sh" "$suite" "$package") || rc=$?
  if [ $rc = 3 ]; then
    say "SKIP $name: its packages cannot be had here, see above"; skipped+=("$name"); return
  fi
  [ $rc = 0 ] || die "lab.sh ends with status $rc"
  [ "$("$here/accel.sh" "$kernel")" != kvm ] || slow=2
  mkdir -p "$stage/plan"; : >"$stage/plan/$name"
  while read -r p seconds; do
    [ -e "$stage/bin/${p//\//_}.test" ] || continue
    echo "$p $seconds" >>"$stage/plan/$name"; limit=$((limit + seconds))
  done < <(list_of "$list")
  [ "$init" != systemd ] || opts+=(-S)
  rm -rf "$results/$name.log" "$results/$name"
  say "$name: linux $(cat "$kernel/version"), $init${*:+, $*}"
  (cd "$top" && "$here/vm.sh" -v -k "$kernel" -a "$*" -t "$limit" "${opts[@]}" -i "$top" -i "$stage" -l "$results/$name" \
    -e "SRC=$top" -e "BIN=$stage/bin" -e "IBEX_TEST_BIN=$stage/bin" -e "IBEX_TEST_SLOW=$slow" -e "IBEX_TEST_VM=$name" \
    -e "PATH=$stage/bin:$stage/tools:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    -- bash /run/vm/tests "$stage/plan/$name") | tee "$results/$name.log" || rc=$?
  [ $rc = 0 ] || failures+=("$name (status $rc)")
}

# runner runs the tests of vm.sh with the matrix's first kernel.
runner() {
  local name when suite package rest kernel rc=0
  read -r name when suite package rest < <(rows "$here/matrix.txt")
  kernel=$("$here/lab.sh" "$suite" "$package") || rc=$?
  [ $rc != 3 ] || { skipped+=(runner); return; }
  [ $rc = 0 ] || die "lab.sh ends with status $rc"
  say "the runner's own tests"
  (cd "$top" && CGO_ENABLED=0 IBEX_VM_KERNEL=$kernel go test -count=1 ${QUICK:+-short} ./tests/vm) || failures+=(runner)
}

mkdir -p "$results"
rm -f "$results"/*.log
if [ -z "$RUN" ] || [ "$RUN" = runner ]; then runner; fi
build
for m in "${machines[@]}"; do machine $m; done

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
    (cd "$top" && CGO_ENABLED=0 go test -json $packages) >"$host" || say "the host's run of these tests ends with status $?"
  fi
fi
if [ -e "${logs[0]}" ]; then
  (cd "$top" && CGO_ENABLED=0 go run ./tests/vm/check $decide ${host:+-host "$host"} -never "$here/never.txt" "${logs[@]}") ||
    failures+=("the comparison of skips")
fi

for s in "${skipped[@]}"; do say "skipped: $s"; done
if [ ${#skipped[@]} -gt 0 ] && [ -n "${IBEX_VM_REQUIRED-}" ]; then failures+=("machines that cannot be had"); fi
if [ ${#failures[@]} -gt 0 ]; then
  say "FAILED: $(printf '%s; ' "${failures[@]}")"; exit 1
fi
say "ok"
