#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# first-mount.sh [--programs DIR] [--guest]
#
# Shows that a Linux kernel mounts Sluice over RDMA, on one machine and without RDMA hardware. Starts both planes, mounts an export, copies
# a file, compares it, prints the state of mount and planes, and undoes all changes. The client is the kernel of this machine, with its Soft
# RoCE at one end of a virtual cable and Sluice at the other. If the kernel has no Soft RoCE, or with --guest, the client is a small virtual
# machine (QEMU; KVM is not required). Requires root. Builds Sluice unless --programs names a folder that contains its programs.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
programs='' guest=no
while [ $# -gt 0 ]; do
  case $1 in
    --programs) programs=$(readlink -f "${2:?--programs requires a folder}"); shift 2 ;;
    --guest) guest=yes; shift ;;
    *) echo "usage: first-mount.sh [--programs DIR] [--guest]" >&2; exit 2 ;;
  esac
done
step() { printf '\n== %s\n' "$*"; }
[ "$(id -u)" -eq 0 ] || { echo "Interfaces, modules and mounts require root. Run first-mount.sh as root or with sudo." >&2; exit 1; }

# Without these the kernel cannot be a client on this machine.
lacks() {
  modprobe -a veth rdma_rxe rpcrdma nfsv3 2>/dev/null || { echo "the modules veth, rdma_rxe, rpcrdma and nfsv3"; return; }
  for program in ip rdma mount.nfs; do command -v $program >/dev/null || { echo "the program $program (packages iproute2, nfs-common)"; return; }; done
}
if [ $guest = no ] && missing=$(lacks) && [ -n "$missing" ]; then
  echo "This machine lacks $missing. A virtual machine is the client instead."
  guest=yes
fi

if [ -z "$programs" ]; then
  step "Build"
  bash "$here/install-packages.sh" "$([ $guest = yes ] && echo tests || echo product)"
  programs=$here/../build
  mkdir -p "$programs"
  [ -f "$programs/build.ninja" ] || meson setup "$programs" "$here/.." --buildtype=release >/dev/null
  ninja -C "$programs" sluice-dataplane controlplane/sluice-controlplane cli/sluicectl | tail -n 1
fi
path_of() {
  for folder in "$programs" "$programs/controlplane" "$programs/cli"; do [ -x "$folder/$1" ] && { echo "$folder/$1"; return; }; done
  echo "$programs contains no $1. Build it, or name the folder of the programs with --programs." >&2
  return 1
}
control=$(path_of sluice-controlplane) data=$(path_of sluice-dataplane) ctl=$(path_of sluicectl)
if [ $guest = yes ]; then exec python3 "$here/../tests/interop/first_mount.py" "$control" "$data" "$ctl"; fi

work=$(mktemp -d)
sluice_end=sluice$$ client_end=client$$ device=rxe$$ segment=sluice-first-$$ pids=()
[ ${#sluice_end} -le 15 ] || { sluice_end=sl$$ client_end=cl$$; }
net=192.0.2
if ip -4 addr show | grep -q "inet $net\."; then net=198.51.100; fi
undo() {
  trap - EXIT INT TERM
  umount "$work/mnt" 2>/dev/null || true
  rdma link delete $device 2>/dev/null || true
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  ip link delete $sluice_end 2>/dev/null || true
  rm -rf "$work" /dev/shm/$segment.control /dev/shm/$segment.data
}
trap undo EXIT INT TERM
mkdir "$work/mnt"
free_port() {
  local port
  for port in $(seq 30048 30147); do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then echo "$port"; return; fi
  done
}
mount_port=$(free_port)

step "A virtual cable. Sluice's end has no kernel address, because the kernel answers RoCE packets to its own addresses"
ip link add $sluice_end mtu 4300 type veth peer name $client_end mtu 4300
for setting in net.ipv4.conf.$sluice_end.forwarding=0 net.ipv6.conf.$sluice_end.disable_ipv6=1; do sysctl -qw "$setting" || true; done
ip link set $sluice_end up
ip link set $client_end up
ip addr add $net.2/24 dev $client_end
rdma link add $device type rxe netdev $client_end
rdma link show $device/1

step "Both planes"
cat >"$work/sluice.toml" <<TOML
segment = "$segment"
[reactor]
idle = "backoff"
[device]
driver = "softroce"
ethdev = "net_af_packet0,iface=$sluice_end,framesz=8192,blocksz=65536,framecnt=512,qdisc_bypass=1"
addresses = ["$net.1/24"]
[memory]
size_mib = 128
[[export]]
path = "/export"
clients = []
root_squash = false
[mount]
port = $mount_port
rpcbind = false
[admin]
socket = "$work/admin.sock"
[metrics]
address = ""
TOML
"$control" --config "$work/sluice.toml" >"$work/controlplane.log" 2>&1 & pids+=($!)
"$data" --segment "$segment" >"$work/dataplane.log" 2>&1 & pids+=($!)
ask() { "$ctl" --socket "$work/admin.sock" "$@"; }
for _ in $(seq 300); do
  if ask exports 2>/dev/null | grep -q /export; then break; fi
  sleep 0.1
done
ask exports | grep -q /export || { cat "$work"/*.log; echo "The planes did not start. The lines above are their logs." >&2; exit 1; }
ask status

step "The mount"
mount -t nfs -o "vers=3,proto=rdma,port=20049,nolock,mountproto=tcp,mountport=$mount_port,mountaddr=127.0.0.1" $net.1:/export "$work/mnt"
grep "$work/mnt" /proc/mounts
for _ in 1 2 3; do head -c 1000000 /dev/urandom; done >"$work/file"
cp "$work/file" "$work/mnt/file"
sync
echo 3 >/proc/sys/vm/drop_caches
cmp "$work/file" "$work/mnt/file"
ls -l "$work/mnt"
ask connections
undo
printf '\nDone: %s bytes were read back as they were written. All changes are undone.\n' 3000000
