#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reverse gateway: clients and servers without RDMA, and between them two Sluices that use RPC-over-RDMA over RoCE.
Speaks TAP.

reverse_test.py CONTROLPLANE DATAPLANE SLUICECTL [NAME...]   (NAME: only those tests)"""
import hashlib
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gateway_bench import MOUNT_PORT, NFS_PORT, TREE, UPSTREAM, Upstream  # noqa: E402
from lab import EXPORT, MTU, PLAIN_GUEST, PLAIN_HOST, Bench, Failed, Guest, Planes, build_image, mac, need_lab, run_tests  # noqa: E402

NEAR, FAR = "192.168.77.1", "192.168.77.2"  # the two ends of the RoCE path
FAR_MOUNT, NEAR_MOUNT, REVERSE_PORT = 20046, 20045, 2050
REVERSE = """
[transport]
max_version = {version}
[reverse]
enabled = true
listen_port = {port}
server = "{server}"
mount_address = "{mount_address}"
mount_port = {mount_port}
connections = 8
"""


class Sluice(Planes):
    """Both planes at one end of a link."""

    def __init__(self, lab, programs, name, interface, address, mount_port, serves, device=None):
        super().__init__(lab, *programs, serves, name=name, interface=interface, address=address, mount_port=mount_port, device=device)

    def ask(self, *what):
        done = subprocess.run(self.lab.netns(self.ctl_path, "--socket", self.socket, "--json", *what), capture_output=True, text=True,
                              check=True)
        return json.loads(done.stdout)

    def reverse(self):
        return self.ask("reverse", "stats")


class TwoSluices(Bench):
    """Clients of the host, two Sluices and nfs-ganesha."""

    def __init__(self, *programs):
        self.programs = programs
        self.near = self.far = None
        super().__init__()

    def set_up(self):
        self.lab.ip("link", "add", "near", "type", "veth", "peer", "name", "far")
        for interface in ("near", "far"):
            self.lab.ip("link", "set", interface, "mtu", str(MTU + 100), "up")
        self.upstream = Upstream(self.lab)
        self.upstream.start()
        self.rng = random.Random(7)

    def serve(self, version, far, device=None):
        """Starts a Sluice at either end: clients connect to the near one by TCP, and the far one serves them."""
        self.stop()
        self.far = Sluice(self.lab, self.programs, "far", "far", FAR, FAR_MOUNT, far, device)
        self.far.start()
        mount_port = FAR_MOUNT if far == EXPORT else MOUNT_PORT
        self.planes = self.near = Sluice(self.lab, self.programs, "near", "near", NEAR, NEAR_MOUNT,
                                         REVERSE.format(version=version, port=REVERSE_PORT, server=FAR, mount_address="127.0.0.1",
                                                        mount_port=mount_port), device)
        self.near.start()

    def tool(self, *words, check=True):
        done = subprocess.run(self.lab.netns(*words), capture_output=True, timeout=120, check=False)
        if check and done.returncode != 0:
            raise Failed(f"{' '.join(words)}: status {done.returncode}\n{done.stdout[-500:]}\n{done.stderr.decode(errors='replace')[-1500:]}")
        return done.stdout

    def bytes(self, count):
        return self.rng.randbytes(count)

    def stop(self):
        for sluice in (self.near, self.far):
            if sluice:
                sluice.close()
        self.near = self.far = self.planes = None

    def close(self):
        self.stop()
        super().close()


class ReverseBench(TwoSluices):
    """TwoSluices with a guest that is a client or the upstream."""

    links = ("plain",)

    def set_up(self):
        super().set_up()
        self.lab.add_tap("plain", address=f"{PLAIN_HOST}/24")
        self.guest = Guest(self.lab, 1, build_image(), self.links)
        self.guest.sh(f"plain_link {mac(1, self.links.index('plain'))} {PLAIN_GUEST}/24\nmodprobe nfsv4")


def url(path, version):
    arguments = {"3": f"nfsport={REVERSE_PORT}&mountport={NEAR_MOUNT}", "4": f"version=4&nfsport={REVERSE_PORT}"}[version]
    return f"nfs://127.0.0.1{path}?{arguments}"


def exchange(b, folder, version, written_to=None):
    """Writes files and reads them back, with sizes around each limit that determines how data is moved. libnfs 4.0 cannot write more than a few
    bytes over NFS version 4 to any server, so its files are `written_to` a folder of the host."""
    names = []
    for size in (0, 1, 700, 1024, 3900, 4096, 4097, 16384, 65537, 1 << 20, 3145729):
        data = b.bytes(size)
        name = f"file{size}"
        local = f"{written_to or b.lab.dir}/{name}"
        with open(local, "wb") as file:
            file.write(data)
        if not written_to:
            b.tool("nfs-cp", local, url(f"{folder}/{name}", version))
        back = b.tool("nfs-cat", url(f"{folder}/{name}", version))
        if hashlib.sha256(back).digest() != hashlib.sha256(data).digest():
            raise Failed(f"{size} bytes were read back as {len(back)} different ones")
        names.append(name)
    listed = b.tool("nfs-ls", url(folder, version)).decode()
    missing = [name for name in names if not any(line.endswith(f" {name}") for line in listed.splitlines())]
    if missing:
        raise Failed(f"nfs-ls does not list {missing}:\n{listed}")
    counters = b.near.reverse()
    for counter in ["placed_replies"] + ([] if written_to else ["reduced_calls"]):
        if counters[counter] == 0:
            raise Failed(f"no {counter}: {counters}")
    for counter in ("failures", "timeouts", "bad_records"):
        if counters[counter] != 0:
            raise Failed(f"{counter}: {counters}")


def memory(transport):
    def test(b):
        b.serve(transport, EXPORT)
        exchange(b, "/export", "3")
    test.__name__ = f"libnfs_version_3_to_exports_over_transport_version_{transport}"
    return test


def libnfs_over_the_loopback_driver(b):
    """Two Sluices on one machine."""
    b.serve(2, EXPORT, f'driver = "loopback"\nloopback_path = "{b.lab.dir}/loopback"')
    exchange(b, "/export", "3")


def forwarded(transport, nfs):
    def test(b):
        b.serve(transport, UPSTREAM.format(address="127.0.0.1", nfs=NFS_PORT, mount=MOUNT_PORT))
        folder = f"of_{transport}_{nfs}"
        on_host = f"{b.upstream.dir}/vfs/{folder}"
        os.makedirs(on_host)
        os.chmod(on_host, 0o777)
        exchange(b, on_host if nfs == "3" else f"/vfs/{folder}", nfs, on_host if nfs == "4" else None)
    test.__name__ = f"libnfs_version_{nfs}_to_ganesha_over_transport_version_{transport}"
    return test


def mount_command(b, nfs, path, more=""):
    options = f"vers={nfs},proto=tcp,port={REVERSE_PORT}{more}"
    if nfs == "3":
        options += f",nolock,mountproto=tcp,mountaddr={PLAIN_HOST},mountport={NEAR_MOUNT}"
    return f"mount -t nfs -o {options} {PLAIN_HOST}:{path} /mnt/nfs\n"


def kernel(transport, nfs):
    """An unmodified Linux client, over TCP to the near Sluice."""
    def test(b):
        b.serve(transport, UPSTREAM.format(address="127.0.0.1", nfs=NFS_PORT, mount=MOUNT_PORT))
        b.sh(mount_command(b, nfs, f"{b.upstream.dir}/vfs" if nfs == "3" else "/vfs"))
        try:
            b.sh(TREE)
        finally:
            b.sh("umount -f /mnt/nfs")
        counters = b.near.reverse()
        if counters["failures"] != 0 or counters["reduced_calls"] == 0 or counters["placed_replies"] == 0:
            raise Failed(str(counters))
        spoken = {c["version"] for c in b.far.ask("connections")} or {transport}
        if spoken != {transport}:
            raise Failed(f"versions on the RoCE path: {spoken}")
    test.__name__ = f"linux_over_tcp_version_{nfs.replace('.', '_')}_over_transport_version_{transport}"
    return test


def nconnect(nfs):
    """One mount uses sixteen TCP connections, twice as many as to the server."""
    def test(b):
        b.serve(1, UPSTREAM.format(address="127.0.0.1", nfs=NFS_PORT, mount=MOUNT_PORT))
        b.sh(mount_command(b, nfs, f"{b.upstream.dir}/vfs" if nfs == "3" else "/vfs", ",nconnect=16"))
        try:
            b.sh("""
cd /tmp; fio --name=many --directory=/mnt/nfs --size=4m --numjobs=4 --rw=randrw --bs=16k --iodepth=16 --ioengine=libaio --direct=1 \\
  --verify=crc32c --verify_fatal=1 --output=/tmp/fio.log || { cat /tmp/fio.log; exit 1; }
rm /mnt/nfs/many*; cd /""")
            clients = b.near.ask("reverse")["clients"]
        finally:
            b.sh("umount -f /mnt/nfs")
        counters = b.near.reverse()
        if clients < 16 or counters["failures"] != 0 or counters["calls_lost"] != 0:
            raise Failed(f"{clients} clients; {counters}")
    test.__name__ = f"sixteen_connections_of_one_mount_of_version_{nfs.replace('.', '_')}"
    return test


def killed(end, plane, nfs):
    """Random I/O continues when one of the four processes ends."""
    def test(b):
        b.serve(2 if nfs == "3" else 1, UPSTREAM.format(address="127.0.0.1", nfs=NFS_PORT, mount=MOUNT_PORT))
        b.sh(mount_command(b, nfs, f"{b.upstream.dir}/vfs" if nfs == "3" else "/vfs"))
        try:
            sluice = getattr(b, end)
            with b.under_random_io("/mnt/nfs/across", 4713, "plain"):
                b.lab.kill(getattr(sluice, plane))
                if plane == "control":
                    b.sends("plain")
                (sluice.start_control if plane == "control" else sluice.start_data)()
                b.lab.wait("both planes are up", sluice.up)
        finally:
            b.sh("umount -f /mnt/nfs")
    test.__name__ = f"{plane}_plane_of_the_{end}_sluice_is_killed_under_version_{nfs.replace('.', '_')}"
    return test


def a_delegation_is_recalled_through_both(b):
    """The guest's own kernel is the upstream: its CB_RECALL goes over TCP to the far Sluice, over RDMA in the reverse direction to the
    near one, and over TCP to the client."""
    b.sh("nfsd_on_tcp")
    # A file that was recalled is not delegated again for half a minute.
    for transport in (1, 2):
        b.serve(transport, UPSTREAM.format(address=PLAIN_GUEST, nfs=2049, mount=0))
        text = b.sh(mount_command(b, "4.1", "/") + f"file=recalled{transport}" + """
mount -t nfs -o proto=tcp,vers=4.0 127.0.0.1:/ /mnt/other
echo one > /export/$file
for i in 1 2 3; do cat /mnt/nfs/$file > /dev/null; done
exec 3< /mnt/nfs/$file
echo "two and more" > /mnt/other/$file
exec 3<&-; cat /mnt/nfs/$file
umount /mnt/other; umount /mnt/nfs""")
        if "two and more" not in text:
            raise Failed(f"the client read: {text}")
        near, far = b.near.reverse(), b.far.ask("upstreams", "stats")[0]
        if near["callbacks"] == 0 or near["callbacks_refused"] or far["callbacks_refused"]:
            raise Failed(f"near: {near}; far: {far}")


TESTS = [memory(1), memory(2), libnfs_over_the_loopback_driver, forwarded(1, "3"), forwarded(2, "3"), forwarded(1, "4"), forwarded(2, "4"),
         kernel(1, "3"), kernel(2, "4.0"), kernel(1, "4.1"), kernel(2, "4.2"),
         nconnect("3"), nconnect("4.1"),
         killed("near", "control", "4.1"), killed("near", "data", "4.1"), killed("far", "control", "4.1"), killed("far", "data", "4.1"),
         killed("far", "data", "3"), a_delegation_is_recalled_through_both]

if __name__ == "__main__":
    chosen = [test for test in TESTS if len(sys.argv) < 5 or test.__name__ in sys.argv[4:]]
    need_lab("ganesha.nfsd", "nfs-cp")
    bench = ReverseBench(*sys.argv[1:4])
    sys.exit(1 if run_tests(bench, chosen) else 0)
