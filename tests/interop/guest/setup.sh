# SPDX-License-Identifier: Apache-2.0
# Functions for the scripts that run in the guest.

# Prints the name of the network card with this MAC address.
card() { basename "$(dirname "$(grep -l "$1" /sys/class/net/*/address)")"; }

# rdma_link MAC ADDRESS MTU: a RoCE device rxe0 on that card.
rdma_link() {
  local name
  name=$(card "$1")
  ip link set "$name" mtu "$3"
  ip addr add "$2" dev "$name"
  ip link set "$name" up
  modprobe -a rdma_rxe ib_uverbs rdma_ucm rdma_cm rpcrdma nfsv3
  rdma link add rxe0 type rxe netdev "$name"
}

# take_card MAC [DRIVER [USER]]: binds that card to a driver for DPDK, reserves huge pages, and prints the PCI address of the card. With
# vfio-pci the card has to be behind an IOMMU. DPDK then does not need root, because USER owns the VFIO group and the huge pages.
take_card() {
  local pci driver=${2:-uio_pci_generic}
  pci=$(basename "$(dirname "$(readlink -f "/sys/class/net/$(card "$1")/device")")")
  modprobe "$driver"
  if [ "$driver" = vfio-pci ]; then modprobe vfio_iommu_type1; fi  # a soft dependency: busybox does not follow these
  echo "$driver" > "/sys/bus/pci/devices/$pci/driver_override"
  echo "$pci" > "/sys/bus/pci/devices/$pci/driver/unbind"
  echo "$pci" > /sys/bus/pci/drivers_probe
  mkdir -p /dev/hugepages
  grep -q " /dev/hugepages " /proc/mounts || mount -t hugetlbfs none /dev/hugepages
  echo 160 > /proc/sys/vm/nr_hugepages
  if [ -n "${3:-}" ]; then chown "$3" /dev/hugepages "/dev/vfio/$(basename "$(readlink "/sys/bus/pci/devices/$pci/iommu_group")")"; fi
  echo "$pci"
}

# plain_link MAC ADDRESS
plain_link() {
  local name
  name=$(card "$1")
  ip addr add "$2" dev "$name"
  ip link set "$name" up
}

# end_grace: ends the grace period of the kernel's NFS server. Newer kernels return an error if there is none.
end_grace() { echo Y > /proc/fs/nfsd/v4_end_grace 2> /dev/null || true; }

# nfsd_on_rdma: exports a RAM disk with the kernel's NFS server, for comparison.
nfsd_on_rdma() {
  mount -t tmpfs -o size=400m none /export
  chmod 777 /export
  modprobe -a nfsd rpcrdma
  mount -t nfsd nfsd /proc/fs/nfsd
  echo 1048576 > /proc/fs/nfsd/max_block_size
  rpcbind -w
  rpc.mountd -p 20048
  exportfs -i -o rw,no_root_squash,insecure,fsid=0,no_subtree_check '*:/export'
  rpc.nfsd -V 3 --tcp 4
  echo "rdma 20049" > /proc/fs/nfsd/portlist
}

# nfsd_on_tcp: exports a RAM disk with the kernel's NFS server over TCP, version 4, and ends the grace period.
nfsd_on_tcp() {
  mount -t tmpfs -o size=100m none /export
  chmod 777 /export
  modprobe nfsd
  mount -t nfsd nfsd /proc/fs/nfsd
  rpcbind -w
  rpc.mountd -p 20048
  exportfs -i -o rw,no_root_squash,insecure,fsid=0,no_subtree_check '*:/export'
  rpc.nfsd -N 3 --tcp 4  # version 3 starts lockd, whose grace period cannot be ended
  end_grace
}

# nfsd_with_locks: exports a RAM disk with the kernel's NFS server over TCP, version 3, with the lock manager. The guest's own mounts use
# the same lock manager. Its grace period is the shortest that it supports.
nfsd_with_locks() {
  mount -t tmpfs -o size=100m none /export
  chmod 777 /export
  modprobe -a nfsd lockd
  printf 3 > /sys/module/lockd/parameters/nlm_timeout
  printf 3 > /sys/module/lockd/parameters/nlm_grace_period
  mount -t nfsd nfsd /proc/fs/nfsd
  rpcbind -w
  rpc.statd --no-notify
  rpc.mountd -p 20048
  exportfs -i -o rw,no_root_squash,insecure,fsid=0,no_subtree_check '*:/export'
  rpc.nfsd -N 4 --tcp 4
  end_grace  # the grace period delays locks of version 3 too
}

drop_caches() {
  sync
  echo 3 > /proc/sys/vm/drop_caches
}

# lossy CARD PERCENT: drops that share of the packets in both directions.
lossy() {
  modprobe -a sch_netem sch_ingress ifb cls_matchall act_mirred
  ip link set ifb0 mtu 9000 up
  tc qdisc add dev "$1" root netem limit 20000 loss "$2%"
  tc qdisc add dev "$1" ingress
  tc filter add dev "$1" parent ffff: matchall action mirred egress redirect dev ifb0
  tc qdisc add dev ifb0 root netem limit 20000 loss "$2%"
}
lossless() {
  tc qdisc del dev "$1" root
  tc qdisc del dev "$1" ingress
  tc qdisc del dev ifb0 root
}
