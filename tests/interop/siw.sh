#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds siw, Linux's software iWARP device, for the guest's kernel of Debian 12, whose package does not have it, from Debian's
# own source of that kernel. Prints the module's path. Exits with 75 if the packages cannot be fetched.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice-interop
kernel_package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ {print $2; exit}')
release=${kernel_package#linux-image-}
source=linux-source-${release%%-*}
source=${source%.*}  # linux-source-6.1
version=$(apt-cache policy "$kernel_package" | awk '/Candidate:/ {print $2}')
module="$cache/siw-$release-$version.ko"
mkdir -p "$cache"
exec 9> "$cache/siw.lock"
flock 9
if [ -e "$module" ]; then
  echo "$module"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
  cd "$work"
  headers=linux-headers-$release
  common=${headers%-amd64}-common
  apt-get download -q "$source=$version" "$headers=$version" "$common=$version" "linux-kbuild-${source#linux-source-}" || exit 75
  for package in *.deb; do dpkg -x "$package" .; done
  tar -xf "usr/src/$source.tar.xz" "$source/drivers/infiniband/sw/siw"
  # The header package includes a Makefile by an absolute path.
  sed -i "s|^include /usr/src/|include $work/usr/src/|" "usr/src/$headers/Makefile"
  make -s -C "usr/src/$headers" M="$work/$source/drivers/infiniband/sw/siw" CONFIG_RDMA_SIW=m modules
  strip -g "$source/drivers/infiniband/sw/siw/siw.ko"
  cp "$source/drivers/infiniband/sw/siw/siw.ko" "$module"
} >&2
echo "$module"
