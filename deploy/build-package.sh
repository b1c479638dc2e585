#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build-package.sh FOLDER: builds the Debian package into FOLDER, from a copy of the sources.
set -euo pipefail
command -v dpkg-buildpackage >/dev/null || { echo "dpkg-buildpackage is missing: install debhelper, dpkg-dev and fakeroot." >&2; exit 1; }
[ $# -eq 1 ] || { echo "usage: build-package.sh FOLDER" >&2; exit 2; }
source=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
mkdir -p "$1"
out=$(readlink -f "$1")
copy=$(mktemp -d)/sluice
trap 'rm -rf "$(dirname "$copy")"' EXIT
mkdir "$copy"
for part in meson.build README.md LICENSE dataplane controlplane pmd cli telemetry deploy; do cp -r "$source/$part" "$copy/"; done
mv "$copy/deploy/debian" "$copy/debian"
cd "$copy"
dpkg-buildpackage -b -us -uc
cp ../sluice-gateway_*.deb "$out/"
