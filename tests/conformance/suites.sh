#!/bin/bash
# suites.sh SUITE [ARG...]: runs a suite inside the sandbox and leaves its log
# and report in $OUT. From run.sh: HANDLER and TYPE (the runtime's name in CRI's
# configuration and its shim's), RUNC (BinaryName, or nothing).
set -euo pipefail
: "${IN_SANDBOX:?run.sh calls this}"
sock=/run/containerd/containerd.sock

# fresh DIR: an empty directory of the scratch disk in DIR's place.
fresh() {
	mkdir -p "$1" "$RUN/fresh"
	mount --bind "$RUN/fresh" "$1"
}

# handler prints the tables that make the runtime known to CRI.
handler() {
	cat <<-TOML
		  [plugins."io.containerd.cri.v1.runtime".containerd]
		    default_runtime_name = "$HANDLER"
		    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.$HANDLER]
		      runtime_type = "$TYPE"
	TOML
	[ -z "$RUNC" ] || cat <<-TOML
		      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.$HANDLER.options]
		        BinaryName = "$RUNC"
	TOML
}

await() { # ADDRESS
	for _ in $(seq 300); do
		ctr -a "$1" version > /dev/null 2>&1 && return
		sleep 0.1
	done
	echo "containerd did not start; the end of $OUT/containerd.log:" >&2
	tail -n 20 "$OUT/containerd.log" >&2
	return 1
}

# restrict_oom_score_adj is for hosts that withhold CAP_SYS_RESOURCE.
start_containerd() {
	mkdir "$RUN/root"
	{
		cat <<-TOML
			version = 3
			root = "$RUN/root"
			state = "/run/containerd"
			[grpc]
			  address = "$sock"
			[plugins."io.containerd.nri.v1.nri"]
			  socket_path = "/run/nri/nri.sock"
			[plugins."io.containerd.cri.v1.runtime"]
			  restrict_oom_score_adj = true
		TOML
		handler
	} > "$RUN/config.toml"
	containerd -c "$RUN/config.toml" > "$OUT/containerd.log" 2>&1 &
	daemon=$!
	await "$sock"
}

# stop_containerd waits for it, or its CPU time would be in no account.
stop_containerd() {
	kill "$daemon" 2> /dev/null || true
	wait "$daemon" 2> /dev/null || true
}

critest() {
	start_containerd
	cd "$RUN"
	local rc=0
	command critest -runtime-endpoint "unix://$sock" -runtime-handler "$HANDLER" \
		-nri-socket /run/nri/nri.sock -parallel "${PARALLEL:-2}" -ginkgo.no-color \
		-ginkgo.json-report "$OUT/report.json" "$@" > "$OUT/log" 2>&1 || rc=$?
	stop_containerd
	return "$rc"
}

# client starts a containerd of its own, and ends before it shows its log if it
# cannot remove /var/lib/containerd-test, so that is no mount itself. Checkpoint
# tests are off: the criu of Debian 12 does not know current kernels.
client() {
	fresh /var/lib
	cd "$CONF" # for testdata/
	TEST_RUNTIME=$TYPE client.test -test.v=test2json -test.root -no-criu \
		-test.timeout "${TIMEOUT:-9m}" "$@" > "$OUT/log" 2>&1
}

# cri: the suite restarts the daemon, so one runs in a loop. The daemons that
# tests start with settings of their own get restrict_oom_score_adj too, from a
# containerd that adds an import to the configuration it is given. Left out are
# the upgrade tests, which download old releases, and a pull test that checks
# published digests.
cri() {
	local containerd rc=0 endpoint=/run/containerd-test/containerd.sock
	containerd=$(command -v containerd)
	export containerd
	printf 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\n  restrict_oom_score_adj = true\n' > /run/all.toml
	mkdir -p /run/build /run/cni-fp /usr/local/bin
	fresh /var/lib/containerd-test
	ln -s "$(command -v containerd-shim-runc-v2)" /run/build/containerd-shim-runc-v2
	cat > /run/build/containerd <<-'SH'
		#!/bin/bash
		args=("$@")
		for ((i = 0; i < $#; i++)); do
			if [[ ${args[i]} == --config && -f ${args[i + 1]} ]] && ! grep -q /run/all.toml "${args[i + 1]}"; then
				{ echo 'imports = ["/run/all.toml"]'; cat "${args[i + 1]}"; } > "${args[i + 1]}.new"
				mv "${args[i + 1]}.new" "${args[i + 1]}"
			fi
		done
		exec -a containerd "$containerd" "$@"
	SH
	chmod +x /run/build/containerd
	mount --bind "$CONF/cni/bin" /usr/local/bin # for loopback-v2
	export PATH=/run/build:$PATH
	sed 's/"type": "bridge", "bridge": "cni0"/"type": "cni-bridge-fp", "bridge": "cni-fp", "capabilities": {"io.kubernetes.cri.pod-annotations": true}/' \
		/etc/cni/net.d/10-net.conflist > /run/cni-fp/10-net.conflist
	{
		cat <<-TOML
			version = 3
			[plugins."io.containerd.cri.v1.runtime"]
			  drain_exec_sync_io_timeout = "10s"
		TOML
		handler
		cat <<-TOML
			    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc-fp]
			      runtime_type = "runc-fp.v1"
			      cni_conf_dir = "/run/cni-fp"
			      cni_max_conf_num = 1
			      pod_annotations = ["io.containerd.runtime.v2.shim.failpoint.*"]
			[plugins."io.containerd.nri.v1.nri"]
			  disable = false
			  socket_path = "/var/run/nri-test.sock"
			  plugin_path = "/no/pre-launched/nri/plugins"
		TOML
	} > /run/cri.toml
	while :; do
		containerd --log-level debug --config /run/cri.toml --address $endpoint \
			--state /run/containerd-test --root /var/lib/containerd-test || true
		sleep 3
	done >> "$OUT/containerd.log" 2>&1 &
	await "$endpoint"
	cd "$CONF"
	cri.test -test.v=test2json -test.timeout "${TIMEOUT:-12m}" -test.skip '^(TestUpgrade|TestIssue10467|TestCRIImagePullTimeout)$' \
		-cri-endpoint "unix://$endpoint" -runtime-handler "$HANDLER" -containerd-bin containerd \
		-build-dir /run/build -image-list "$RUN/images.toml" "$@" > "$OUT/log" 2>&1
}

# bench: critest's own benchmarks, N pod and N container lifecycles, one at a
# time and then two at a time. The CPU seconds are those of all that ran in
# between: the kernel adds up what this PID namespace waited for.
bench() {
	start_containerd
	local par n=${N:-100}
	for par in 1 2; do
		mkdir -p "$OUT/$par"
		printf '%s\n' "containersNumber: $n" "containersNumberParallel: $par" \
			"podsNumber: $n" "podsNumberParallel: $par" > "$RUN/bench.yaml"
		command critest -benchmark -runtime-endpoint "unix://$sock" -runtime-handler "$HANDLER" \
			-benchmarking-params-file "$RUN/bench.yaml" -benchmarking-output-dir "$OUT/$par" > "$OUT/$par/log" 2>&1
	done
	stop_containerd
}

"$@"
