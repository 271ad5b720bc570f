#!/bin/bash
# bench.sh DIR prints what critest's benchmarks wrote to DIR/1 (one at a time)
# and DIR/2 (two at a time): milliseconds for each operation.
set -euo pipefail
for par in 1 2; do
	for f in pod container; do
		jq -r --arg p "$par" '
			.operationsNames as $ops | [.datapoints[].operationsDurationsNs] as $d
			| range($ops | length) as $i | ([$d[][$i]] | sort) as $v | ($v | length) as $n
			| def ms(q): ($v[([($n * q | floor), $n - 1] | min)] / 1e4 | round) / 100;
			"\($p) at a time: \($ops[$i]): n=\($n) p50=\(ms(0.5)) p95=\(ms(0.95)) max=\($v[-1] / 1e6 | round) ms"
		' "$1/$par/${f}_benchmark_data.json"
	done
done
