#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MOUNT and its registration, as rpcinfo, showmount and rpcbind see them, in a separate network namespace. Speaks TAP.

mount_test.py CONTROLPLANE SOURCE [NAME...]   (NAME: only those tests)"""
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from onc_rpc import ask, connect, receive, record, string
from planes import PATIENCE_S, Skipped, missing, need, run_tap

CONTROL, SOURCE = sys.argv[1:3]
RPCBIND, MOUNT = 100000, 100005
TCP, UDP = socket.SOCK_STREAM, socket.SOCK_DGRAM
FOREIGN = "127.0.0.1.3.232"  # port 1000
GANESHA = """
NFS_CORE_PARAM {{ Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ RecoveryBackend = "fs"; RecoveryRoot = "{dir}"; }}
EXPORT_DEFAULTS {{ SecType = sys; Access_Type = RW; Squash = No_Root_Squash; Protocols = 3; Transports = TCP; }}
EXPORT {{ Export_Id = 1; Path = /real; Pseudo = /real; FSAL {{ Name = MEM; }} }}
"""


def wait(what, condition):
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"timed out waiting for: {what}"
        time.sleep(0.02)
    return value


class Upstream:
    """A MOUNT server that exports /data, and refuses MNT from ports above 1023."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.clients = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            stream, peer = self.listener.accept()
            self.clients.append(peer[1])
            threading.Thread(target=self.serve, args=(stream, peer[1] < 1024), daemon=True).start()

    @staticmethod
    def serve(stream, privileged):
        try:
            while True:
                [mark] = struct.unpack(">I", receive(stream, 4))
                message = receive(stream, mark & ~(1 << 31))
                [procedure] = struct.unpack(">I", message[20:24])
                results = struct.pack(">I", 13)  # MNT3ERR_ACCES
                if privileged and procedure == 1:
                    results = struct.pack(">II", 0, 8) + b"upstream" + struct.pack(">II", 1, 1)
                elif procedure == 5:
                    results = struct.pack(">I", 1) + string("/data") + struct.pack(">II", 0, 0)
                stream.sendall(record(message[:4] + struct.pack(">5I", 1, 0, 0, 0, 0) + results))
        except (AssertionError, OSError):
            stream.close()


class Control:
    """A control plane, run as its unit does if `as_unit`."""

    def __init__(self, more, as_unit=False, rpcbind=False, metrics=""):
        self.dir = tempfile.mkdtemp(prefix="sluice-mount-", dir="/dev/shm" if as_unit else None)
        os.chmod(self.dir, 0o777)
        self.segment = os.path.basename(self.dir) + "-segment"
        with open(f"{self.dir}/sluice.toml", "w", encoding="utf-8") as file:
            file.write(f'segment = "{self.segment}"\n[admin]\nsocket = "{self.dir}/admin.sock"\n[metrics]\naddress = "{metrics}"\n'
                       f'[device]\nloopback_path = "{self.dir}/loopback"\n'
                       f'[mount]\nport = 0\nrpcbind = {"true" if rpcbind else "false"}\n{more}')
        self.log = open(f"{self.dir}/log", "w+", encoding="utf-8")
        self.process = subprocess.Popen([*(confined() if as_unit else ()), CONTROL, "--config", f"{self.dir}/sluice.toml"],
                                        stdout=self.log, stderr=self.log)
        self.port = int(wait("MOUNT", lambda: re.findall(r"MOUNT is served on port (\d+)", self.text())
                             or self.process.poll() is not None and sys.exit(self.text()))[0])

    def text(self):
        with open(f"{self.dir}/log", encoding="utf-8") as file:
            return file.read()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.terminate()
        self.process.wait()
        if error[0]:
            print("".join(f"# {line}\n" for line in self.text().splitlines()), end="")
        shutil.rmtree(self.dir)
        if os.path.exists(f"/dev/shm/{self.segment}.control"):
            os.unlink(f"/dev/shm/{self.segment}.control")


def confined():
    """Returns a command that confines a program to the privileges that the unit gives the control plane."""
    with open(f"{SOURCE}/deploy/systemd/sluice-controlplane.service", encoding="utf-8") as file:
        kept = re.search(r"^AmbientCapabilities=(.*)$", file.read(), re.M).group(1).lower().replace("cap_", "").split()
    sets = ",".join(["-all", *(f"+{name}" for name in kept)])
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs", f"--bounding-set={sets}", f"--inh-caps={sets}",
            *([f"--ambient-caps={sets}"] if kept else [])]


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def registered():
    """Returns {netid: universal address} of MOUNT version 3 at rpcbind."""
    found = {}
    for line in run("rpcinfo").stdout.splitlines()[1:]:
        words = line.split()
        if words[:2] == [str(MOUNT), "3"]:
            found[words[2]] = words[3]
    return found


def rpcbind(procedure, netid, address):
    """Makes the call by which a program registers itself."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect("/run/rpcbind.sock")
        return ask(stream, RPCBIND, 3, procedure, struct.pack(">II", MOUNT, 3) + string(netid) + string(address) + string("0"))


def ours(port):
    """Returns the addresses under which rpcbind should list the control plane."""
    tail = f".{port >> 8}.{port & 255}"
    return {"tcp": "0.0.0.0" + tail, "udp": "0.0.0.0" + tail, "tcp6": "::" + tail, "udp6": "::" + tail}


def two_bytes_of_a_stranger_delay_nobody():
    with Control("") as control:
        stranger = connect(control.port)
        stranger.sendall(b"\x80\x00")
        with connect(control.port) as client:
            assert ask(client, MOUNT, 3, 0) == b""
        stranger.setblocking(False)
        try:
            assert stranger.recv(1), "the client was answered once the stranger had been disconnected"
        except BlockingIOError:
            pass
        stranger.close()


def it_is_served_over_both_families_by_both_transports():
    with Control("") as control:
        tail = f".{control.port >> 8}.{control.port & 255}"
        for netid, host in (("tcp", "127.0.0.1"), ("udp", "127.0.0.1"), ("tcp6", "::1"), ("udp6", "::1")):
            done = run("rpcinfo", "-a", host + tail, "-T", netid, str(MOUNT), "3")
            assert done.returncode == 0 and "ready and waiting" in done.stdout, (netid, done)


def it_registers_with_rpcbind_and_withdraws():
    with Control('[[export]]\npath = "/export"\nclients = []\n', rpcbind=True) as control:
        wait("the registration", lambda: registered() == ours(control.port))
        for host in ("127.0.0.1", "::1"):
            done = run("showmount", "-e", "--no-headers", host)
            assert done.returncode == 0 and done.stdout.split() == ["/export", "(everyone)"], (host, done)
    assert registered() == {}, registered()


def a_registration_of_another_server_stays():
    assert rpcbind(1, "tcp", FOREIGN) == struct.pack(">I", 1)
    try:
        with Control("", rpcbind=True) as control:
            expected = {**ours(control.port), "tcp": FOREIGN}
            wait("the other registrations", lambda: registered() == expected or registered().get("tcp") != FOREIGN)
            assert registered() == expected, registered()
            wait("a warning", lambda: FOREIGN in control.text())
        assert registered() == {"tcp": FOREIGN}, registered()
    finally:
        rpcbind(2, "tcp", FOREIGN)


def each_client_is_shown_its_own_exports():
    exports = '[[export]]\npath = "/all"\nclients = []\n[[export]]\npath = "/four"\nclients = ["127.0.0.0/8"]\n[[export]]\npath = "/six"\nclients = ["::1"]\n'
    with Control(exports, rpcbind=True) as control:
        wait("the registration", lambda: registered() == ours(control.port))
        for host, own in (("127.0.0.1", "/four"), ("::1", "/six")):
            done = run("showmount", "-e", "--no-headers", host)
            assert done.returncode == 0 and done.stdout.split() == ["/all", "(everyone)", own, "(everyone)"], (host, done)


def a_privileged_port_works_with_the_capabilities_of_the_unit():
    upstream = Upstream()
    with Control(f'[[upstream]]\nname = "nas"\naddress = "127.0.0.1"\nprograms = ["nfs3"]\nprivileged_port = true\nmount_port = {upstream.port}\n',
                 as_unit=True) as control, connect(control.port) as client:
        answer = ask(client, MOUNT, 3, 1, string("/data"))
        assert answer[:4] == bytes(4), (answer, upstream.clients)
        assert answer[8:16] == b"upstream" and upstream.clients and max(upstream.clients) < 1024, upstream.clients


def exports_of_an_upstream_are_for_its_clients():
    upstream = Upstream()
    with Control(f'[[upstream]]\nname = "nas"\naddress = "127.0.0.1"\nprograms = ["nfs3"]\nprivileged_port = true\nmount_port = {upstream.port}\n'
                 'clients = ["::1"]\n') as control:
        with connect(control.port) as client:
            assert ask(client, MOUNT, 3, 1, string("/data")) == struct.pack(">I", 13)
            assert ask(client, MOUNT, 3, 5) == bytes(4)
            assert upstream.clients == [], "the upstream was asked for a client that it is not for"
        with connect(control.port, "::1") as client:
            assert ask(client, MOUNT, 3, 1, string("/data"))[:4] == bytes(4)
            assert ask(client, MOUNT, 3, 5) == struct.pack(">I", 1) + string("/data") + bytes(8)


def what_it_does_is_counted():
    with Control('[[export]]\npath = "/six"\nclients = ["::1"]\n', metrics="127.0.0.1:9464") as control:
        with connect(control.port) as client:
            assert ask(client, MOUNT, 3, 1, string("/six")) == struct.pack(">I", 13)
        wait("the line of the log", lambda: "event=mount_denied peer=127.0.0.1 path=/six" in control.text())
        for name, value in (("calls", 1), ("denied", 1), ("connections", 1), ("malformed", 0)):
            wait(name, lambda line=f'sluice_mount_total{{event="{name}"}} {value}\n': line in metrics())


def metrics():
    with urllib.request.urlopen("http://127.0.0.1:9464/metrics", timeout=PATIENCE_S) as page:
        return page.read().decode()


def listed_by(client):
    """Returns the list of exports, or nothing while the upstream's address is not known, which MOUNT answers by SYSTEM_ERR."""
    try:
        return ask(client, MOUNT, 3, 5)
    except AssertionError:
        return None


def the_exports_of_a_real_server_are_found_through_its_rpcbind():
    if sentence := missing("ganesha.nfsd"):
        raise Skipped(sentence)
    folder = tempfile.mkdtemp(prefix="sluice-mount-ganesha-")
    with open(f"{folder}/conf", "w", encoding="utf-8") as file:
        file.write(GANESHA.format(dir=folder))
    server = subprocess.Popen(["ganesha.nfsd", "-F", "-f", f"{folder}/conf", "-L", f"{folder}/log", "-p", f"{folder}/pid"])
    try:
        listed = wait("ganesha", lambda: run("showmount", "-e", "--no-headers", "127.0.0.1").stdout.split())
        assert listed[0] == "/real", listed
        for address in ("127.0.0.1", "::1"):
            with Control(f'[[upstream]]\nname = "nas"\naddress = "{address}"\nprograms = ["nfs3"]\n') as control, connect(control.port) as client:
                assert wait("the list", lambda client=client: listed_by(client)) == struct.pack(">I", 1) + string("/real") + bytes(8)
                answer = ask(client, MOUNT, 3, 1, string("/real"))
                assert answer[:4] == bytes(4) and struct.unpack(">I", answer[4:8])[0] > 8, answer
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)


def main():
    run("ip", "link", "set", "lo", "up")
    run("mount", "-t", "tmpfs", "none", "/run")
    server = subprocess.Popen(["rpcbind", "-f", "-w"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait("rpcbind", lambda: run("rpcinfo").returncode == 0)
        tests = (
            two_bytes_of_a_stranger_delay_nobody, it_is_served_over_both_families_by_both_transports, it_registers_with_rpcbind_and_withdraws,
            a_registration_of_another_server_stays, each_client_is_shown_its_own_exports,
            a_privileged_port_works_with_the_capabilities_of_the_unit, exports_of_an_upstream_are_for_its_clients, what_it_does_is_counted,
            the_exports_of_a_real_server_are_found_through_its_rpcbind)
        return run_tap([(f.__name__, f) for f in tests if f.__name__ in sys.argv[3:] or not sys.argv[3:]])
    finally:
        server.terminate()
        server.wait()


need("rpcbind", "rpcinfo", "showmount", "setpriv", "unshare", "ip", root_for="a network namespace")
if os.environ.get("SLUICE_IN_NAMESPACE") != "1":
    os.environ["SLUICE_IN_NAMESPACE"] = "1"
    os.execvp("unshare", ["unshare", "-n", "-m", sys.executable, *sys.argv])
sys.exit(main())
