#!/bin/bash
# sandbox.sh CMD [ARG...]: runs CMD in mount, network, IPC, UTS and PID
# namespaces of its own, in which / is rshared (specs about mount propagation
# need it), /run and /var/lib/cni are empty, CNI is set up and every registry that
# a suite names leads to imgreg, whose authority is trusted. All that CMD starts
# ends with it, and a suite that kills processes by name sees only its own.
#
# From run.sh: CONF (what build.sh filled), RUN (scratch, on a disk) and PATH.
# NET is full (dual stack, masquerading, port maps) or bare (a bridge, for timing).
set -euo pipefail
: "${CONF:?}" "${RUN:?}"

if [ "${IN_SANDBOX:-}" != 1 ]; then
	# The suites count the descriptors of shims, which would inherit the caller's
	# (255 is this script).
	for fd in /proc/$$/fd/*; do
		fd=${fd##*/}
		[ "$fd" -le 2 ] || [ "$fd" -eq 255 ] || eval "exec $fd>&-"
	done
	mkdir -p /opt/cni/bin /etc/cni/net.d /var/lib/cni # empty, to mount on
	IN_SANDBOX=1 exec unshare --mount --net --ipc --uts --pid --fork --mount-proc \
		--kill-child --propagation private -- "${BASH_SOURCE[0]}" "$@"
fi

mount --make-rshared /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/netns
mount -t tmpfs tmpfs /var/lib/cni
ip link set lo up

export TMPDIR=/var/tmp
mkdir -m 1777 "$RUN/tmp"
mount --bind "$RUN/tmp" /var/tmp
"$CONF/bin/imgreg" -bin "$CONF/bin" -busybox "$(command -v busybox)" -extra "$CONF/rootfs" \
	-ca "$RUN/ca.pem" -hosts "$RUN/hosts" -digests "$RUN/images.toml" &
for _ in $(seq 300); do [ -s "$RUN/ca.pem" ] && break; sleep 0.1; done
echo "nameserver 127.0.0.1" > "$RUN/resolv.conf"
mount --bind "$RUN/hosts" /etc/hosts
mount --bind "$RUN/resolv.conf" "$(readlink -f /etc/resolv.conf)"
export SSL_CERT_FILE=$RUN/ca.pem

mount --bind "$CONF/cni/bin" /opt/cni/bin
mkdir "$RUN/net.d"
ipam='"ranges": [[{"subnet": "10.88.0.0/16"}], [{"subnet": "fd00:88::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]'
more=', {"type": "portmap", "capabilities": {"portMappings": true}}' masq='"ipMasq": true, "promiscMode": true,'
[ "${NET:-full}" = full ] || { ipam='"ranges": [[{"subnet": "10.88.0.0/16"}]]' more='' masq=''; }
cat > "$RUN/net.d/10-net.conflist" <<JSON
{
  "cniVersion": "1.0.0",
  "name": "conf",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, $masq "ipam": {"type": "host-local", $ipam}}$more
  ]
}
JSON
mount --bind "$RUN/net.d" /etc/cni/net.d
"$@"
