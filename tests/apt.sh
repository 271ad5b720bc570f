#!/bin/bash
# apt.sh PACKAGE... installs those Debian or Ubuntu packages that are missing and
# says so. On other systems it only says what to look for when something is not found.
set -euo pipefail
missing=()
for p; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2> /dev/null)" = installed ] || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if ! command -v apt-get > /dev/null; then
	echo "no apt here: if something is not found, it is one of these Debian packages: $*" >&2
	exit 0
fi
echo "installing ${missing[*]} (apt)" >&2
export DEBIAN_FRONTEND=noninteractive
quietly() { apt-get "$@" -qq > /dev/null; }
# The lists of a fresh machine are empty or old: fetch them if it does not work without.
quietly install -y --no-install-recommends "${missing[@]}" 2> /dev/null || {
	quietly update
	quietly install -y --no-install-recommends "${missing[@]}"
}
