# SPDX-License-Identifier: Apache-2.0
# Functions for the scripts that run in the guest.

# The network card with this MAC address.
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

# plain_link MAC ADDRESS
plain_link() {
  local name
  name=$(card "$1")
  ip addr add "$2" dev "$name"
  ip link set "$name" up
}

# nfsd_on_rdma: exports a RAM disk by the kernel's own server, for comparison.
nfsd_on_rdma() {
  mount -t tmpfs -o size=400m none /export
  chmod 777 /export
  modprobe -a nfsd rpcrdma
  mount -t nfsd nfsd /proc/fs/nfsd
  echo 1048576 > /proc/fs/nfsd/max_block_size
  rpcbind -w
  rpc.mountd
  exportfs -i -o rw,no_root_squash,insecure,fsid=0,no_subtree_check '*:/export'
  rpc.nfsd -V 3 --tcp 4
  echo "rdma 20049" > /proc/fs/nfsd/portlist
}

drop_caches() {
  sync
  echo 3 > /proc/sys/vm/drop_caches
}
