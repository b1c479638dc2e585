#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build-package.sh FOLDER [ARCHITECTURE]: builds the Debian package into FOLDER, from a copy of the sources. For another
# architecture than this machine's it is cross-built in a root file system that mmdebstrap makes for that, with Debian's
# cross-compiler and the libraries of both: nothing is installed on this machine. $SLUICE_PACKAGE_RELEASE is then Debian's
# release, by default the one that this machine has.
set -euo pipefail
command -v dpkg-buildpackage >/dev/null || { echo "dpkg-buildpackage is missing: install debhelper, dpkg-dev and fakeroot." >&2; exit 1; }
[ $# -eq 1 ] || [ $# -eq 2 ] || { echo "usage: build-package.sh FOLDER [ARCHITECTURE]" >&2; exit 2; }
source=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
native=$(dpkg --print-architecture)
architecture=${2:-$native}
mkdir -p "$1"
out=$(readlink -f "$1")
copy=$(mktemp -d)/sluice
trap 'rm -rf "$(dirname "$copy")"' EXIT
mkdir "$copy"
for part in meson.build README.md LICENSE dataplane controlplane pmd cli telemetry deploy; do cp -r "$source/$part" "$copy/"; done
mv "$copy/deploy/debian" "$copy/debian"

if [ "$architecture" = "$native" ]; then
  cd "$copy"
  dpkg-buildpackage -b -us -uc
  cp ../sluice-gateway_*.deb "$out/"
else
  command -v mmdebstrap >/dev/null || { echo "mmdebstrap is missing: install it." >&2; exit 1; }
  chmod 755 "$(dirname "$copy")"
  export architecture out
  mmdebstrap --quiet --format=null --variant=apt --architectures="$native,$architecture" \
    --include="build-essential,crossbuild-essential-$architecture" \
    --customize-hook="copy-in $copy /" \
    --customize-hook='chroot "$1" env -C /sluice apt-get --yes --no-install-recommends --host-architecture "$architecture" build-dep ./' \
    --customize-hook='chroot "$1" env -C /sluice dpkg-buildpackage --host-arch "$architecture" -b -us -uc' \
    --customize-hook='cp "$1"/sluice-gateway_*.deb "$out/"' \
    "${SLUICE_PACKAGE_RELEASE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}" /dev/null
fi
