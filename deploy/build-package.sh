#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build-package.sh FOLDER [ARCHITECTURE]: builds the Debian package into FOLDER, from a copy of the sources. If the architecture is not
# that of this machine, the package is cross-built in a temporary root file system, which mmdebstrap makes with Debian's cross-compiler
# and the libraries of both architectures. Nothing is installed on this machine. $SLUICE_PACKAGE_RELEASE is the Debian release of this
# root file system, by default that of this machine.
set -euo pipefail
command -v dpkg-buildpackage >/dev/null || { echo "dpkg-buildpackage is not installed. Install debhelper, dpkg-dev and fakeroot." >&2; exit 1; }
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
# sluice-card-check is made of the driver suite.
mkdir -p "$copy/tests/driver"
for name in connection_fixture.h connection_test.cc driver_fixture.h driver_test.cc verbs_pair.cc; do cp "$source/tests/driver/$name" "$copy/tests/driver/"; done
git -C "$source" describe --always --dirty --abbrev=12 >"$copy/commit" 2>/dev/null || rm -f "$copy/commit"
mv "$copy/deploy/debian" "$copy/debian"

if [ "$architecture" = "$native" ]; then
  cd "$copy"
  dpkg-buildpackage -b -us -uc
  cp ../sluice-gateway_*.deb "$out/"
else
  command -v mmdebstrap >/dev/null || { echo "mmdebstrap is not installed. Install it to build for another architecture." >&2; exit 1; }
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
