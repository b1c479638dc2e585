#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# quickstart.sh
#
# Installs missing packages, builds Sluice, starts both planes with their defaults, runs NFS I/O over RDMA with sluice-bench, prints the
# results, and stops the planes. sluice-bench and the data plane use RoCEv2, each with its own network stack. Requires neither hugepages
# nor RDMA hardware, and requires root only to install packages. Uses its own ports, segment and sockets, so that it does not disturb a
# running Sluice.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

step() { printf '\n== %s\n' "$*"; }

step "Packages"
bash deploy/install-packages.sh product
linker=()
command -v mold >/dev/null && linker=(env CC_LD=mold CXX_LD=mold)
step "Build"
mkdir -p build
[ -w build ] || { echo "$PWD/build belongs to $(stat -c %U build). Remove it, or run quickstart.sh as that user." >&2; exit 1; }
[ -f build/build.ninja ] || "${linker[@]}" meson setup build --buildtype=release >/dev/null
python3 deploy/build.py build sluice-dataplane controlplane/sluice-controlplane cli/sluicectl cli/sluice-bench

work=$(mktemp -d)
segment=sluice-quickstart-$$
# Two free TCP ports; the first one is also free for UDP.
read -r mount_port metrics_port < <(python3 - <<'PYTHON'
import socket

while True:
    tcp, other, udp = socket.socket(), socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
    tcp.bind(("", 0))
    other.bind(("127.0.0.1", 0))
    try:
        udp.bind(("", tcp.getsockname()[1]))
    except OSError:
        continue
    print(tcp.getsockname()[1], other.getsockname()[1])
    break
PYTHON
)
memif="id=0,socket=$work/memif.sock,socket-abstract=no,bsize=8192,rsize=10"
sed -e "s|^segment = .*|segment = \"$segment\"|" \
    -e 's|^driver = .*|driver = "softroce"|' \
    -e "s|^ethdev = .*|ethdev = \"net_memif0,role=server,$memif\"|" \
    -e 's|^addresses = .*|addresses = ["192.0.2.1/24"]|' \
    -e "s|^socket = .*|socket = \"$work/admin.sock\"|" \
    -e "s|^address = \"127.0.0.1:9464\"|address = \"127.0.0.1:$metrics_port\"|" \
    -e "s|^port = 20048|port = $mount_port|" -e 's|^rpcbind = true|rpcbind = false|' deploy/sluice.toml >"$work/sluice.toml"
bench() {
  build/cli/sluice-bench --device softroce --ethdev "net_memif0,role=client,$memif" --address 192.0.2.2/24 \
    --server 192.0.2.1 "$@"
}
pids=()
stop() {
  trap - EXIT INT TERM
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$work" "/dev/shm/$segment.control" "/dev/shm/$segment.data"
}
trap stop EXIT INT TERM

step "Start: control plane, data plane"
build/controlplane/sluice-controlplane --config "$work/sluice.toml" >"$work/controlplane.log" 2>&1 &
pids+=($!)
build/sluice-dataplane --segment "$segment" >"$work/dataplane.log" 2>&1 &
pids+=($!)
ctl() { build/cli/sluicectl --socket "$work/admin.sock" "$@"; }
for _ in $(seq 100); do
  ctl exports 2>/dev/null | grep -q /export && break
  sleep 0.1
done
ctl exports | grep -q /export || { cat "$work"/*.log; echo "The planes did not start. The lines above are their logs." >&2; exit 1; }
ctl status

step "Probe: parameters of a connection"
bench probe
step "NFSv3: a mix of GETATTR, LOOKUP, READ and WRITE, with every READ verified"
bench --seconds 3 nfs3 --mount-port "$mount_port" --verify
step "NFSv3: 1 MiB READ and WRITE"
bench --seconds 2 --depth 4 nfs3 --mount-port "$mount_port" --mix read=1,write=1 --block 1048576 --verify

step "Exports and reactors afterwards"
ctl exports
ctl reactors
step "Metrics (http://127.0.0.1:9464/metrics by default)"
python3 - "$metrics_port" <<'PYTHON'
import sys
import urllib.request

for line in urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics", timeout=10).read().decode().splitlines():
    if line.startswith(("sluice_calls_received", "sluice_rdma", "sluice_plane_up", "sluice_export")):
        print(line)
PYTHON

stop
cat <<'TEXT'

Done. Both planes are stopped. To run them, as root:
  build/controlplane/sluice-controlplane --config deploy/sluice.toml &
  build/sluice-dataplane &
  build/cli/sluicectl status
To mount Sluice over RDMA by the Linux kernel of this machine:
  sudo deploy/first-mount.sh
With driver "softroce" and an ethdev on a network interface in deploy/sluice.toml, a Linux client can mount over RDMA:
  rdma link add rxe0 type rxe netdev eth0        # unless the client has an RDMA NIC
  mount -t nfs -o vers=3,proto=rdma,port=20049,nolock,mountproto=tcp,mountport=20048,mountaddr=HOST SLUICE:/export /mnt
SLUICE is the address in [device]. HOST is an address of the kernel of this machine.
TEXT
