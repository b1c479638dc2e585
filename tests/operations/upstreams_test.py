#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Upstreams that a reload adds and removes: both planes in front of nfs-ganesha, and clients of each. Speaks TAP.

upstreams_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH"""
import os
import re
import subprocess
import sys

from planes import PATIENCE_S, common, end, need, run_tap

CONTROL, DATA, CTL, BENCH = sys.argv[1:5]
IN_NAMESPACE = "SLUICE_UPSTREAMS_TEST_IN_NAMESPACE"
GANESHA = """
NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {port}; MNT_Port = {mount}; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ RecoveryBackend = "fs"; RecoveryRoot = "{dir}/recovery"; }}
EXPORT_DEFAULTS {{ SecType = sys; Access_Type = RW; Squash = No_Root_Squash; Protocols = 3; Transports = TCP; }}
EXPORT {{ Export_Id = 2; Path = {path}; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = EVENT; }}
"""


class Filer:
    def __init__(self, folder, name, port, mount, twin_of=None):
        self.name, self.port, self.mount, self.dir = name, port, mount, f"{folder}/{name}"
        self.settings = ""
        self.exported = twin_of.exported if twin_of else f"{self.dir}/vfs"
        for below in ("vfs", "recovery"):
            os.makedirs(f"{self.dir}/{below}")
        with open(f"{self.dir}/conf", "w", encoding="utf-8") as file:
            file.write(GANESHA.format(dir=self.dir, path=self.exported, port=port, mount=mount))
        script = (f"mount -t tmpfs none /run; rpcbind -w; exec ganesha.nfsd -F -f {self.dir}/conf -L {self.dir}/log -p {self.dir}/pid")
        with open(f"{self.dir}/out", "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdout=out, stderr=out)

    def entry(self):
        return (f'[[upstream]]\nname = "{self.name}"\naddress = "127.0.0.1"\nport = {self.port}\nprograms = ["nfs3"]\n'
                f'mount_port = {self.mount}\nprefix = "/{self.name}"\n{self.settings}')

    def path(self):
        return f"/{self.name}{self.exported}"

    def listens(self):
        sockets = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=True).stdout
        return f":{self.port} " in sockets and f":{self.mount} " in sockets


class Planes(common.Planes):
    def __init__(self):
        super().__init__("upstreams", CONTROL, DATA, CTL, BENCH)
        self.fabric = f"/dev/shm/{self.name}-loopback"
        self.leftovers.append(self.fabric)
        self.first = Filer(self.dir, "first", 2049, 20047)
        self.second = Filer(self.dir, "second", 2059, 20057)
        self.third = Filer(self.dir, "third", 2069, 20067)
        self.twin = Filer(self.dir, "twin", 2079, 20077, twin_of=self.first)
        self.filers = (self.first, self.second, self.third, self.twin)

    def serve(self, *filers):
        self.write_config(f'segment = "{self.name}"\n[reactor]\nidle = "backoff"\n[device]\nloopback_path = "{self.fabric}"\n'
                          f'[admin]\nsocket = "{self.socket}"\n[metrics]\naddress = ""\n[mount]\nport = 0\nrpcbind = false\n'
                          "[forward]\nupstreams_max = 2\nrecord_buffers = 64\n" + "".join(filer.entry() for filer in filers))

    def up(self):
        self.wait("both planes up", lambda: (s := self.ctl("status")) and s["data_plane"]["alive"])

    def load(self, filer, seconds=PATIENCE_S):
        return subprocess.Popen([BENCH, "--fabric", self.fabric, "--json", "--seconds", str(seconds), "nfs3", "--verify", "--file-mib", "4",
                                 "--mount-port", self.mount_port(), "--path", filer.path()],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def can_be_mounted(self, filer):
        load = self.load(filer, 1)
        out, err = load.communicate(timeout=PATIENCE_S)
        assert load.returncode == 0 or "MOUNT" in err or "mount" in err, (out, err)
        return load.returncode == 0

    def shown(self):
        return {each["name"]: each for each in self.ctl("upstreams")}

    def reload(self, *filers):
        self.serve(*filers)
        changes = self.ctl("config", "reload")
        assert changes["restart_both_planes"] == [] and changes["restart_control_plane"] == [], changes
        return changes["in_force"]


def one_comes_and_goes_and_comes_back_and_no_call_is_lost():
    planes = Planes()
    try:
        come_and_go(planes)
    finally:
        planes.stop()
        for filer in planes.filers:
            filer.process.kill()
            filer.process.wait()


def come_and_go(planes):
    for filer in planes.filers:
        planes.wait("nfs-ganesha", filer.listens)
    planes.serve(planes.first)
    planes.start()
    load = planes.load(planes.first, 4 * PATIENCE_S)
    planes.loaded()
    assert not planes.can_be_mounted(planes.second)

    assert planes.reload(planes.first, planes.second) == ["upstream.second"]
    planes.wait("it can be mounted", lambda: planes.can_be_mounted(planes.second))
    before = planes.shown()["second"]["calls"]
    of_second = planes.load(planes.second)
    planes.wait("calls of the load to it", lambda: planes.shown()["second"]["calls"] > before + 5000)
    top = planes.run_ctl("top", "--interval", "0.5", "--turns", "2")
    for name in ("first", "second"):
        assert re.search(rf"^{name} +\S+ +[1-9]\d* ", top.stdout, re.M), top  # with a nonzero number of calls

    settings_change(planes)
    assert planes.reload(planes.first) == ["upstream.second"]
    planes.wait("it can be mounted no more", lambda: not planes.can_be_mounted(planes.second))
    shown = planes.shown()["second"]
    assert shown["state"] == "removed", shown
    planes.wait("further calls to it", lambda: planes.shown()["second"]["calls"] > shown["calls"] + 1000)

    assert planes.reload(planes.first, planes.second) == ["upstream.second"]
    planes.wait("it can be mounted again", lambda: planes.can_be_mounted(planes.second))
    all_is_well(of_second)
    takes_its_place(planes)
    moves(planes)
    all_is_well(load)


def settings_change(planes):
    """Changes settings of an upstream under load. Its connections become fewer, and then more."""
    for connections in (1, 6):
        planes.first.settings = f"connections = {connections}\ncall_timeout_s = {100 * connections}\n"
        assert planes.reload(planes.first, planes.second) == ["upstream.first.call_timeout_s", "upstream.first.connections"]
        planes.wait(f"{connections} connections", lambda: planes.shown()["first"]["connections"] == connections)


def all_is_well(load):
    result = end(load)
    assert result["errors"] == 0 and result["mismatches"] == 0 and result["operations"] > 1000, result


def files_are_stale(load):
    load.terminate()
    out, err = load.communicate(timeout=PATIENCE_S)
    assert load.returncode != 0 and "REMOVE of the test file failed" in err, (load.returncode, out, err)


def takes_its_place(planes):
    """The third upstream takes the only free slot, which was the second's. Files of the second's clients become stale."""
    of_second = planes.load(planes.second)
    before = planes.shown()["second"]["calls"]
    planes.wait("calls of the load to it", lambda: planes.shown()["second"]["calls"] > before + 5000)
    assert planes.reload(planes.first) == ["upstream.second"]
    assert planes.reload(planes.first, planes.third) == ["upstream.third"]
    planes.wait("it can be mounted", lambda: planes.can_be_mounted(planes.third))
    files_are_stale(of_second)
    assert not planes.can_be_mounted(planes.second)
    assert sorted(planes.shown()) == ["first", "third"], planes.shown()
    before = planes.shown()["third"]["calls"]
    of_third = planes.load(planes.third)
    planes.wait("calls of the load to it", lambda: planes.shown()["third"]["calls"] > before + 5000)
    assert planes.reload(planes.first, planes.second) == ["upstream.second", "upstream.third"]
    planes.wait("the second is back", lambda: planes.can_be_mounted(planes.second))
    files_are_stale(of_third)


def moves(planes):
    """The first upstream moves to another port, with unchanged files."""
    def connections(port):
        return len(subprocess.run(["ss", "-Htn", "state", "established", f"dport = :{port}"], capture_output=True, text=True,
                                  check=True).stdout.splitlines())
    assert connections(planes.first.port) > 0 and connections(planes.twin.port) == 0
    before, planes.first.port = planes.first.port, planes.twin.port
    assert planes.reload(planes.first, planes.second) == ["upstream.first.port"]
    planes.wait("all connections are there", lambda: connections(planes.twin.port) > 0 and connections(before) == 0)
    calls = planes.shown()["first"]["calls"]
    planes.wait("calls of the load there", lambda: planes.shown()["first"]["calls"] > calls + 1000)


def main():
    need("ganesha.nfsd", "rpcbind", "unshare", "ip", "ss", root_for="a network namespace of their own for nfs-ganesha")
    if IN_NAMESPACE not in os.environ:
        os.environ[IN_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "-n", "-m", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return run_tap([(test.__name__, test) for test in (one_comes_and_goes_and_comes_back_and_no_call_is_lost,)])


if __name__ == "__main__":
    sys.exit(main())
