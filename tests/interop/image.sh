#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# image.sh [--force] [KERNEL]
#
# Builds the guest of the interoperability tests, a kernel file and an initial RAM disk, from Debian's kernel and its NFS, RDMA and fio
# programs. Prints the path of their folder. KERNEL is 6.1 (the default), 6.12 or newest, or $SLUICE_GUEST_KERNEL; the programs are of the
# release of Debian that has that kernel. The image is cached under a hash of its inputs, and --force builds it again. A concurrent call
# waits. The exit status is 75 if the packages cannot be fetched.
set -euo pipefail
here="$(dirname "$(readlink -f "$0")")"
cache="${SLUICE_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice-interop}"
force=
if [ "${1:-}" = --force ]; then force=1; shift; fi

case "${1:-${SLUICE_GUEST_KERNEL:-6.1}}" in
  6.1) suite=bookworm ;;
  6.12) suite=trixie ;;
  newest) suite=sid ;;
  *)
    echo "There is no image with the kernel '${1:-$SLUICE_GUEST_KERNEL}': choose 6.1, 6.12 or newest." >&2
    exit 2
    ;;
esac

. "$here/apt_lists.sh"
use_release "$suite"
kernel_package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ {print $2; exit}')
release=${kernel_package#linux-image-}
# Newer kernels have their modules in a package of their own.
kernel_packages="$kernel_package $(apt-cache depends "$kernel_package" | awk '/Depends:/ {print $2}' | grep "^linux-.*-$release\$" || true)"
user_packages=busybox-static,bash,coreutils,findutils,kmod,iproute2,mount,util-linux,rdma-core,ibverbs-providers,rdmacm-utils
user_packages+=,perftest,nfs-common,nfs-kernel-server,rpcbind,netbase,fio,tcpdump,acl,nfs4-acl-tools,libnss-systemd-
modules="virtio_pci virtio_net virtio_rng 9pnet_virtio 9p rdma_rxe rdma_cm rdma_ucm ib_uverbs rpcrdma nfs nfsv3 nfsv4 nfsd lockd
  rpcsec_gss_krb5 cts sch_netem sch_ingress ifb cls_matchall act_mirred 8021q bonding veth uio_pci_generic
  vfio_pci vfio_iommu_type1"
optional_modules="crc32c_generic crc32c-intel crc32_generic crc32-pclmul libcrc32c"  # built in, or named otherwise, in newer kernels
programs="bash mount umount kmod ip tc rdma tcpdump rping ib_send_lat ib_read_bw ib_write_bw fio
  mount.nfs umount.nfs getfacl setfacl nfs4_getfacl nfs4_setfacl rpc.gssd setpriv exportfs rpc.nfsd rpc.mountd rpc.statd sm-notify rpcbind dd sha256sum md5sum head stat sync timeout find sort readlink cp mv ln"

key=$({ cat "$0" "$here"/guest/*; echo "$suite $kernel_packages"; apt-cache policy fio nfs-common rdma-core "$kernel_package" | grep Candidate; } |
  sha256sum | cut -c1-16)
image="$cache/$key"
mkdir -p "$cache"
exec 9> "$cache/$key.lock"
flock 9
if [ -z "$force" ] && [ -e "$image/complete" ]; then
  echo "$image"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$image"
{
  cd "$work"

  # A kernel that is an ELF file starts without a boot loader and without unpacking itself.
  apt-get download -q $kernel_packages || exit 75
  for package in $kernel_packages; do dpkg -x "$package"_*.deb kernel; done
  if [ ! -e kernel/lib ]; then ln -s usr/lib kernel/lib; fi
  packed=kernel/boot/vmlinuz-$release
  if [ ! -e "$packed" ]; then packed=kernel/lib/modules/$release/vmlinuz; fi
  python3 - "$packed" "$image/vmlinux" <<'PYTHON'
import subprocess
import sys

packed = open(sys.argv[1], "rb").read()
for magic, tool in ((b"\xfd7zXZ\0", ["xz", "-dc"]), (b"\x28\xb5\x2f\xfd", ["zstd", "-dcq"]), (b"\x1f\x8b\x08", ["gzip", "-dc"])):
    at = packed.find(magic)
    while at >= 0:
        plain = subprocess.run(tool, input=packed[at:], capture_output=True).stdout
        if plain[:4] == b"\x7fELF":
            open(sys.argv[2], "wb").write(plain)
            sys.exit(0)
        at = packed.find(magic, at + 1)
sys.exit("no kernel found in " + sys.argv[1])
PYTHON

  APT_CONFIG='' mmdebstrap --quiet --variant=extract --aptopt='Acquire::Check-Valid-Until "false"' --include="$user_packages" "$suite" base || exit 75
  for program in random_io locks names once; do gcc -O2 -static -o $program "$here/guest/$program.c"; done

  # Only programs that the tests use, and their libraries.
  mkdir -p root/{bin,sbin,proc,sys,dev,run,tmp,etc,export,mnt/host,mnt/nfs,mnt/other,root,usr/bin,usr/sbin,usr/lib,var/lib/nfs/{sm,sm.bak,v4recovery,rpc_pipefs}}
  add() { # a file of the base system, with the targets of its links and the libraries it needs
    local file=$1 target name folder
    if [ -e "root/$file" ] || [ -L "root/$file" ]; then return 0; fi
    mkdir -p "root/$(dirname "$file")"
    cp -a "base/$file" "root/$file"
    if [ -L "base/$file" ]; then
      target=$(readlink "base/$file")
      case $target in /*) target=${target#/} ;; *) target=$(realpath -m --relative-to=. "$(dirname "$file")/$target") ;; esac
      if [ -f "base/$target" ]; then add "$target"; fi
      return 0
    fi
    for name in $(objdump -p "base/$file" 2>/dev/null | awk '/NEEDED/ {print $2}'); do
      for folder in lib/x86_64-linux-gnu usr/lib/x86_64-linux-gnu usr/lib/x86_64-linux-gnu/ceph lib64; do
        if [ -e "base/$folder/$name" ]; then add "$folder/$name"; break; fi
      done
    done
  }
  for program in $programs; do
    for folder in bin sbin usr/bin usr/sbin; do
      if [ -e "base/$folder/$program" ]; then add "$folder/$program"; continue 2; fi
    done
    echo "None of the packages has $program." >&2
    exit 1
  done
  add bin/busybox
  add lib64/ld-linux-x86-64.so.2
  for file in etc/libibverbs.d/rxe.driver $(cd base; ls usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so) etc/netconfig etc/rpc etc/services \
      etc/protocols lib/x86_64-linux-gnu/libnss_files.so.2 lib/x86_64-linux-gnu/libgcc_s.so.1; do
    if [ -e "base/$file" ]; then add "$file"; fi
  done
  for applet in $(root/bin/busybox --list); do
    case " $programs " in *" $applet "*) ;; *) ln -sf /bin/busybox "root/usr/bin/$applet" ;; esac
  done
  ln -sf bash root/bin/sh
  for link in modprobe insmod rmmod; do ln -sf /bin/kmod "root/sbin/$link"; done
  cp random_io locks names once root/usr/bin/
  cp "$here/guest/init" root/init
  cp "$here/guest/setup.sh" root/etc/setup.sh
  chmod 755 root/init
  printf 'root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n_rpc:x:101:65534::/run/rpcbind:/bin/false\n' > root/etc/passwd
  printf 'root:x:0:\nnogroup:x:65534:\n' > root/etc/group
  printf 'passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\nrpc: files\n' > root/etc/nsswitch.conf
  echo '127.0.0.1 localhost guest' > root/etc/hosts
  touch root/etc/exports root/var/lib/nfs/{etab,rmtab,state}

  to="root/lib/modules/$release"
  mkdir -p "$to/kernel"
  depmod -b kernel "$release"
  for module in $modules; do
    modprobe -d "$work/kernel" -S "$release" --show-depends -a "$module" 2>/dev/null | awk '/^insmod/ {print $2}'
  done > modules
  for module in $optional_modules; do
    modprobe -d "$work/kernel" -S "$release" --show-depends -a "$module" 2>/dev/null | awk '/^insmod/ {print $2}' || true
  done >> modules
  sort -u modules | while read -r file; do
    case $file in *.xz) xz -dc "$file" > "$to/kernel/$(basename "${file%.xz}")" ;; *) cp "$file" "$to/kernel/" ;; esac
  done
  strip -g "$to"/kernel/*.ko
  cp kernel/lib/modules/"$release"/modules.{builtin,builtin.modinfo,order} "$to/"
  depmod -b root "$release"

  # Programs from outside use these instead of their own.
  (cd root && find lib usr/lib -name '*.so*' -printf '%f\n' | sort -u) > "$image/libraries"
  (cd root && find . -print0 | LC_ALL=C sort -z | cpio -0 -o -H newc --quiet) > "$image/initrd.cpio"
  touch "$image/complete"
} >&2
echo "$image"
