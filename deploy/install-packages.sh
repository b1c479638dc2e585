#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# install-packages.sh [product|tests]
#
# Installs missing packages for building and running Sluice (packages.txt). With "tests" it also installs those for the tests
# (packages-test.txt). Uses sudo unless run by root. Does not start or enable services of the packages. Does nothing if all packages
# are installed.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
case "${1:-product}" in
  product) lists=("$here/packages.txt") ;;
  tests) lists=("$here/packages.txt" "$here/packages-test.txt") ;;
  *) echo "usage: install-packages.sh [product|tests]" >&2; exit 2 ;;
esac

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }
available() { [ -n "$(apt-cache --quiet=0 madison "$1" 2>/dev/null)" ]; }
# A line has one package, or alternatives for different releases: "a | b".
alternatives() { tr '|' ' ' <<<"$1"; }

missing=()
while read -r line; do
  there=no
  for package in $(alternatives "$line"); do installed "$package" && there=yes; done
  [ $there = yes ] || missing+=("$line")
done < <(sed -e 's/#.*//' -e '/^ *$/d' "${lists[@]}")
[ ${#missing[@]} -eq 0 ] && exit 0
command -v apt-get >/dev/null || { echo "apt-get is not available. Install the equivalents of these Debian packages: ${missing[*]}" >&2; exit 1; }

if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Missing packages must be installed by root, and there is no sudo: ${missing[*]}. Run as root: $0 ${1:-product}" >&2
    exit 1
  fi
  echo "Using sudo to install ${#missing[@]} packages with apt-get: ${missing[*]}"
  exec sudo -- bash "$(readlink -f "$0")" "${1:-product}"
fi

export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -qq -o DPkg::Lock::Timeout=300)
"${apt[@]}" update
chosen=()
for line in "${missing[@]}"; do
  found=
  for package in $(alternatives "$line"); do
    if [ -z "$found" ] && available "$package"; then found=$package; fi
  done
  [ -n "$found" ] || { echo "No apt source has the package $line. Check /etc/apt/sources.list.d." >&2; exit 1; }
  chosen+=("$found")
done

# Packages enable and start their daemons on first installation. The tests need only the programs, so policy-rc.d prevents the start,
# and a systemd preset prevents the enabling. An existing policy is kept.
policy=/usr/sbin/policy-rc.d
preset=/run/systemd/system-preset/00-sluice-packages.preset
ours=()
leave() { rm -f "${ours[@]}"; }
trap leave EXIT
if [ ! -e "$policy" ]; then
  ours+=("$policy")
  printf '#!/bin/sh\n# Only while %s runs.\nexit 101\n' "$(readlink -f "$0")" >"$policy"
  chmod 755 "$policy"
fi
mkdir -p "$(dirname "$preset")"
ours+=("$preset")
echo 'disable *' >"$preset"

echo "Installing ${#chosen[@]} packages"
"${apt[@]}" install -y --no-install-recommends "${chosen[@]}" >/dev/null
