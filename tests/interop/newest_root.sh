#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# newest_root.sh
#
# Builds a root folder with nfs-ganesha and user-space NFS clients of Debian's sid, whose libraries are newer than this machine's. Prints
# the path of the folder, which is cached under a hash of the packages' versions. A concurrent call waits. The exit status is 75 if the
# packages cannot be fetched.
set -euo pipefail
here="$(dirname "$(readlink -f "$0")")"
cache="${SLUICE_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice-interop}"
packages="base-files netbase nfs-ganesha nfs-ganesha-vfs nfs-ganesha-mem nfs-ganesha-proxy-v4 libnfs-utils fio"

. "$here/apt_lists.sh"
use_release sid
key=$({ cat "$0"; apt-cache policy $packages | grep -E '^[a-z]|Candidate'; } | sha256sum | cut -c1-16)
root="$cache/root-$key"
exec 9> "$root.lock"
flock 9
if [ ! -e "$root/complete" ]; then
  rm -rf "$root"
  # The packages are only unpacked, because programs find their libraries in Debian's folders without the scripts of the packages.
  APT_CONFIG='' mmdebstrap --quiet --variant=extract --aptopt='Acquire::Check-Valid-Until "false"' --include="${packages// /,}" sid "$root" >&2 || exit 75
  ln -s ../proc/self/mounts "$root/etc/mtab"
  echo '127.0.0.1 localhost' > "$root/etc/hosts"
  touch "$root/complete"
fi
echo "$root"
