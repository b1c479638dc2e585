#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A gateway whose upstream is itself an RPC-over-RDMA server. An unmodified Linux kernel is the client, and the server is Linux's own in the same
guest, over its rxe, or another Sluice. Speaks TAP.

rdma_upstream_test.py CONTROLPLANE DATAPLANE SLUICECTL [NAME...]   (NAME: only those tests)"""
import contextlib
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gateway_bench import TREE, mount_command  # noqa: E402
from lab import EXPORT, MTU, PLAIN_GUEST, PLAIN_HOST, ROCE_GUEST, ROCE_HOST, ROCE_OTHER, Bench, Failed, Planes, build_image, need_lab, run_tests  # noqa: E402

RDMA_UPSTREAM = """
[transport]
max_version = {version}
[[upstream]]
name = "upstream"
transport = "rdma"
address = "{address}"
programs = ["nfs3", "nfs4"]
connections = {connections}
"""
OWN_PORT, LATER_PORT = 20050, 20051
AT_A_PORT = f"""
[[upstream]]
name = "{{name}}"
transport = "rdma"
address = "{ROCE_GUEST}"
programs = ["nfs4"]
listen_port = {{port}}
connections = 4
"""
AT_ITS_PORT = AT_A_PORT.format(name="own", port=OWN_PORT)


class RdmaUpstreamBench(Bench):
    """The guest, and two Sluices, on one Ethernet segment."""

    def __init__(self, *programs):
        self.programs = programs
        self.far = None
        super().__init__()

    def set_up(self):
        image = build_image()
        self.lab.ip("link", "add", "segment", "type", "bridge")
        self.lab.ip("link", "set", "segment", "mtu", str(MTU + 100), "up")
        self.lab.add_tap("roce", bridge="segment")
        for end in ("near", "far"):
            self.lab.ip("link", "add", end, "mtu", str(MTU + 100), "type", "veth", "peer", "name", f"{end}-port", "mtu", str(MTU + 100))
            self.lab.ip("link", "set", f"{end}-port", "master", "segment", "up")
            self.lab.ip("link", "set", end, "up")
        self.lab.add_tap("plain", address=f"{PLAIN_HOST}/24")
        self.serve(1, ROCE_GUEST)
        self.connect_guest(image)
        self.sh("modprobe nfsv4\nnfsd_on_rdma\nend_grace")

    def serve(self, version, address, more="", connections=16):
        """Starts the near Sluice with the server at that address, and with further upstreams in `more`."""
        if self.planes:
            self.planes.close()
        self.planes = Planes(self.lab, *self.programs, RDMA_UPSTREAM.format(version=version, address=address, connections=connections) + more, interface="near")
        self.planes.start()

    def serve_by_sluice(self):
        if self.far:
            self.far.close()
        self.far = Planes(self.lab, *self.programs, EXPORT, name="far", interface="far", address=ROCE_OTHER, mount_port=20046)
        self.far.start()

    def close(self):
        if self.far:
            self.far.close()
        super().close()

    def ask(self, planes, *what):
        done = subprocess.run(self.lab.netns(planes.ctl_path, "--socket", planes.socket, "--json", *what), capture_output=True, text=True,
                              check=True)
        return json.loads(done.stdout)

    def counters(self):
        return self.ask(self.planes, "upstreams", "stats")[0]

    def mounted(self, version, script, more=""):
        """Runs a script with a mount through the near Sluice."""
        command = mount_command(version, "/", more=more)
        if version == "3":  # file handles of this server come from its MOUNT over TCP
            command = f"mount -t nfs -o proto=rdma,port=20049,vers=3,nolock,mountproto=tcp,mountaddr={PLAIN_GUEST},mountport=20048{more} {ROCE_HOST}:/export /mnt/nfs"
        self.sh(f"{command}\ngrep -q proto=rdma /proc/mounts")
        try:
            return self.sh(script)
        finally:
            self.guest.sh("cd /; umount -f /mnt/nfs")


def settled(b):
    """Checks that no call was lost, refused or duplicated."""
    counters = b.counters()
    for counter in ("given_up", "timeouts", "duplicate_xids", "callbacks_refused"):
        if counters[counter] != 0:
            raise Failed(f"{counter}: {counters}")
    if counters["calls"] == 0 or counters["replies"] == 0:
        raise Failed(str(counters))


def tree(version):
    def test(b):
        b.mounted(version, TREE)
        settled(b)
    test.__name__ = f"files_and_folders_over_version_{version.replace('.', '_')}"
    return test


def verified_random_io(version):
    def test(b):
        b.mounted(version, """
cd /tmp; fio --name=relayed --directory=/mnt/nfs --size=8m --numjobs=2 --rw=randrw --bsrange=512-1m --blockalign=512 --iodepth=8 --ioengine=libaio --direct=1 \\
  --verify=crc32c --verify_fatal=1 --output=/tmp/fio.log || { cat /tmp/fio.log; exit 1; }
rm /mnt/nfs/relayed*""", ",rsize=1048576,wsize=1048576")
        settled(b)
    test.__name__ = f"verified_random_io_over_version_{version.replace('.', '_')}"
    return test


def a_delegation_is_recalled_through_the_gateway(b):
    """CB_RECALL goes over RDMA in the reverse direction twice. The server grants no delegations in lockd's grace period, which takes 90 seconds
    and cannot be ended early."""
    for attempt in range(15):
        text = b.mounted("4.1", f"file=recalled{attempt}" + """
mount -t nfs -o proto=tcp,vers=4.0 127.0.0.1:/ /mnt/other
echo one > /export/$file
for i in 1 2 3; do cat /mnt/nfs/$file > /dev/null; done
exec 3< /mnt/nfs/$file
echo "two and more" > /mnt/other/$file
exec 3<&-; cat /mnt/nfs/$file
umount /mnt/other""")
        if "two and more" not in text:
            raise Failed(f"the client read: {text}")
        if b.counters()["callbacks"] > 0:
            return settled(b)
        b.sh("sleep 8")
    raise Failed(f"no delegation was recalled: {b.counters()}")


@contextlib.contextmanager
def mounted_at(b, port):
    b.sh(mount_command("4.1", "/").replace("port=20049", f"port={port}"))
    try:
        yield
    finally:
        b.guest.sh("cd /; umount -f /mnt/nfs")


def over_an_end_of_the_control_plane(b, seed):
    with b.under_random_io("/mnt/nfs/across", seed):
        b.lab.kill(b.planes.control)
        b.sends("roce")
        b.planes.start_control()
        b.lab.wait("both planes are up", b.planes.up)


def calls_by_upstream(b):
    return {each["name"]: each["calls"] for each in b.ask(b.planes, "upstreams", "stats")}


def at_a_port_of_its_own(b):
    b.serve(1, ROCE_GUEST, AT_ITS_PORT, connections=4)
    with mounted_at(b, OWN_PORT):
        b.sh(TREE)
    calls = calls_by_upstream(b)
    if calls["upstream"] > 0 or calls["own"] < 100:
        raise Failed(f"calls: {calls}")


def another_one_comes_by_a_reload(b):
    b.serve(1, ROCE_GUEST, AT_ITS_PORT + "[forward]\nupstreams_max = 3\nrdma_upstreams_max = 3\n", connections=4)
    with mounted_at(b, OWN_PORT), b.under_random_io("/mnt/nfs/meanwhile", 4719):
        with open(b.planes.config, "a", encoding="utf-8") as file:
            file.write(AT_A_PORT.format(name="later", port=LATER_PORT))
        told = b.ask(b.planes, "config", "reload")
        if told["in_force"] != ["upstream.later"]:
            raise Failed(told)
        b.lab.wait("the new port", lambda: f"Clients may now also connect to port {LATER_PORT}" in b.planes.text())
    with mounted_at(b, LATER_PORT):
        b.sh(TREE)
        over_an_end_of_the_control_plane(b, 4721)
    calls = calls_by_upstream(b)
    if calls["upstream"] > 0 or calls["own"] == 0 or calls["later"] < 100:
        raise Failed(f"calls: {calls}")


def an_upstream_changes_its_transport(b):
    """A reload moves an upstream to TCP under I/O, and back. The server takes the session on the new connection (RFC 8881, section 2.10.3.1)."""
    b.serve(1, ROCE_GUEST, AT_ITS_PORT + "[forward]\nupstreams_max = 2\nrdma_upstreams_max = 2\n", connections=4)
    over_rdma = AT_ITS_PORT
    over_tcp = AT_ITS_PORT.replace('transport = "rdma"', 'transport = "tcp"').replace(ROCE_GUEST, PLAIN_GUEST)
    with mounted_at(b, OWN_PORT), b.under_random_io("/mnt/nfs/across", 4723):
        for now, then in ((over_rdma, over_tcp), (over_tcp, over_rdma)):
            with open(b.planes.config, encoding="utf-8") as file:
                text = file.read()
            with open(b.planes.config, "w", encoding="utf-8") as file:
                file.write(text.replace(now, then))
            told = b.ask(b.planes, "config", "reload")
            if told["in_force"] != [f"upstream.own.{key}" for key in ("address", "port", "transport")] or told["restart_both_planes"]:
                raise Failed(told)
            before = calls_by_upstream(b)["own"]
            b.lab.wait("further calls", lambda before=before: calls_by_upstream(b)["own"] > before + 100)
            io_uring = {each["name"]: each["io_uring"] for each in b.ask(b.planes, "upstreams")}["own"]
            if bool(io_uring) != (then == over_tcp):
                raise Failed(f"io_uring: {io_uring}")


def the_connection_to_the_server_is_lost(b):
    """Calls without a reply are retransmitted over the next connection, and the client's connection is kept."""
    b.sh(mount_command("4.1", "/"))
    try:
        with b.under_random_io("/mnt/nfs/across", 4713):
            before, = [c for c in b.ask(b.planes, "connections") if not c["outgoing"]]
            for _ in range(3):
                lost, = [c for c in b.ask(b.planes, "connections") if c["outgoing"]]
                b.ask(b.planes, "connections", "close", str(lost["reactor"]), str(lost["connection"]))
                b.sends("roce")
            after, = [c for c in b.ask(b.planes, "connections") if not c["outgoing"]]
            if after["age_s"] < before["age_s"]:
                raise Failed("the client has connected again")
    finally:
        b.guest.sh("cd /; umount -f /mnt/nfs")
    counters = b.counters()
    if counters["disconnects"] < 3:
        raise Failed(str(counters))
    settled(b)


def control_plane_is_killed(b):
    with mounted_at(b, 20049):
        over_an_end_of_the_control_plane(b, 4713)
    settled(b)


@contextlib.contextmanager
def mounted_from_sluice(b):
    """The server is another Sluice."""
    b.serve(2, ROCE_OTHER)
    b.serve_by_sluice()
    b.sh(f"mount -t nfs -o proto=rdma,port=20049,vers=3,nolock,mountproto=tcp,mountaddr={PLAIN_HOST},mountport=20046 {ROCE_HOST}:/export /mnt/nfs\n"
         "grep -q proto=rdma /proc/mounts")
    try:
        yield
    finally:
        b.guest.sh("cd /; umount -f /mnt/nfs")


def version_2_on_the_far_side(b):
    """The client speaks version 1, as Linux does, and the two Sluices version 2 with each other."""
    with mounted_from_sluice(b):
        b.sh(TREE)
        near = {(c["outgoing"], c["version"]) for c in b.ask(b.planes, "connections")}
        if near != {(False, 1), (True, 2)}:
            raise Failed(f"versions at the near Sluice: {near}")
    settled(b)


def data_plane_is_killed(b):
    """The server is another Sluice, because threads of Linux's server in the guest have been observed to wait minutes for their old connections."""
    with mounted_from_sluice(b), b.under_random_io("/mnt/nfs/across", 4713):
        b.lab.kill(b.planes.data)
        b.planes.start_data()
        b.lab.wait("both planes are up", b.planes.up)


TESTS = [tree("3"), tree("4.0"), tree("4.1"), tree("4.2"), verified_random_io("3"), verified_random_io("4.1"),
         a_delegation_is_recalled_through_the_gateway, the_connection_to_the_server_is_lost, control_plane_is_killed,
         at_a_port_of_its_own, another_one_comes_by_a_reload, an_upstream_changes_its_transport, version_2_on_the_far_side, data_plane_is_killed]

if __name__ == "__main__":
    chosen = [test for test in TESTS if len(sys.argv) < 5 or test.__name__ in sys.argv[4:]]
    need_lab()
    bench = RdmaUpstreamBench(*sys.argv[1:4])
    sys.exit(1 if run_tests(bench, chosen) else 0)
