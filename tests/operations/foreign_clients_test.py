#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replays the calls that clients of FreeBSD, macOS and Windows make at mount and in first use. They speak TCP, so they go to the reverse
gateway of one Sluice; another one serves files in memory for NFS 3, or forwards to nfs-ganesha for NFS 4. Portmapper, MOUNT and NFS have
their usual ports in a separate network namespace. Speaks TAP.

foreign_clients_test.py CONTROLPLANE DATAPLANE SLUICECTL [NAME...]   (NAME: only those tests)"""
import functools
import os
import subprocess
import sys
import time

import foreign_freebsd
import foreign_macos
import foreign_nfs3 as nfs3
import foreign_windows
from foreign_clients import MOUNT, NFS, NFS_PORT, Place, Replay, Sequence, mnt
from onc_rpc import auth_sys, u32
from planes_of_tests import PATIENCE_S, Planes, Skipped, free_port, missing, need, run_tap

PROGRAMS = (*sys.argv[1:4], "")
SEQUENCES = foreign_freebsd.SEQUENCES + foreign_macos.SEQUENCES + foreign_windows.SEQUENCES
GANESHA_PORT = 12049
MEMORY = '[[export]]\npath = "/export"\nclients = []\nroot_squash = false\nquota_mib = 64\n'
FORWARDED = f'[[upstream]]\nname = "nas"\naddress = "127.0.0.1"\nport = {GANESHA_PORT}\nprograms = ["nfs4"]\n'
GANESHA = """
NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }}
NFSV4 {{ Graceless = true; Minor_Versions = 0, 1, 2; RecoveryBackend = "fs"; RecoveryRoot = "{dir}"; Only_Numeric_Owners = true; }}
EXPORT_DEFAULTS {{ SecType = sys; Access_Type = RW; Squash = No_Root_Squash; Protocols = 4; Transports = TCP; }}
EXPORT {{ Export_Id = 1; Path = /real; Pseudo = /real; FSAL {{ Name = MEM; }} }}
"""


class Sluice(Planes):
    """Both planes on the loopback driver. `folder` is that of the Sluice that serves RDMA."""

    def __init__(self, name, folder, mount_port, rpcbind, serves):
        super().__init__(name, *PROGRAMS)
        self.write_config(f"""segment = "{self.name}"
[reactor]
idle = "backoff"
[device]
driver = "loopback"
loopback_path = "{folder or self.dir}/loopback"
[admin]
socket = "{self.socket}"
[metrics]
address = ""
[mount]
port = {mount_port}
rpcbind = {"true" if rpcbind else "false"}
{serves}""")
        self.start_control()
        self.start_data()
        self.wait(f"{name}: both planes", lambda: (self.ctl("status") or {"data_plane": {"alive": False}})["data_plane"]["alive"])


class Site:
    """A reverse gateway, and the server that it is in front of."""

    def __init__(self, serves):
        far_mount = free_port()
        self.far = Sluice("far", None, far_mount, False, serves)
        self.near = Sluice("near", self.far.dir, 0, True, f"""[reverse]
enabled = true
server = "127.0.0.1"
listen_port = {NFS_PORT}
mount_address = "127.0.0.1"
mount_port = {far_mount}
""")
        self.kept = {"nfs port": NFS_PORT, "mount port": int(self.near.mount_port()), **nfs3.START_OF_DIRECTORY}
        self.near.wait("the registration of NFS and MOUNT", lambda: registered(NFS) and registered(MOUNT))

    def close(self):
        for sluice in (self.near, self.far):
            sluice.stop()


def registered(program):
    done = subprocess.run(["rpcinfo"], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    return any(line.split()[:2] == [str(program), "3"] for line in done.stdout.splitlines())


def make_many(kept):
    """Makes the directory `many`, and keeps its handle for the sequences."""
    calls = [mnt("/export"), nfs3.setattr_of("root", nfs3.MODE_OF_ALL), nfs3.mkdir("many")]
    calls += [nfs3.create(name, u32(nfs3.UNCHECKED) + nfs3.MODE_ONLY, parent="many") for name in nfs3.MANY]
    replay = Replay(Sequence("many", "", {"mount": Place("mount port"), "nfs": Place(NFS_PORT)}, auth_sys("setup", 0, 0), tuple(calls)), kept)
    replay.run()
    return {"many": replay.kept["many"]}


class Ganesha:
    def __init__(self, folder):
        with open(f"{folder}/conf", "w", encoding="utf-8") as file:
            file.write(GANESHA.format(port=GANESHA_PORT, dir=folder))
        self.process = subprocess.Popen(["ganesha.nfsd", "-F", "-f", f"{folder}/conf", "-L", f"{folder}/log", "-p", f"{folder}/pid"])

    def close(self):
        self.process.kill()
        self.process.wait()


@functools.cache
def memory_site():
    site = Site(MEMORY)
    site.kept |= make_many(site.kept)
    return site


@functools.cache
def nfs4_site():
    if sentence := missing("ganesha.nfsd"):
        raise Skipped(sentence)
    memory_site().close()  # both sites need port 2049
    site = Site(FORWARDED)
    site.ganesha = Ganesha(site.far.dir)

    def listens():
        done = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=True)
        return f":{GANESHA_PORT} " in done.stdout
    site.far.wait("ganesha", listens)
    return site


def replayed(sequence):
    def test():
        site = memory_site() if sequence.server == "memory" else nfs4_site()
        Replay(sequence, site.kept).run()
    return sequence.name, test


def main():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    server = subprocess.Popen(["rpcbind", "-f", "-w"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while subprocess.run(["rpcinfo"], capture_output=True, check=False).returncode != 0:
            assert time.monotonic() < deadline, "rpcbind does not answer"
            time.sleep(0.02)
        chosen = [one for one in SEQUENCES if one.name in sys.argv[4:] or not sys.argv[4:]]
        chosen.sort(key=lambda one: one.server != "memory")
        return run_tap([replayed(one) for one in chosen])
    finally:
        if nfs4_site.cache_info().currsize:
            nfs4_site().ganesha.close()
            nfs4_site().close()
        elif memory_site.cache_info().currsize:
            memory_site().close()
        server.terminate()
        server.wait()


need("rpcbind", "rpcinfo", "unshare", "ip", "ss", root_for="a network namespace")
if os.environ.get("SLUICE_IN_NAMESPACE") != "1":
    os.environ["SLUICE_IN_NAMESPACE"] = "1"
    os.execvp("unshare", ["unshare", "-n", "-m", sys.executable, *sys.argv])
sys.exit(main())
