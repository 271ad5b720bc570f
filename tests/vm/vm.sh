#!/bin/bash
# vm.sh: run one command in a virtual machine with cgroup v2; stream its output, exit with its status.
#   vm.sh -k KERNELDIR [-i DIR]... [-o DIR] [-e VAR=VALUE]... [-t SECONDS] [-d SIZE] [-m MEM] [-c CPUS]
#         [-a KERNEL_ARGS] [-l LOGDIR] [-A kvm|tcg] [-S] [-v] -- COMMAND [ARG]...
#   -k  what lab.sh printed
#   -i  copy of a host directory, read-only in the guest at the same path (packed as erofs)
#   -o  made in the guest, writable; its contents are copied into the host's DIR at the end
#   -S  PID 1 is systemd and the command runs in a service with Delegate=yes; else PID 1 is a shell and
#       the command runs in the cgroup /vm, all controllers enabled in the root cgroup
#   -d  size of /scratch, a fresh ext4 (holds TMPDIR and /var/lib/containerd); default 8G, sparse
#   -t  time limit, default 600 s; -m 4G; -c 2; -l keeps console.log; -v prints timings
#   -A  KVM or emulation (TCG); default: what accel.sh found
# The command starts in the caller's working directory if the guest has it, else in /.
# Its root is read-only under a tmpfs. Its stdout and stderr stay separate and binary-clean.
# Status: the command's; 124 over the limit; 125 the machine ended without one (end of the console on stderr).
# Nothing on the host is mounted or changed. The machine has no network.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
C=${IBEX_CACHE:-$HOME/.cache/ibex}/vm kernel='' out='' limit=600 disk=8G mem=4G cpus=2 kargs='' log='' init='' verbose=''
accel='' data=() envs=()
while getopts k:i:o:e:t:d:m:c:a:l:A:Sv f; do
  case $f in
    k) kernel=$OPTARG ;; i) data+=("$(realpath "$OPTARG")") ;; o) out=$(realpath "$OPTARG") ;;
    e) envs+=("$OPTARG") ;; t) limit=$OPTARG ;; d) disk=$OPTARG ;; m) mem=$OPTARG ;; c) cpus=$OPTARG ;;
    a) kargs=$OPTARG ;; l) log=$OPTARG ;; A) accel=$OPTARG ;; S) init=systemd ;; v) verbose=1 ;; *) exit 2 ;;
  esac
done
shift $((OPTIND - 1)); [ "${1-}" != -- ] || shift
[ $# -gt 0 ] && [ -n "$kernel" ] || { sed -n '2,/^set/s/^# \?//p' "$0" >&2; exit 2; }
[ -n "$accel" ] || accel=$("$here/accel.sh" "$kernel")
t0=${EPOCHREALTIME/./}
W=$(mktemp -d "${TMPDIR:-/tmp}/ibex-vm.XXXXXX") qpid=''
cleanup() { [ -z "$qpid" ] || kill "$qpid" 2>/dev/null || true; rm -rf "$W"; }
trap cleanup EXIT; trap 'exit 130' INT; trap 'exit 143' TERM
mkdir -p "${log:=$W}"

qemu=$C/qemu/usr/bin/qemu-system-x86_64; [ -x "$qemu" ] || qemu=qemu-system-x86_64
append="console=ttyS0 quiet panic=-1 mitigations=off cgroup_no_v1=all rcupdate.rcu_expedited=1 audit=0 cryptomgr.notests"
append+=" init_on_alloc=0 hardened_usercopy=off kfence.sample_interval=0"
append+=" initcall_blacklist=load_system_certificate_list,jent_mod_init"
if [ "$accel" = kvm ]; then
  cpu=host
else
  # TCG runs rep stos and movs byte by byte, and SMAP's stac and clac end translation blocks: hidden, the
  # kernel uses plain loops. QEMU 7.2 leaves garbage in the flags after cmpxchg16b, which oopses SLUB.
  cpu=max,-erms,-smap,-la57
  case $("$qemu" --version | sed -n 1p) in *' 7.'*) cpu+=,-cx16 ;; *) cpu+=,-fsrm,-fsrs,-fzrm,-fsrc ;; esac
  append+=" clearcpuid=rep_good tsc=reliable no_timer_check"
  accel=tcg,thread=multi
fi

# Disks: each gets the next name, vda, vdb, ..., left in $dev.
args=() n=0
blk() { # blk FILE [,OPTION...]
  printf -v dev 'vd\\x%x' $((97 + n)); printf -v dev "$dev"; n=$((n + 1))
  args+=(-drive "if=none,id=$dev,format=raw,cache=unsafe,discard=unmap,file=$1${2-}" -device "virtio-blk-pci,drive=$dev")
}
blk "$C/root.erofs" ,readonly=on; root=$dev
blk "$kernel/mods.erofs" ,readonly=on; mods=$dev
truncate -s "$disk" "$W/scratch"; mke2fs -q -t ext4 -O ^has_journal -E lazy_itable_init=1,nodiscard "$W/scratch"
blk "$W/scratch"; scratch=$dev list=''
for d in "${data[@]}"; do
  mkfs.erofs --exclude-path=.git "$W/data$n" "$d" >/dev/null 2>&1; blk "$W/data$n" ,readonly=on; list+="$dev:$d "
done

# The run's part of the initrd: our scripts, the settings and the command.
mkdir "$W/i"
install -m755 "$here/guest/init" "$W/i/init"; cp -r "$here/guest" "$W/i/vm"
printf 'ROOT=%q\nMODS=%q\nSCRATCH=%q\nDATA=%q\nINIT=%q\nOUT=%q\n' "$root" "$mods" "$scratch" "$list" "$init" "$out" >"$W/i/vm.env"
{ for e in "${envs[@]}"; do printf 'export %q\n' "$e"; done
  printf 'cd %q 2>/dev/null || cd /\n' "$PWD"; printf '%q ' "$@"; echo; } >"$W/i/vm.cmd"
{ cat "$kernel/initrd"; (cd "$W/i" && find . | cpio -o -H newc --quiet); } >"$W/initrd"

# The ports' files: stdout, stderr, the status, a tar of -o. QEMU takes no descriptor below 3 and only write-only
# ones, hence the two cats. The limit is timeout's, and neither outlives this script.
: >"$W/rc"; : >"$W/out.tar"
exec 3> >(exec cat); co=$!; exec 4> >(exec cat >&2); ce=$!
setpriv --pdeathsig TERM timeout -k 5 "$limit" \
  "$qemu" -L "$C/qemu/usr/share/qemu" -L /usr/share/seabios -L /usr/share/qemu \
  -M pc -accel "$accel" -cpu "$cpu" -smp "$cpus" -m "$mem" -nodefaults -no-user-config -display none -no-reboot \
  -kernel "$kernel/vmlinux" -initrd "$W/initrd" -append "$append $kargs" -serial "file:$log/console.log" \
  -device virtio-serial-pci -add-fd fd=3,set=1 -add-fd fd=4,set=2 \
  -chardev file,id=o,path=/dev/fdset/1,append=on -device virtserialport,chardev=o \
  -chardev file,id=e,path=/dev/fdset/2,append=on -device virtserialport,chardev=e \
  -chardev "file,id=r,path=$W/rc" -device virtserialport,chardev=r \
  -chardev "file,id=t,path=$W/out.tar" -device virtserialport,chardev=t \
  "${args[@]}" </dev/null & qpid=$!
qrc=0; wait "$qpid" || qrc=$?
exec 3>&- 4>&-; wait "$co" "$ce" || true
rc=$(cat "$W/rc"); t1=${EPOCHREALTIME/./}
[ -z "$verbose" ] || echo "vm.sh: $(((t1 - t0) / 1000)) ms in all, $(
  grep -ao 'command starts at [0-9.]* s' "$log/console.log") of guest uptime, status ${rc:-none}" >&2
if [ -n "$rc" ]; then [ -z "$out" ] || tar -xf "$W/out.tar" -C "$out"; exit "$rc"; fi
case $qrc in
  124 | 137) echo "vm.sh: over the limit of $limit s; the console ends with" >&2; tail -n 5 "$log/console.log" >&2; exit 124 ;;
esac
echo "vm.sh: the machine ended without a result (QEMU's status is $qrc); the console ends with" >&2
tail -n 60 "$log/console.log" >&2
exit 125
