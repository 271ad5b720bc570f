#!/bin/sh
# Prints the statistics files of a cgroup of version 2 in one text, as the
# captured-*.txt beside this script are: "== FILE" and its contents. Run as root:
#	sh capture.sh CGROUP-DIRECTORY > captured-$(uname -r).txt
cd "$1" || exit 1
echo "== uname"
uname -srm
for f in cpu.stat cpu.pressure memory.stat memory.current memory.max memory.peak memory.swap.current memory.swap.max \
	memory.swap.peak memory.events memory.pressure pids.current pids.max io.stat io.pressure rdma.current rdma.max \
	hugetlb.2MB.current hugetlb.2MB.max hugetlb.2MB.events; do
	[ -r $f ] && echo "== $f" && cat $f
done
exit 0
