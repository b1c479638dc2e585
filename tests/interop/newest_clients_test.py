#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""User-space NFS clients of Debian's sid, over TCP to the reverse gateway: libnfs's programs, fio's engine `nfs`, and nfs-ganesha's FSAL
PROXY_V4. Two Sluices use RPC-over-RDMA between them. No guest is started. Speaks TAP.

newest_clients_test.py CONTROLPLANE DATAPLANE SLUICECTL [NAME...]   (NAME: only those tests)"""
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import newest  # noqa: E402
from gateway_bench import MOUNT_PORT, NFS_PORT, UPSTREAM  # noqa: E402
from lab import PLAIN_HOST, Failed, Skipped, need_lab, run_tests  # noqa: E402
from reverse_test import REVERSE_PORT, TwoSluices, exchange, memory, url  # noqa: E402

PROXY_PORT = 3049
PROXY = """
NFS_CORE_PARAM {{ {core} Protocols = 4; NFS_Port = {port}; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ Graceless = true; RecoveryBackend = "fs"; RecoveryRoot = "{dir}/recovery"; Only_Numeric_Owners = true; }}
EXPORT_DEFAULTS {{ SecType = sys; Access_Type = RW; Squash = No_Root_Squash; Protocols = 4; Transports = TCP; }}
EXPORT {{ Export_Id = 1; Path = {path}; Pseudo = /proxied; FSAL {{ Name = PROXY_V4; Srv_Addr = 127.0.0.1; NFS_Port = {server}; }} }}
LOG {{ Default_Log_Level = EVENT; }}
"""


class ClientsBench(TwoSluices):
    def set_up(self):
        # nfs-ganesha resolves addresses only on a host that has another one than 127.0.0.1.
        self.lab.ip("addr", "add", f"{PLAIN_HOST}/32", "dev", "lo")
        super().set_up()

    def tool(self, *words, check=True):
        return super().tool(*newest.client(*words), check=check)

    def serve_upstream(self, transport):
        self.serve(transport, UPSTREAM.format(address="127.0.0.1", nfs=NFS_PORT, mount=MOUNT_PORT))

    def listens(self, port):
        return f":{port} ".encode() in TwoSluices.tool(self, "ss", "-Hltn")

    def folder(self, name):
        """Makes a folder in the export of the upstream, and returns its path on the host."""
        on_host = f"{self.upstream.dir}/vfs/{name}"
        os.makedirs(on_host)
        os.chmod(on_host, 0o777)
        return on_host


class Proxy:
    """nfs-ganesha of sid or of this machine as a client: it serves a folder of the export of the server at this port as /proxied."""

    def __init__(self, b, sid, name, server):
        self.b = b
        self.sid = sid
        self.dir = f"{b.lab.dir}/proxy_{name}"
        os.makedirs(f"{self.dir}/recovery")
        self.on_host = b.folder(name)
        with open(f"{self.dir}/ganesha.conf", "w", encoding="utf-8") as file:
            file.write(PROXY.format(core=newest.core(sid), port=PROXY_PORT, dir=self.dir, path=f"/vfs/{name}", server=server))

    def __enter__(self):
        self.process = self.b.lab.start("unshare", "-m", "sh", "-c", newest.ganesha(self.dir, self.sid), log=f"{self.dir}/out")
        self.b.lab.wait("the proxy listens", lambda: self.b.listens(PROXY_PORT))
        return self

    def __exit__(self, *ignored):
        self.b.lab.kill(self.process, signal.SIGKILL)

    def url(self, name=""):
        return f"nfs://127.0.0.1/proxied/{name}?version=4&nfsport={PROXY_PORT}"


def forwarded(transport, nfs):
    def test(b):
        b.serve_upstream(transport)
        name = f"of_{transport}_{nfs}"
        on_host = b.folder(name)
        exchange(b, on_host if nfs == "3" else f"/vfs/{name}", nfs)
    test.__name__ = f"libnfs_version_{nfs}_to_ganesha_over_transport_version_{transport}"
    return test


def fio_verifies(transport):
    """Eight jobs write at random, and read back what they have written. Each has one call at a time, because the engine of fio 3.41 fails
    with more of them, without Sluice too."""
    def test(b):
        b.serve_upstream(transport)
        at = url(b.folder(f"fio_{transport}"), "3")
        for more in ("--do_verify=0", "--verify_only"):
            b.tool("fio", "--name=verified", "--ioengine=nfs", f"--nfs_url={at}", "--thread", "--numjobs=8", "--size=4m", "--rw=randwrite",
                   "--bs=16k", "--verify=crc32c", "--verify_fatal=1", more)
        counters = b.near.reverse()
        if counters["failures"] or not counters["reduced_calls"] or not counters["placed_replies"]:
            raise Failed(str(counters))
    test.__name__ = f"fio_with_libnfs_verifies_over_transport_version_{transport}"
    return test


SIZES = (0, 1, 700, 4096, 65537, 1 << 20, 3145729)


def proxy_writes(sid):
    def test(b):
        b.serve_upstream(2)
        with Proxy(b, sid, f"written_{sid}", REVERSE_PORT) as proxy:
            for size in SIZES:
                data = b.bytes(size)
                with open(f"{b.lab.dir}/data", "wb") as file:
                    file.write(data)
                b.tool("nfs-cp", f"{b.lab.dir}/data", proxy.url(f"file{size}"))
                with open(f"{proxy.on_host}/file{size}", "rb") as file:
                    arrived = file.read()
                if arrived != data:
                    raise Failed(f"{len(arrived)} different bytes arrived of {size}")
            listed = b.tool("nfs-ls", proxy.url()).decode().split()
            if missing := [size for size in SIZES if f"file{size}" not in listed]:
                raise Failed(f"nfs-ls does not list the files of these sizes: {missing}")
        counters = b.near.reverse()
        if counters["failures"] or not counters["reduced_calls"]:
            raise Failed(str(counters))
    test.__name__ = f"what_proxy_v4_of_{'sid' if sid else 'this_machine'}_writes_arrives"
    return test


def read_back(b, sid, name, server):
    """Reads files of the upstream through the proxy. Returns the first difference as a sentence, or None."""
    with Proxy(b, sid, f"{name}_{sid}", server) as proxy:
        for size in SIZES:
            data = b.bytes(size)
            with open(f"{proxy.on_host}/file{size}", "wb") as file:
                file.write(data)
            back = b.tool("nfs-cat", proxy.url(f"file{size}"), check=False)
            if back != data:
                return f"{size} bytes were read back as {len(back)} different ones"
    return None


def proxy_reads(sid):
    """A proxy that cannot read without Sluice either shows nothing about Sluice."""
    def test(b):
        b.serve_upstream(2)
        directly = read_back(b, sid, "directly", NFS_PORT)
        through = read_back(b, sid, "through", REVERSE_PORT)
        if directly:
            raise Skipped(f"PROXY_V4 fails without Sluice too: {directly}. Through Sluice: {through}.")
        if through or not b.near.reverse()["placed_replies"]:
            raise Failed(through or str(b.near.reverse()))
    test.__name__ = f"proxy_v4_of_{'sid' if sid else 'this_machine'}_reads_back_what_it_reads_without_sluice"
    return test


TESTS = [memory(1), memory(2), forwarded(1, "3"), forwarded(2, "3"), forwarded(1, "4"), forwarded(2, "4"), fio_verifies(1), fio_verifies(2),
         proxy_writes(True), proxy_writes(False), proxy_reads(True), proxy_reads(False)]

if __name__ == "__main__":
    chosen = [test for test in TESTS if len(sys.argv) < 5 or test.__name__ in sys.argv[4:]]
    need_lab("ganesha.nfsd")
    bench = ClientsBench(*sys.argv[1:4])
    sys.exit(1 if run_tests(bench, chosen) else 0)
