#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# install-packages.sh [product|tests]
#
# Installs the packages that are missing of what building and running Sluice needs (packages.txt) or of that and what the tests need
# (packages-test.txt). Nobody but root may do that: started by somebody else it asks sudo. The services of what it installs are
# neither started nor enabled. Nothing happens where all packages are there.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
case "${1:-product}" in
  product) lists=("$here/packages.txt") ;;
  tests) lists=("$here/packages.txt" "$here/packages-test.txt") ;;
  *) echo "usage: install-packages.sh [product|tests]" >&2; exit 2 ;;
esac

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }
available() { [ -n "$(apt-cache --quiet=0 madison "$1" 2>/dev/null)" ]; }
# A line names one package, or several of which releases have one or another: "a | b".
alternatives() { tr '|' ' ' <<<"$1"; }

missing=()
while read -r line; do
  there=no
  for package in $(alternatives "$line"); do installed "$package" && there=yes; done
  [ $there = yes ] || missing+=("$line")
done < <(sed -e 's/#.*//' -e '/^ *$/d' "${lists[@]}")
[ ${#missing[@]} -eq 0 ] && exit 0
command -v apt-get >/dev/null || { echo "There is no apt-get here. Install by this system's own names: ${missing[*]}" >&2; exit 1; }

if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "These packages are missing, only root can install them, and there is no sudo: ${missing[*]}. As root: $0 ${1:-product}" >&2
    exit 1
  fi
  echo "sudo is asked for root's rights to install ${#missing[@]} packages by apt-get: ${missing[*]}"
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
  [ -n "$found" ] || { echo "No source of apt's has the package $line: see /etc/apt/sources.list.d." >&2; exit 1; }
  chosen+=("$found")
done

# A package with a daemon enables and starts it when it is installed for the first time. What the tests call is not meant to serve
# anybody: policy-rc.d forbids the start, a preset of systemd's that it is enabled. A policy that is there already stays.
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
