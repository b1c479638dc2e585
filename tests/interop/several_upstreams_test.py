#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A gateway in front of two nfs-ganesha and an unmodified Linux kernel that mounts both over RDMA: with NFS version 3 by different exports,
and with NFS version 4 by different ports. Speaks TAP.

several_upstreams_test.py CONTROLPLANE DATAPLANE SLUICECTL [NAME...]   (NAME: only those tests)"""
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gateway_bench import TREE, GatewayBench, Upstream  # noqa: E402
from lab import PLAIN_HOST, ROCE_HOST, Failed, need_lab, run, run_tests  # noqa: E402

FIRST = """
[[upstream]]
name = "first"
address = "127.0.0.1"
port = {port}
programs = ["nfs3", "nfs4"]
mount_port = {mount}
exports = ["{dir}/vfs"]
"""
SECOND = """
[[upstream]]
name = "second"
address = "127.0.0.1"
port = {port}
programs = ["nfs3"]
mount_port = {mount}
prefix = "/second"
"""
AT_ITS_PORT = """
[[upstream]]
name = "%s"
address = "127.0.0.1"
port = {port}
programs = ["nfs4"]
listen_port = %d
"""
OWN_PORT = 20050
FOURTH_VERSION = AT_ITS_PORT % ("fourth_version", OWN_PORT)
LATER_PORT = 20051
LATER = AT_ITS_PORT % ("later", LATER_PORT)
PLACE = """
[forward]
upstreams_max = 5
record_buffers = 64
"""


def entry(text, upstream):
    return text.format(port=upstream.port, mount=upstream.mount_port, dir=upstream.dir)


class TwoUpstreams(GatewayBench):
    def __init__(self, *programs):
        self.second = None
        super().__init__(*programs, None)

    def new_upstream(self):
        self.second = Upstream(self.lab, port=2059, mount_port=20057, name="second")
        self.second.start()
        # nfs-ganesha's client IDs begin with its start time in seconds. Linux mistakes two servers with equal client IDs for one (version 4.0).
        time.sleep(1)
        return Upstream(self.lab, name="first")

    def configuration(self):
        return PLACE + entry(FIRST, self.upstream) + entry(SECOND, self.second) + entry(FOURTH_VERSION, self.second)

    def both_counters(self):
        """Returns the counters of both upstreams, by name."""
        done = subprocess.run(self.ctl("--json", "upstreams", "stats"), capture_output=True, text=True, check=True)
        return {each["name"]: each for each in json.loads(done.stdout)}

    def rewrite(self, change):
        with open(self.planes.config, encoding="utf-8") as file:
            text = file.read()
        changed = change(text)
        if changed == text:
            raise Failed("nothing has changed in the configuration")
        with open(self.planes.config, "w", encoding="utf-8") as file:
            file.write(changed)


def mount(path, at):
    return (f"mount -t nfs -o proto=rdma,port=20049,vers=3,nolock,mountproto=tcp,mountaddr={PLAIN_HOST},mountport=20048 "
            f"{ROCE_HOST}:{path} {at}\n")


def mount_4(version, port, at):
    return f"mount -t nfs -o proto=rdma,port={port},vers={version} {ROCE_HOST}:/vfs {at}\n"


class BothMounted:
    """Mounts the first upstream at /mnt/nfs, and the second at /mnt/other."""

    def __init__(self, b, version="3"):
        self.b = b
        self.commands = (mount(f"{b.upstream.dir}/vfs", "/mnt/nfs") + mount(f"/second{b.second.dir}/vfs", "/mnt/other") if version == "3"
                         else mount_4(version, 20049, "/mnt/nfs") + mount_4(version, OWN_PORT, "/mnt/other"))

    def __enter__(self):
        self.b.sh(self.commands)

    def __exit__(self, kind, *ignored):
        if kind is None:
            self.b.sh("umount /mnt/nfs; umount /mnt/other")
        else:
            self.b.guest.begin("umount -f -l /mnt/nfs; umount -f -l /mnt/other")


def exports_of_both_are_listed(b):
    call = struct.pack(">10I", 7, 0, 2, 100005, 3, 5, 0, 0, 0, 0)
    script = ("import socket\ns = socket.create_connection(('127.0.0.1', 20048))\n"
              f"s.sendall(bytes.fromhex('{(struct.pack('>I', 1 << 31 | len(call)) + call).hex()}'))\nprint(s.recv(65536).hex())")
    done = subprocess.run(b.lab.netns(sys.executable, "-c", script), capture_output=True, text=True, check=True)
    reply = bytes.fromhex(done.stdout.strip())
    for path in (f"{b.upstream.dir}/vfs", f"/second{b.second.dir}/vfs", "/second/mem"):
        if struct.pack(">I", len(path)) + path.encode() not in reply:
            raise Failed(f"{path} is not in {reply}")
    if struct.pack(">I", 4) + b"/mem" in reply:
        raise Failed("/mem is no part of the first, and is listed")


def trees_on_both(b):
    """Uses every procedure of a client. Both upstreams export the same file system of this machine, so their handles and file system numbers do
    not distinguish them."""
    with BothMounted(b):
        b.sh('test "$(stat -c %d /mnt/nfs)" != "$(stat -c %d /mnt/other)"')
        b.sh(TREE)
        b.sh(TREE.replace("/mnt/nfs", "/mnt/other"))
        b.sh("mkdir /mnt/nfs/of /mnt/other/of; echo first > /mnt/nfs/of/file; echo second > /mnt/other/of/file; drop_caches\n"
             'test "$(cat /mnt/nfs/of/file)" = first; test "$(cat /mnt/other/of/file)" = second; mv /mnt/nfs/of/file /mnt/other/of/moved')
    for upstream, name, text in ((b.upstream, "moved", None), (b.second, "file", "second\n"), (b.second, "moved", "first\n")):
        path = f"{upstream.dir}/vfs/of/{name}"
        seen = open(path, encoding="ascii").read() if os.path.exists(path) else None
        if seen != text:
            raise Failed(f"{path} has {seen}, not {text}")
    counters = b.both_counters()
    print(f"# calls: {({name: each['calls'] for name, each in counters.items()})}")
    for name, each in counters.items():
        if each["unknown_handles"] or each["across_upstreams"] or each["long_handles"]:
            raise Failed(f"{name}: {each}")


def a_folder_of_a_thousand_files(b):
    """Tests READDIRPLUS, whose replies grow by a tag for each file."""
    folder = f"{b.second.dir}/vfs/many"
    os.mkdir(folder)
    for i in range(1000):
        with open(f"{folder}/f{i}", "w", encoding="ascii") as file:
            file.write(str(i))
    with BothMounted(b):
        b.sh('ls -l /mnt/other/many > /tmp/listed; test "$(grep -c f /tmp/listed)" = 1000; test "$(cat /mnt/other/many/f* | wc -c)" = 2890')
        used = b.sh("grep -E '^\\s+READDIRPLUS: ' /proc/self/mountstats")
    print(f"# {used.split()[:2]}")


def handles_last_over_restarts_of_both_planes_and_another_order(b):
    with BothMounted(b):
        b.sh("echo first > /mnt/nfs/kept; echo second > /mnt/other/kept")
        with b.under_random_io("/mnt/other/across", 17):
            b.lab.kill(b.planes.control)
            b.lab.kill(b.planes.data)
            b.rewrite(lambda text: text.replace(entry(FIRST, b.upstream), "").replace(
                entry(SECOND, b.second), entry(SECOND, b.second) + entry(FIRST, b.upstream)))
            b.planes.start()
        b.sh('drop_caches; test "$(cat /mnt/nfs/kept)" = first; test "$(cat /mnt/other/kept)" = second')


def one_that_stands_still_holds_up_only_its_own_files(version):
    def test(b):
        with BothMounted(b, version):
            os.killpg(b.second.process.pid, signal.SIGSTOP)
            try:
                b.sh("(echo late > /mnt/other/late) & for i in $(seq 20); do echo $i > /mnt/nfs/alive; drop_caches; cat /mnt/nfs/alive; done > /tmp/out\n"
                     'test "$(tail -n 1 /tmp/out)" = 20')
            finally:
                os.killpg(b.second.process.pid, signal.SIGCONT)
            b.sh('wait; until [ "$(cat /mnt/other/late)" = late ]; do sleep 0.1; done; rm /mnt/other/late')
    test.__name__ = f"one_that_stands_still_holds_up_only_its_own_files_under_version_{version.replace('.', '_')}"
    return test


def version_4_by_ports(b, version):
    """Uses equal paths at both servers, and one client ID for each server."""
    before = b.both_counters()
    with BothMounted(b, version):
        b.sh(TREE)
        b.sh(TREE.replace("/mnt/nfs", "/mnt/other"))
        b.sh(f"echo first > /mnt/nfs/is{version}; echo second > /mnt/other/is{version}; drop_caches\n"
             f'test "$(cat /mnt/nfs/is{version})" = first; test "$(cat /mnt/other/is{version})" = second')
    for server, text in ((b.upstream, "first\n"), (b.second, "second\n")):
        with open(f"{server.dir}/vfs/is{version}", encoding="ascii") as file:
            if file.read() != text:
                raise Failed(f"{server.dir} has what was written to the other")
    after = b.both_counters()
    calls = {name: after[name]["calls"] - before[name]["calls"] for name in after}
    print(f"# version {version}, calls: {calls}")
    if min(calls["first"], calls["fourth_version"]) < 100 or calls["second"] > 0:
        raise Failed(f"calls went elsewhere: {calls}")


def version_4_of_both_by_their_ports(b):
    for version in ("4.0", "4.1", "4.2"):
        version_4_by_ports(b, version)
    shown = {each["name"]: each["listen_port"] for each in b.asked("upstreams")}
    if shown != {"first": 20049, "second": 20049, "fourth_version": OWN_PORT}:
        raise Failed(f"ports: {shown}")


def version_4_of_both_over_ends_of_both_planes(b):
    """A restarted control plane has no record of the ports of existing connections."""
    with BothMounted(b, "4.2"):
        b.sh("echo first > /mnt/nfs/kept4; echo second > /mnt/other/kept4")
        with b.under_random_io("/mnt/other/across4", 23):
            b.lab.kill(b.planes.control)
            b.planes.start_control()
            b.lab.wait("the control plane", b.planes.up)
            b.lab.kill(b.planes.control)
            b.lab.kill(b.planes.data)
            b.planes.start()
        b.sh('drop_caches; test "$(cat /mnt/nfs/kept4)" = first; test "$(cat /mnt/other/kept4)" = second')


def nothing_else_is_at_that_port(b):
    """The second port serves version 4 only. Version 3 handles of the first upstream have a tag, which any port could decode."""
    path = f"{b.upstream.dir}/vfs"
    b.sh("mkdir -p /tmp/third\n! timeout 60 " + mount(path, "/tmp/third").replace("port=20049", f"port={OWN_PORT}").strip() + " 2> /tmp/why\n"
         "! grep -q /tmp/third /proc/mounts")


def exports_move_by_a_reload(b):
    """Existing mounts continue, because handles contain the upstream's name, not the path."""
    with BothMounted(b):
        with b.under_random_io("/mnt/other/meanwhile", 5):
            b.rewrite(lambda text: text.replace('prefix = "/second"', 'prefix = "/moved"'))
            told = run(*b.ctl("config", "reload"))
            if "restart" in told and "upstream.second" in told.split("restart", 1)[1]:
                raise Failed(told)
        b.sh("mkdir -p /tmp/moved\n" + mount(f"/moved{b.second.dir}/vfs", "/tmp/moved") +
             "echo new > /tmp/moved/file; drop_caches; grep -q new /mnt/other/file; umount /tmp/moved")


def one_of_version_4_comes_by_a_reload(b):
    """The new upstream is mounted while another one is used, and both keep working over a restart of the control plane."""
    with BothMounted(b, "4.2"):
        with b.under_random_io("/mnt/other/meanwhile4", 29):
            b.rewrite(lambda text: text + entry(LATER, b.upstream))
            told = run(*b.ctl("config", "reload"))
            if "restart" in told and "upstream.later" in told.split("restart", 1)[1]:
                raise Failed(told)
            b.lab.wait("the new port", lambda: f"Clients may now also connect to port {LATER_PORT}" in b.planes.text())
        b.sh("mkdir -p /tmp/later\n" + mount_4("4.1", LATER_PORT, "/tmp/later") + TREE.replace("/mnt/nfs", "/tmp/later"))
        with b.under_random_io("/tmp/later/across4", 31):
            b.lab.kill(b.planes.control)
            b.planes.start_control()
            b.lab.wait("the control plane", b.planes.up)
        b.sh("echo later > /tmp/later/came; drop_caches; umount /tmp/later\n" + mount_4("4.2", LATER_PORT, "/tmp/later") +
             'test "$(cat /tmp/later/came)" = later; umount /tmp/later')
    shown = {each["name"]: each for each in b.asked("upstreams")}
    if shown["later"]["listen_port"] != LATER_PORT or shown["later"]["calls"] < 100:
        raise Failed(shown["later"])


def one_whose_handles_leave_no_room_is_refused(b):
    """The handles of nfs-ganesha's export in memory have 64 bytes."""
    b.rewrite(lambda text: re.sub(r"(?m)^exports = .*$", f'exports = ["{b.upstream.dir}/vfs", "/mem"]', text))
    run(*b.ctl("config", "reload"))
    b.sh("mkdir -p /tmp/mem\n! " + mount("/mem", "/tmp/mem"))
    if "its file handles have 64 bytes" not in b.planes.text():
        raise Failed("the log does not say why")


TESTS = [exports_of_both_are_listed, trees_on_both, a_folder_of_a_thousand_files, one_that_stands_still_holds_up_only_its_own_files("3"),
         version_4_of_both_by_their_ports, one_that_stands_still_holds_up_only_its_own_files("4.2"), version_4_of_both_over_ends_of_both_planes,
         nothing_else_is_at_that_port,
         handles_last_over_restarts_of_both_planes_and_another_order, exports_move_by_a_reload,
         one_of_version_4_comes_by_a_reload, one_whose_handles_leave_no_room_is_refused]


def main():
    programs, names = sys.argv[1:4], sys.argv[4:]
    tests = [test for test in TESTS if not names or test.__name__ in names]
    need_lab("ganesha.nfsd")
    bench = TwoUpstreams(*programs)
    return 1 if run_tests(bench, tests) else 0


if __name__ == "__main__":
    sys.exit(main())
