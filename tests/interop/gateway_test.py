#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gateway between an unmodified Linux kernel and nfs-ganesha: NFS/RDMA in the guest, TCP to the upstream. Speaks TAP.

gateway_test.py CONTROLPLANE DATAPLANE SLUICECTL [NAME...]   (NAME: only those tests)"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lab import MTU, PLAIN_GUEST, PLAIN_HOST, ROCE_GUEST, ROCE_HOST, Failed, Guest, Lab, Planes, build_image, mac  # noqa: E402

NFS_PORT, MOUNT_PORT = 2049, 20047
UPSTREAM = f"""
[[upstream]]
name = "ganesha"
address = "127.0.0.1"
port = {NFS_PORT}
programs = ["nfs3", "nfs4"]
mount_port = {MOUNT_PORT}
"""
GANESHA = """
NFS_CORE_PARAM {{ Protocols = 3, 4; NFS_Port = {nfs}; MNT_Port = {mount}; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ Grace_Period = 4; Lease_Lifetime = 4; Minor_Versions = 0, 1, 2; Delegations = true; RecoveryBackend = "fs";
  RecoveryRoot = "{dir}/recovery"; Only_Numeric_Owners = true; }}
EXPORT_DEFAULTS {{ SecType = sys; Access_Type = RW; Squash = No_Root_Squash; Protocols = 3, 4; Transports = TCP; Delegations = RW; }}
EXPORT {{ Export_Id = 1; Path = /mem; Pseudo = /mem; FSAL {{ Name = MEM; Inode_Size = 0; }} }}
EXPORT {{ Export_Id = 2; Path = {dir}/vfs; Pseudo = /vfs; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = EVENT; }}
"""


class Upstream:
    """nfs-ganesha on the loopback interface of the lab's namespace, with an rpcbind that it alone sees."""

    def __init__(self, lab):
        self.lab = lab
        self.dir = f"{lab.dir}/ganesha"
        for folder in ("", "/vfs", "/recovery"):
            os.makedirs(self.dir + folder, exist_ok=True)
        self.config = f"{self.dir}/ganesha.conf"
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(GANESHA.format(nfs=NFS_PORT, mount=MOUNT_PORT, dir=self.dir))
        self.process = None

    def start(self):
        script = (f"mount -t tmpfs none /run; rpcbind -w; exec ganesha.nfsd -F -f {self.config} -L {self.dir}/log -p {self.dir}/pid")
        self.process = self.lab.start("unshare", "-m", "sh", "-c", script, log=f"{self.dir}/out")
        self.lab.wait("ganesha listens", self.listens)

    def listens(self):
        done = subprocess.run(self.lab.netns("ss", "-Hltn"), capture_output=True, text=True, check=True)
        return f":{NFS_PORT} " in done.stdout and f":{MOUNT_PORT} " in done.stdout

    def stop(self, how=signal.SIGKILL):
        self.lab.kill(self.process, how)


class Bench:
    def __init__(self, control, data, ctl):
        self.lab = Lab()
        try:
            image = build_image()
            self.lab.add_tap("roce")
            self.lab.add_tap("plain", address=f"{PLAIN_HOST}/24")
            self.upstream = Upstream(self.lab)
            self.upstream.start()
            self.planes = Planes(self.lab, control, data, ctl, UPSTREAM)
            self.planes.start()
            self.guest = Guest(self.lab, 1, image, ["roce", "plain"])
            self.guest.sh(f"rdma_link {mac(1, 0)} {ROCE_GUEST}/24 {MTU}\nplain_link {mac(1, 1)} {PLAIN_GUEST}/24\nmodprobe nfsv4")
            self.guest.sh(f"for i in $(seq 50); do ping -c 1 -W 1 {ROCE_HOST} && exit 0; sleep 0.1; done; exit 1")
        except BaseException:
            self.close()
            raise

    def close(self):
        if hasattr(self, "planes"):
            self.planes.close()
        self.lab.close()

    def sh(self, script, timeout=240):
        return self.guest.sh(script, timeout)

    def counters(self):
        done = subprocess.run(self.lab.netns(self.planes.ctl_path, "--socket", self.planes.socket, "--json", "upstreams"),
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout)[0]


def mount_command(version, export="/vfs", at="/mnt/nfs", more=""):
    if version == "3":
        options = f"vers=3,nolock,mountproto=tcp,mountaddr={PLAIN_HOST},mountport=20048"
        # What MOUNT calls it; the root of NFS version 4 has names of its own.
        path = export if export == "/mem" else "VFS_PATH"
    else:
        options, path = f"vers={version}", export
    return f"mount -t nfs -o proto=rdma,port=20049,{options}{more} {ROCE_HOST}:{path} {at}"


class Mounted:
    def __init__(self, b, version, export="/vfs"):
        self.b = b
        self.command = mount_command(version, export).replace("VFS_PATH", f"{b.upstream.dir}/vfs")

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
cd /mnt/nfs/tree && sha256sum -c /tmp/sums > /tmp/checked || { grep -v OK /tmp/checked; exit 1; }
test "$(readlink /mnt/nfs/tree/link)" = "$(readlink /tmp/tree/link)"
cd /; test "$(find /mnt/nfs/tree | wc -l)" = "$(find /tmp/tree | wc -l)"
mv /mnt/nfs/tree /mnt/nfs/moved; rm -r /mnt/nfs/moved; test ! -e /mnt/nfs/moved
head -c 8388608 /dev/urandom > /tmp/big
dd if=/tmp/big of=/mnt/nfs/big bs=1M oflag=direct 2> /dev/null
dd if=/mnt/nfs/big of=/tmp/back bs=1M iflag=direct 2> /dev/null
cmp /tmp/big /tmp/back; rm /mnt/nfs/big
"""


def tree(version):
    def test(b):
        with Mounted(b, version):
            b.sh(TREE)
    test.__name__ = f"files_and_folders_over_version_{version.replace('.', '_')}"
    return test


TESTS = [tree("3"), tree("4.0"), tree("4.1"), tree("4.2")]


def main():
    programs, names = sys.argv[1:4], sys.argv[4:]
    tests = [test for test in TESTS if not names or test.__name__ in names]
    for needed in ("qemu-system-x86_64", "ganesha.nfsd"):
        if shutil.which(needed) is None:
            print(f"1..0 # SKIP {needed} is not installed: run deploy/install-packages.sh")
            return 0
    print(f"1..{len(tests)}", flush=True)
    bench = Bench(*programs)
    failed = 0
    try:
        for number, test in enumerate(tests, 1):
            started = time.monotonic()
            try:
                test(bench)
                print(f"ok {number} {test.__name__} # {time.monotonic() - started:.1f} s", flush=True)
            except Exception as error:  # every test reports
                failed += 1
                print(f"not ok {number} {test.__name__}", flush=True)
                text = str(error) if isinstance(error, Failed) else traceback.format_exc()
                for line in (text + "\n--- planes\n" + "\n".join(bench.planes.text().splitlines()[-15:])).splitlines():
                    print("# " + line, flush=True)
    finally:
        if os.environ.get("SLUICE_INTEROP_KEEP"):
            shutil.copytree(bench.lab.dir, os.environ["SLUICE_INTEROP_KEEP"], dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("*.sock"))
        bench.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
