# SPDX-License-Identifier: Apache-2.0
"""A gateway between a Linux guest and nfs-ganesha, for the tests of the gateway."""
import json
import os
import signal
import subprocess

import newest
from lab import PLAIN_GUEST, PLAIN_HOST, ROCE_GUEST, ROCE_HOST, Bench, Planes, build_image, run

NFS_PORT, MOUNT_PORT = 2049, 20047
UPSTREAM = """
[[upstream]]
name = "upstream"
address = "{address}"
port = {nfs}
programs = ["nfs3", "nfs4"]
mount_port = {mount}
"""
# A Linux client renews its lease every five seconds at most: a shorter lease expires while the client is idle.
GANESHA = """
NFS_CORE_PARAM {{ {core} Protocols = 3, 4; NFS_Port = {nfs}; MNT_Port = {mount}; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ Grace_Period = {grace_s}; Lease_Lifetime = {lease_s}; Minor_Versions = 0, 1, 2; Delegations = true; RecoveryBackend = "fs";
  RecoveryRoot = "{dir}/recovery"; Only_Numeric_Owners = true; }}
EXPORT_DEFAULTS {{ SecType = {security}; Access_Type = RW; Squash = No_Root_Squash; Protocols = 3, 4; Transports = TCP; Delegations = RW; }}
EXPORT {{ Export_Id = 1; Path = /mem; Pseudo = /mem; FSAL {{ Name = MEM; }} }}
MEM {{ Inode_Size = 2097152; }}
EXPORT {{ Export_Id = 2; Path = {dir}/vfs; Pseudo = /vfs; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = EVENT; }}
{more}
"""


class Upstream:
    """nfs-ganesha on the loopback interface of the lab's namespace, with a separate rpcbind."""

    def __init__(self, lab, port=NFS_PORT, security="sys", more="", environment=(), grace_s=5, lease_s=15, mount_port=MOUNT_PORT, name="ganesha"):
        self.lab = lab
        self.port = port
        self.mount_port = mount_port
        self.environment = environment
        self.dir = f"{lab.dir}/{name}"
        for folder in ("", "/vfs", "/recovery"):
            os.makedirs(self.dir + folder, exist_ok=True)
        self.config = f"{self.dir}/ganesha.conf"
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(GANESHA.format(nfs=port, mount=mount_port, dir=self.dir, security=security, more=more, grace_s=grace_s,
                                      lease_s=lease_s, core=newest.core(newest.is_upstream())))
        self.process = None

    def start(self):
        first = not self.process
        script = "mount -t tmpfs none /run; rpcbind -w; " + newest.ganesha(self.dir, newest.is_upstream())
        self.process = self.lab.start("env", *self.environment, "unshare", "-m", "sh", "-c", script, log=f"{self.dir}/out")
        self.lab.wait("ganesha listens", self.listens)
        if first:
            print(f"# upstream: nfs-ganesha {newest.version(self.dir)}", flush=True)

    def listens(self):
        done = subprocess.run(self.lab.netns("ss", "-Hltn"), capture_output=True, text=True, check=True)
        return f":{self.port} " in done.stdout and f":{self.mount_port} " in done.stdout

    def stop(self, how=signal.SIGKILL):
        self.lab.kill(self.process, how)


class GatewayBench(Bench):
    def __init__(self, *programs):
        *self.programs, self.bindings_test = programs
        super().__init__()

    def set_up(self):
        image = build_image()
        self.lab.add_tap("roce")
        self.lab.add_tap("plain", address=f"{PLAIN_HOST}/24")
        self.upstream = self.new_upstream()
        self.upstream.start()
        self.serve(self.configuration())
        self.connect_guest(image)
        self.guest.sh("modprobe nfsv4")

    def new_upstream(self):
        return Upstream(self.lab)

    def configuration(self):
        """Returns the part of the configuration that says what the planes serve."""
        return UPSTREAM.format(address="127.0.0.1", nfs=self.upstream.port, mount=0)

    def serve(self, upstream):
        """Starts both planes with this upstream."""
        if self.planes:
            self.planes.close()
        self.planes = Planes(self.lab, *self.programs, upstream)
        self.planes.start()

    def counters(self):
        done = subprocess.run(self.lab.netns(self.planes.ctl_path, "--socket", self.planes.socket, "--json", "upstreams", "stats"),
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout)[0]

    def ctl(self, *arguments):
        return self.lab.netns(self.planes.ctl_path, "--socket", self.planes.socket, *arguments)

    def across(self, mounted, what):
        """Runs `what`, which ends and restarts a process, while random I/O continues."""
        with mounted, self.under_random_io("/mnt/nfs/across", 4713):
            what()

    def restart_upstream(self):
        before = self.counters()
        self.upstream.stop()
        self.lab.wait("the gateway to notice", lambda: self.counters()["disconnects"] > before["disconnects"])
        self.upstream.start()

    def asked(self, what):
        return json.loads(subprocess.run(self.ctl("--json", what), capture_output=True, text=True, check=True).stdout)

    def connections(self):
        return self.asked("connections")

    def upstreams(self):
        return self.asked("upstreams")[0]


def mount_command(version, export="/vfs", at="/mnt/nfs", more="", server=ROCE_HOST):
    if version == "3":
        options = f"vers=3,nolock,mountproto=tcp,mountaddr={PLAIN_HOST},mountport=20048"
        # This is the path in MOUNT; in NFS version 4 the export has another path.
        path = export if export == "/mem" else "VFS_PATH"
    else:
        options, path = f"vers={version}", export
    return f"mount -t nfs -o proto=rdma,port=20049,{options}{more} {server}:{path} {at}"


class Mounted:
    def __init__(self, b, version, export="/vfs", **more):
        self.b = b
        self.command = mount_command(version, export, **more).replace("VFS_PATH", f"{b.upstream.dir}/vfs")

    def __enter__(self):
        self.b.sh(self.command + "\ngrep -q proto=rdma /proc/mounts")

    def __exit__(self, kind, *ignored):
        if kind is None:
            self.b.sh("umount /mnt/nfs")
        else:
            self.b.guest.begin("umount -f -l /mnt/nfs")


TREE = """
rm -rf /tmp/tree; mkdir /tmp/tree
for i in $(seq 20); do mkdir -p /tmp/tree/d$((i % 7)); head -c $((i * i * 97)) /dev/urandom > /tmp/tree/d$((i % 7))/f$i; done
for n in 1 1023 4095 4096 4097 16383 16385 65537 1048576 3145729; do head -c $n /dev/urandom > /tmp/tree/size$n; done
ln -s size4097 /tmp/tree/link; ln /tmp/tree/size1 /tmp/tree/again
cp -r /tmp/tree /mnt/nfs/tree
drop_caches
cd /tmp/tree && find . -type f | sort | xargs sha256sum > /tmp/sums
test "$(wc -l < /tmp/sums)" = 31
cd /mnt/nfs/tree && sha256sum -c /tmp/sums > /tmp/checked || { grep -v OK /tmp/checked; exit 1; }
test "$(readlink /mnt/nfs/tree/link)" = "$(readlink /tmp/tree/link)"
cd /; test "$(find /mnt/nfs/tree | wc -l)" = "$(find /tmp/tree | wc -l)"
mv /mnt/nfs/tree /mnt/nfs/moved; rm -r /mnt/nfs/moved; test ! -e /mnt/nfs/moved
head -c 8388608 /dev/urandom > /tmp/big
dd if=/tmp/big of=/mnt/nfs/big bs=1M oflag=direct 2> /dev/null
dd if=/mnt/nfs/big of=/tmp/back bs=1M iflag=direct 2> /dev/null
cmp /tmp/big /tmp/back; rm /mnt/nfs/big
"""
