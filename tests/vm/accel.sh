#!/bin/bash
# accel.sh KERNELDIR: print "kvm" or "tcg", whichever runs a machine here. IBEX_VM_ACCEL forces one.
# A /dev/kvm that opens proves little: nested KVM may hang at the first guest instruction. So one machine is booted
# with it, and the verdict kept until the host reboots.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ -z "${IBEX_VM_ACCEL-}" ] || { echo "$IBEX_VM_ACCEL"; exit; }
verdict=${IBEX_CACHE:-$HOME/.cache/ibex}/vm/accel-$(cat /proc/sys/kernel/random/boot_id)
if [ ! -e "$verdict" ]; then
  rm -f "${verdict%/*}"/accel-*
  found=tcg
  if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo &&
    "$here/vm.sh" -A kvm -t 20 -d 64M -k "$1" -- true >/dev/null 2>&1; then
    found=kvm
  fi
  echo "$found" >"$verdict.$$"; mv "$verdict.$$" "$verdict"
fi
cat "$verdict"
