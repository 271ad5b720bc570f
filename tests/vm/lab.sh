#!/bin/bash
# lab.sh SUITE PACKAGE: prepare what a machine of the matrix needs and print the kernel's directory.
#
# Everything comes from Debian packages and is kept below ${IBEX_CACHE:-$HOME/.cache/ibex}/vm:
#   qemu/                  QEMU of the backports suite, unpacked, not installed (see qemu below)
#   kernel/SUITE-PACKAGE/  vmlinux, mods.erofs (modules), initrd (busybox and the modules to reach a disk), version
#   root-HASH.erofs        the guest's root: a small Debian with systemd
#   accel-BOOTID           "kvm" or "tcg": what was found to work since this host was booted
# Remove a file or directory to have it made again; nothing else on the host changes but the few packages
# that apt installs. The mirror, its proxy and its keys are those of apt's own configuration;
# IBEX_VM_MIRROR=URI names another one (on a host that is not Debian).
#
# Status: 0; 3 when something cannot be had here (the reason is the last line on stderr); anything else is a bug.
set -euo pipefail
suite=$1 package=$2
C=${IBEX_CACHE:-$HOME/.cache/ibex}/vm
base=bookworm # the release of the guest's root, and of the host's QEMU unless the host has a newer one
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

say() { echo "vm lab: $*" >&2; }
cannot() { say "$*"; exit 3; }

[ "$(uname -m)" = x86_64 ] || cannot "only amd64 hosts are supported, this one is $(uname -m)"
command -v apt-get >/dev/null || cannot "this host has no apt-get; the lab is made from Debian packages"
mkdir -p "$C"
exec 9>"$C/lock"
flock 9

# tools installs the host's packages. Unprivileged use is fine once they are there.
tools() {
  local want=(qemu-system-x86 qemu-system-common seabios busybox-static cpio kmod zstd xz-utils e2fsprogs
    erofs-utils debootstrap debian-archive-keyring) missing=() p
  for p in "${want[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || cannot "packages are missing and only root can install them: ${missing[*]}"
  say "installing ${missing[*]}"
  local install=(apt-get install -y -q --no-install-recommends "${missing[@]}")
  "${install[@]}" >"$C/apt.log" 2>&1 && return 0
  { apt-get update -q && "${install[@]}"; } >>"$C/apt.log" 2>&1 ||
    cannot "cannot install ${missing[*]}: $(grep -m1 '^E:' "$C/apt.log" || tail -n1 "$C/apt.log")"
}

# mirror prints the address of the Debian archive that apt is configured with.
mirror() {
  local uri=${IBEX_VM_MIRROR-}
  [ -n "$uri" ] || uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $base" | sed -n 1p)
  [ -n "$uri" ] || cannot "apt's configuration names no mirror with $base; set IBEX_VM_MIRROR to one"
  echo "${uri%/}"
}

# apt_for SUITE sets "apt", options for apt-get and apt-cache with a private state that knows only that suite.
apt_for() {
  local s=$C/apt/$1
  apt=(-o "Dir::Etc::sourcelist=$s/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$s/lists"
    -o "Dir::Cache=$s/cache" -o APT::Sandbox::User=root)
  [ ! -e "$s/done" ] || return 0
  mkdir -p "$s"/{lists,cache/archives}/partial
  local uri; uri=$(mirror)
  echo "deb $uri $1 main" >"$s/sources.list"
  apt-get "${apt[@]}" -qq -o Acquire::Languages=none -o APT::Update::Error-Mode=any update >"$C/apt.log" 2>&1 ||
    cannot "cannot read the package lists of $1: $(grep -m1 '^[EW]:' "$C/apt.log" || tail -n1 "$C/apt.log")"
  touch "$s/done"
}

# fetch SUITE DIR PACKAGE...: download packages of a suite and unpack them in DIR.
fetch() {
  local s=$1 d=$2 debs; shift 2
  debs=$(mktemp -d "$C/debs.XXXXXX")
  apt_for "$s"
  if ! (cd "$debs" && apt-get "${apt[@]}" -qq download "$@") >"$C/apt.log" 2>&1; then
    rm -rf "$debs" "$C/apt/$s" # lists that have gone stale are read again next time
    cannot "cannot download $* of $s: $(grep -m1 '^E:' "$C/apt.log" || tail -n1 "$C/apt.log")"
  fi
  local deb
  for deb in "$debs"/*.deb; do dpkg -x "$deb" "$d"; done
  rm -rf "$debs"
}

# qemu: the release's QEMU 7.2 works but is three times slower than 10 without KVM, and needs care (vm.sh). It is
# installed for its libraries; the newer program is unpacked beside it, as installing it would pull half of backports.
qemu() {
  [ ! -e "$C/qemu/version" ] || return 0
  local version; version=$(qemu-system-x86_64 --version | sed -n '1s/.*version \([0-9]*\).*/\1/p')
  rm -rf "$C/qemu"; mkdir -p "$C/qemu"
  if [ "$version" -lt 8 ]; then
    say "fetching QEMU of $base-backports"
    (fetch "$base-backports" "$C/qemu" qemu-system-x86 qemu-system-data) || {
      say "going on with QEMU $version, which is slower"; rm -rf "$C/qemu"; return 0; }
    "$C/qemu/usr/bin/qemu-system-x86_64" --version | head -n1 >"$C/qemu/version" ||
      { say "QEMU of $base-backports does not start here; going on with QEMU $version"; rm -rf "$C/qemu"; }
  else
    qemu-system-x86_64 --version | head -n1 >"$C/qemu/version"
  fi
}

# kernel fetches SUITE's PACKAGE (the metapackage of a flavour) and takes it apart.
kernel() {
  local dir=$1
  [ ! -e "$dir/version" ] || return 0
  local image d; d=$(mktemp -d "$C/kernel.XXXXXX")
  apt_for "$suite"
  image=$(apt-cache "${apt[@]}" depends "$package" 2>/dev/null | awk '/Depends: linux-image-/{print $2}' | sed -n 1p) || true
  [ -n "$image" ] || { rm -rf "$d"; cannot "$suite has no package $package that depends on a kernel"; }
  say "fetching $image of $suite"
  fetch "$suite" "$d/x" "$image"
  local version; version=$(basename "$d"/x/lib/modules/*)

  # An uncompressed kernel (entered through PVH) saves the decompressor, 0.3-0.5 s without KVM. Kernels that are
  # not zstd inside are booted as they are.
  local z=$d/x/boot/vmlinuz-$version off
  off=$(grep -abo $'\x28\xb5\x2f\xfd' "$z" | sed -n '1s/:.*//p') || true
  tail -c "+$((${off:-0} + 1))" "$z" | zstd -dcq >"$d/vmlinux" 2>/dev/null || true
  [ "$(head -c4 "$d/vmlinux" | tail -c3)" = ELF ] || cp "$z" "$d/vmlinux"

  # Modules uncompressed: the guest has no xz.
  find "$d/x/lib/modules" -name '*.ko.xz' -print0 | xargs -0 -r -P"$(nproc)" xz -dq
  depmod -b "$d/x" "$version"
  mkfs.erofs "$d/mods.erofs" "$d/x/lib/modules/$version" >/dev/null 2>&1
  initrd "$d/x/lib/modules/$version" "$d/initrd"
  rm -rf "$d/x"
  echo "$version" >"$d/version"
  rm -rf "$dir"; mkdir -p "$(dirname "$dir")"; mv "$d" "$dir"
}

# initrd MODULES FILE packs busybox and the modules needed to reach a disk. vm.sh appends /init and the run's files.
initrd() {
  local m=$1 i name line f b; i=$(mktemp -d "$C/initrd.XXXXXX")
  mkdir "$i"/{bin,m,dev,proc,sys,lower,rw,root}
  cp "$(command -v busybox)" "$i/bin/busybox"
  : >"$i/m/order"
  # crc32c_generic: a soft dependency of ext4 and erofs that modules.dep does not list.
  for name in crc32c_generic virtio_pci virtio_blk virtio_console ext4 erofs overlay; do
    line=$(grep -E "/$name\.ko:" "$m/modules.dep") || continue # built in
    for f in $(tr ' ' '\n' <<<"${line#*:}" | tac) "${line%%:*}"; do
      b=${f##*/}
      [ -e "$i/m/$b" ] || { cp "$m/$f" "$i/m/$b"; echo "$b" >>"$i/m/order"; }
    done
  done
  (cd "$i" && find . | cpio -o -H newc --quiet) >"$2"
  rm -rf "$i"
}

# root makes the guest's root image.
root() {
  local image=$1 uri d
  [ ! -e "$image" ] || return 0
  [ "$(id -u)" = 0 ] || cannot "only root can make the guest's root image"
  uri=$(mirror)
  d=$(mktemp -d "$C/root.XXXXXX")
  say "making the guest's root with debootstrap"
  debootstrap --variant=minbase --include="$root_packages" "$base" "$d" "$uri" >"$C/debootstrap.log" 2>&1 ||
    { rm -rf "$d"; cannot "debootstrap fails: $(tail -n1 "$C/debootstrap.log")"; }
  rm -rf "$d"/var/cache/apt/* "$d"/var/lib/apt/lists/* "$d"/usr/share/{doc,man,locale,info}
  mkfs.erofs "$image.new" "$d" >/dev/null 2>&1
  rm -rf "$d"
  rm -f "$C"/root-*.erofs # a machine that runs holds its own open
  mv "$image.new" "$image"
}

root_packages=systemd,systemd-sysv,dbus,libpam-systemd,iproute2,iptables,nftables,procps,kmod,uidmap,util-linux
root_packages+=,e2fsprogs,ca-certificates,strace,erofs-utils,psmisc,busybox-static

tools
qemu
kernel "$C/kernel/$suite-$package"
image=$C/root-$(sha256sum <<<"$base $root_packages" | cut -c1-12).erofs
root "$image"
ln -sfn "$(basename "$image")" "$C/root.erofs"
echo "$C/kernel/$suite-$package"
