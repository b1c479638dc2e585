#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Locks of NFS version 3 through the gateway: a Linux client that mounts over RDMA without "nolock". The upstream is the guest's own
kernel over TCP, so client and server share one lock manager. A direct mount is another client of the upstream. In one test the
upstream is nfs-ganesha. Speaks TAP.

locks_test.py CONTROLPLANE DATAPLANE SLUICECTL [NAME...]   (NAME: only those tests)"""
import contextlib
import os
import re
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import newest  # noqa: E402
from lab import PLAIN_GUEST, PLAIN_HOST, ROCE_HOST, Bench, Failed, Planes, build_image, need_lab, run, run_tests  # noqa: E402

ROCE_PORT = 4791
METRICS = "127.0.0.1:9464"
SERVES = f"""
[[upstream]]
name = "upstream"
address = "{PLAIN_GUEST}"
port = 2049
programs = ["nfs3", "nfsacl3"]
[locks]
enabled = true
state = "STATE"
"""
MOUNT_GATEWAY = f"mount -t nfs -o proto=rdma,port=20049,vers=3,mountproto=tcp,mountaddr={PLAIN_HOST},mountport=20048 {ROCE_HOST}:/export /mnt/nfs"
MOUNT_DIRECTLY = "mount -t nfs -o proto=tcp,vers=3,mountproto=tcp 127.0.0.1:/export /mnt/other"
# hold FILE BYTE: holds a lock until `release`. refused FILE BYTE: checks that another client holds the lock.
FUNCTIONS = """
hold() { rm -f /tmp/held; touch /tmp/held; locks fcntl $1 $2 hold 600 > /tmp/held & holder=$!; until grep -q held /tmp/held; do usleep 50000; kill -0 $holder; done; }
release() { kill $holder; wait $holder || true; }
# notify WHOM: a notice of a restart, as Linux sends it when it boots.
notify() {
  rm -rf /tmp/nsm; mkdir -p /tmp/nsm/sm /tmp/nsm/sm.bak
  cp /var/lib/nfs/sm/$1 /tmp/nsm/sm/; printf '\\145\\0\\0\\0' > /tmp/nsm/state
  sm-notify -d -f -P /tmp/nsm
}
refused() { local status=0; locks fcntl $1 $2 try || status=$?; test $status = 2; }
"""


class PlanesBesideRpcbind(Planes):
    """Planes whose control plane sees the lab's rpcbind, whose socket is in a separate /run."""

    def start_control(self):
        script = f"mount --bind {self.lab.dir}/run /run && exec {self.control_path} --config {self.config}"
        self.control = self.lab.start("unshare", "-m", "sh", "-c", script, log=self.log)


class LocksBench(Bench):
    def __init__(self, *programs):
        self.programs = programs
        super().__init__()

    def set_up(self):
        image = build_image()
        self.lab.add_tap("roce")
        self.lab.add_tap("plain", address=f"{PLAIN_HOST}/24")
        os.mkdir(f"{self.lab.dir}/run")
        self.lab.start("unshare", "-m", "sh", "-c", f"mount --bind {self.lab.dir}/run /run && exec rpcbind -w -f", log=f"{self.lab.dir}/rpcbind.log")
        self.lab.wait("rpcbind", lambda: os.path.exists(f"{self.lab.dir}/run/rpcbind.sock"))
        self.serve(SERVES.replace("STATE", f"{self.lab.dir}/locks"))
        self.connect_guest(image)
        self.share_address()
        self.sh("nfsd_with_locks\n")

    def serve(self, configuration):
        if self.planes:
            self.planes.close()
        self.planes = PlanesBesideRpcbind(self.lab, *self.programs, configuration, metrics=METRICS)
        self.planes.start()

    def share_address(self):
        """Assigns the gateway's address to the kernel too, for NLM over TCP (kerberos_test.py)."""
        self.lab.ip("addr", "add", f"{ROCE_HOST}/24", "dev", "roce")
        with self.lab.inside():
            self.roce_port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.roce_port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self.roce_port.bind((ROCE_HOST, ROCE_PORT))

    def metrics(self):
        done = subprocess.run(self.lab.netns("curl", "-s", f"http://{METRICS}/metrics"), capture_output=True, text=True, check=True)
        return dict(re.findall(r"^(sluice_lock\S*) (\d+)$", done.stdout, re.M))

    def count(self, event):
        return int(self.metrics()[f'sluice_locks_total{{event="{event}"}}'])

    def gauge(self, what):
        return int(self.metrics()[f'sluice_lock_table_entries{{kind="{what}"}}'])

    @contextlib.contextmanager
    def mounted(self):
        self.sh(f"{MOUNT_GATEWAY}\n{MOUNT_DIRECTLY}\ngrep ' /mnt/nfs ' /proc/mounts | grep -v nolock | grep proto=rdma")
        yield
        self.sh("umount /mnt/other; umount /mnt/nfs")


def locks_exclude_each_other_both_ways(b):
    with b.mounted():
        b.sh(FUNCTIONS + """
hold /mnt/nfs/locked 0; refused /mnt/other/locked 0; locks fcntl /mnt/other/locked 1 try
release; locks fcntl /mnt/other/locked 0 try
hold /mnt/other/locked 10; refused /mnt/nfs/locked 10; locks fcntl /mnt/nfs/locked 11 try
release; locks fcntl /mnt/nfs/locked 10 try""")


def a_lock_that_is_waited_for_is_granted(b):
    """The upstream sends GRANTED, which the gateway forwards. Linux itself would retry only after thirty seconds."""
    with b.mounted():
        before = b.count("grants_delivered")
        elapsed = b.sh(FUNCTIONS + """
hold /mnt/other/waited 0
locks fcntl /mnt/nfs/waited 0 wait 600 > /tmp/waits & waits=$!
sleep 3; ! grep -q had /tmp/waits
kill $holder; began=$(cut -d. -f1 /proc/uptime)
until grep -q had /tmp/waits; do usleep 50000; kill -0 $waits; done
echo "granted after $(($(cut -d. -f1 /proc/uptime) - began)) s"
refused /mnt/other/waited 0; kill $waits; wait $waits || true; locks fcntl /mnt/other/waited 0 try""")
        print("# " + re.search("granted after .*", elapsed)[0])
        if b.count("grants_delivered") != before + 1:
            raise Failed(f"no GRANTED was delivered: {b.metrics()}")


def two_who_wait_through_the_gateway_take_turns(b):
    with b.mounted():
        b.sh(FUNCTIONS + """
hold /mnt/other/turns 0
rm -f /tmp/order
for n in 1 2; do (setsid locks fcntl /mnt/nfs/turns 0 wait 1 > /dev/null; echo $n >> /tmp/order) & done
sleep 2; test ! -e /tmp/order
release; until test "$(wc -l < /tmp/order)" = 2; do usleep 50000; done; wait
locks fcntl /mnt/other/turns 0 try""")


def locks_of_a_client_that_restarts_are_released(b):
    """The locks are released although the process that holds the lock is still running."""
    with b.mounted():
        b.sh(FUNCTIONS + f"""
hold /mnt/nfs/crashed 0; refused /mnt/other/crashed 0
notify {ROCE_HOST}
for i in $(seq 200); do locks fcntl /mnt/other/crashed 0 try && break; usleep 50000; done
locks fcntl /mnt/other/crashed 0 try
release""")


def locks_survive_the_control_plane(b):
    """The control plane is killed while a client holds a lock. The client still holds the lock afterwards, and can release it."""
    with b.mounted():
        b.sh(FUNCTIONS + "hold /mnt/nfs/kept 0; echo $holder > /tmp/holder")
        b.lab.kill(b.planes.control)
        b.planes.start_control()
        b.lab.wait("the new control plane", b.planes.up)
        if b.gauge("held") != 1:
            raise Failed(f"the lock is not known: {b.metrics()}")
        b.sh(FUNCTIONS + """
refused /mnt/other/kept 0
kill $(cat /tmp/holder)
for i in $(seq 400); do locks fcntl /mnt/other/kept 0 try && break; usleep 50000; done
locks fcntl /mnt/other/kept 0 try
hold /mnt/nfs/kept 0; refused /mnt/other/kept 0; release; locks fcntl /mnt/other/kept 0 try""")
        b.lab.wait("the gateway to have none", lambda: b.gauge("held") == 0)


def locks_are_reclaimed_when_the_upstream_restarts(b):
    """The upstream drops all locks and begins a grace period. It notifies the gateway, and the gateway notifies the client. Newer kernels
    drop the locks and then return an error, because no server runs whose states of NFS 4 could be revoked."""
    with b.mounted():
        before = b.count("notices")
        b.sh(FUNCTIONS + f"""
hold /mnt/nfs/reclaimed 0; refused /mnt/other/reclaimed 0
rpc.nfsd 0; echo /export > /proc/fs/nfsd/unlock_filesystem || true; rpc.nfsd -N 4 --tcp 4
locks fcntl /export/reclaimed 0 try
notify {PLAIN_HOST}
for i in $(seq 200); do locks fcntl /export/reclaimed 0 try || break; usleep 50000; done
refused /export/reclaimed 0
end_grace
refused /mnt/other/reclaimed 0
release; locks fcntl /mnt/other/reclaimed 0 try""")
        if b.count("notices") != before + 1:
            raise Failed(f"the client was not told by the gateway: {b.metrics()}")


GANESHA = """
NFS_CORE_PARAM {{ {core} Protocols = 3; NFS_Port = 2049; MNT_Port = 20047; Enable_NLM = true; Enable_RQUOTA = false; }}
NFSV4 {{ Grace_Period = 5; Lease_Lifetime = 15; RecoveryBackend = "fs"; RecoveryRoot = "{dir}/recovery"; }}
EXPORT_DEFAULTS {{ SecType = sys; Access_Type = RW; Squash = No_Root_Squash; Protocols = 3; Transports = TCP; }}
EXPORT {{ Export_Id = 1; Path = {dir}/vfs; Pseudo = /vfs; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = EVENT; }}
"""


def nfs_ganesha_grants_what_is_waited_for(b):
    """nfs-ganesha's lock manager and status monitor run in a separate namespace, outside of the gateway's rpcbind. It calls back by name, and the
    gateway's name is its address."""
    lab, ours, theirs, other = b.lab, "10.79.0.1", "10.79.0.2", f"{b.lab.name}-upstream"
    work = f"{lab.dir}/ganesha"
    for folder in ("vfs", "recovery", "nfs/sm", "nfs/sm.bak"):
        os.makedirs(f"{work}/{folder}")
    with open(f"{work}/ganesha.conf", "w", encoding="utf-8") as file:
        file.write(GANESHA.format(dir=work, core=newest.core(newest.is_upstream())))
    run("ip", "netns", "add", other)
    try:
        lab.ip("link", "add", "up0", "type", "veth", "peer", "name", "up1", "netns", other)
        lab.ip("addr", "add", f"{ours}/24", "dev", "up0")
        lab.ip("link", "set", "up0", "up")
        for words in (["addr", "add", f"{theirs}/24", "dev", "up1"], ["link", "set", "up1", "up"], ["link", "set", "lo", "up"],
                      ["route", "add", f"{PLAIN_GUEST}/32", "via", ours]):
            run("ip", "-n", other, *words)
        run(*lab.netns("sysctl", "-qw", "net.ipv4.ip_forward=1"))
        script = (f"mount -t tmpfs none /run; mount --bind {work}/nfs /var/lib/nfs; rpcbind -w; rpc.statd --no-notify; "
                  + newest.ganesha(work, newest.is_upstream()))
        lab.start("ip", "netns", "exec", other, "unshare", "-m", "sh", "-c", script, log=f"{work}/out", namespace=False)
        lab.wait("ganesha listens", lambda: ":20047 " in run("ip", "netns", "exec", other, "ss", "-Hltn"))
        b.serve(SERVES.replace("STATE", "").replace(PLAIN_GUEST, theirs).replace("[locks]", f'[locks]\nname = "{ours}"'))
        b.sh(f"ip route add {theirs}/32 via {PLAIN_HOST}\n" + (MOUNT_GATEWAY + "\n" + MOUNT_DIRECTLY).replace("/export", f"{work}/vfs")
             .replace("127.0.0.1", theirs))
        b.sh(FUNCTIONS + """
hold /mnt/nfs/locked 0; refused /mnt/other/locked 0; release; locks fcntl /mnt/other/locked 0 try
hold /mnt/other/waited 0; refused /mnt/nfs/waited 0
locks fcntl /mnt/nfs/waited 0 wait > /tmp/waits & waits=$!
sleep 2; ! grep -q had /tmp/waits
release; wait $waits; grep -q had /tmp/waits
umount /mnt/other; umount /mnt/nfs""")
        if b.count("grants_delivered") != 1:
            raise Failed(f"no GRANTED was delivered: {b.metrics()}")
    finally:
        subprocess.run(["ip", "netns", "del", other], check=False)


TESTS = [locks_exclude_each_other_both_ways, a_lock_that_is_waited_for_is_granted, two_who_wait_through_the_gateway_take_turns,
         locks_survive_the_control_plane, locks_of_a_client_that_restarts_are_released, locks_are_reclaimed_when_the_upstream_restarts,
         nfs_ganesha_grants_what_is_waited_for]


def main():
    programs, names = sys.argv[1:4], sys.argv[4:]
    tests = [test for test in TESTS if not names or test.__name__ in names]
    need_lab("rpcbind", "rpc.statd", "ganesha.nfsd", "curl")
    bench = LocksBench(*programs)
    return 1 if run_tests(bench, tests) else 0


if __name__ == "__main__":
    sys.exit(main())
