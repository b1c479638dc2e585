#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/gdb/sluice-gdb.py on running data planes, and on a core file. Speaks TAP.

gdb_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH"""
import os
import re
import signal
import socket
import struct
import subprocess
import sys

from planes import Planes as OverMemif, Skipped, common, end, free_port, need, run_tap
from gdb_script import SCRIPT, gdb, table  # noqa: E402

PROGRAMS = sys.argv[1:5]
DATA = PROGRAMS[1]
EXPORT = '[[export]]\npath = "/export"\nclients = []\n'
# Cores are small, and a client that is stopped while gdb runs is not disconnected.
FEW = "[transport]\nprogress_timeout_s = 0\nmax_connections = 4\ncall_buffers = 2\nlarge_reply_buffers = 2\n[memory]\nsize_mib = 64\nmax_files = 100\n"
SENDS_PER_COMPLETION = 16  # at most (dataplane/rpcrdma/link/send_stage.h)


class OverLoopback(common.Planes):
    def __init__(self, serves, fabric=None):
        super().__init__("gdb", *PROGRAMS)
        self.fabric = fabric or f"/dev/shm/{self.name}-loopback"
        self.leftovers.append(self.fabric)
        self.write_config(f'segment = "{self.name}"\n[device]\ndriver = "loopback"\nloopback_path = "{self.fabric}"\n'
                          f'[admin]\nsocket = "{self.socket}"\n[metrics]\naddress = ""\n[mount]\nenabled = false\n{FEW}{serves}')

    def load(self):
        return subprocess.Popen([self.programs["bench"], "--fabric", self.fabric, "--seconds", str(common.PATIENCE_S), "--depth", "64", "--json", "null"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


NULL = "536871065.1.0"  # dataplane/service/api/null.h
EVERYTHING = ["sluice reactors", "sluice connections", "sluice slots", "sluice queue-pairs", "sluice queue-pairs 0.0"]


def compare(look, planes):
    """Compares gdb's view of the connection, which look() returns, with sluicectl's. The replies were sent and not yet received by the client.
    Returns gdb's queue pair and sluicectl's connection."""
    # Asked before gdb stops the data plane, which may then count as dead, and whose peer may time out.
    shown = planes.wait("the connection", lambda: planes.ctl("connections", "show", "0", "0"))
    printed = look()
    connection, = table(printed, ["connection", "state", "peer"])
    same = {"state": "Open", "peer": shown["peer"], "version": f"Version{shown['version']}", "credits": str(shown["credits"]),
            "busy": str(shown["busy"]), "calls": str(shown["calls"])}
    assert shown["state"] == "open" and {name: connection[name] for name in same} == same, (connection, shown)
    slots = table(printed, ["connection", "slot", "state"])
    assert len(slots) == shown["busy"] > 1 and len({slot["xid"] for slot in slots}) == len(slots), (slots, shown)
    for slot in slots:
        assert slot["state"] == "Replying" and slot["procedure"] == NULL and float(slot["age-us"]) > 0, slot
    reactor, = table(printed, ["reactor", "state", "connections"])
    assert reactor["state"] == "running" and reactor["connections"] == "1", reactor
    assert f"Replying={shown['busy']}" in reactor["call-slots"].split(), reactor
    assert int(reactor["polls-idle"]) > 0 and int(reactor["completions"]) > shown["calls"], reactor
    queue_pair = table(printed, ["connection", "driver", "queue-pair"])[0]
    work = table(printed, ["connection", "work-request", "opcode"])
    assert queue_pair["state"] == "ReadyToSend" and len(work) == int(queue_pair["sends"]) > 0, (work, queue_pair)
    # Every slot in Replying waits for one of these Sends: its own, or the last one that shares a completion with it.
    replies = {entry["of"] for entry in work if entry["of"].startswith("ReplySent ")}
    assert replies <= {f"ReplySent {slot['slot']}" for slot in slots} and len(slots) < len(replies) + SENDS_PER_COMPLETION, (work, slots)
    return queue_pair, shown


def with_client_stopped(planes, load, body):
    """Runs body() while the client is stopped, so that everything in flight stays unchanged."""
    def stopped_with_calls():
        load.send_signal(signal.SIGSTOP)
        settled = planes.wait("a state that lasts", lambda: settled_connection(planes))
        if settled["busy"] > 1:
            return True
        load.send_signal(signal.SIGCONT)
        return False
    try:
        planes.wait("calls in flight", stopped_with_calls)
        body()
    finally:
        load.send_signal(signal.SIGCONT)


def settled_connection(planes):
    """Returns the connection once two consecutive views of it are equal, else None."""
    def look():
        shown = planes.ctl("connections", "show", "0", "0")
        polls = planes.ctl("counters")[0]["polls_idle"]
        planes.wait("another view", lambda: planes.ctl("counters")[0]["polls_idle"] > polls + 4096)
        again = planes.ctl("connections", "show", "0", "0")
        return again if (shown["calls"], shown["busy"]) == (again["calls"], again["busy"]) else None
    return planes.wait("no more calls", look)


def a_live_data_plane_and_its_core_show_what_sluicectl_shows():
    planes = OverLoopback(EXPORT)
    core = f"{planes.dir}/core"

    def look():
        target = ["-p", str(planes.data.pid)]
        queue_pair, _ = compare(lambda: gdb(*target, commands=[*EVERYTHING, f"gcore {core}"]), planes)
        assert queue_pair["driver"] == "loopback" and int(queue_pair["produced"]) > int(queue_pair["acknowledged"]) > 0, queue_pair
        of_core, _ = compare(lambda: gdb(DATA, core, commands=EVERYTHING), planes)
        assert of_core == queue_pair, of_core
        # The numbers are of an open connection, a closed one, one that does not exist, and an invalid number.
        named = gdb(*target, commands=["sluice connections 0.0", "sluice connections 0.3", "sluice slots 0.99"])
        assert [row["connection"] for row in table(named, ["connection"])] == ["0.0"], named
        assert re.search(r"^0\.3 +Closed", named, re.M) and "There is no connection 0.99. The connections are 0.0 to 0.3." in named, named
        assert "'x' is not the name of a connection. Use REACTOR.CONNECTION" in gdb(*target, commands=["sluice slots x"])

    planes.start()
    try:
        load = planes.load()
        planes.loaded()
        with_client_stopped(planes, load, look)
        assert end(load)["errors"] == 0
    finally:
        planes.stop()
        if os.path.exists(core):
            os.unlink(core)


def packet_sequence_numbers_of_softroce():
    planes = OverMemif(*PROGRAMS)

    def look():
        queue_pair, shown = compare(lambda: gdb("-p", str(planes.data.pid), commands=EVERYTHING), planes)
        assert queue_pair["driver"] == "softroce", queue_pair
        first, next_psn, end_psn = (int(queue_pair[name]) for name in ("unacked-psn", "next-psn", "end-psn"))
        # At most as many packets as the work requests have are outstanding, and some are not acknowledged.
        assert 0 < end_psn - first & 0xffffff <= int(queue_pair["sends"]) and next_psn - first & 0xffffff <= end_psn - first & 0xffffff, queue_pair
        assert int(queue_pair["queue-pair"]) == shown["queue_pair"] and int(queue_pair["msn"]) == shown["calls"] & 0xffffff, (queue_pair, shown)

    planes.start()
    try:
        load = planes.load("--seconds", str(common.PATIENCE_S), "--depth", "64", "null")
        planes.loaded()
        with_client_stopped(planes, load, look)
        end(load)
    finally:
        planes.stop()


def request_slots_of_a_gateway_whose_server_does_not_answer():
    far = OverLoopback(EXPORT)
    port = free_port()
    near = OverLoopback(f'[reverse]\nenabled = true\nlisten_address = "127.0.0.1"\nlisten_port = {port}\nserver = "192.0.2.1"\nconnections = 2\ncall_timeout_s = 120\n',
                        far.fabric)
    xid = 0x51071CE
    call = struct.pack(">10I", xid, 0, 2, 100003, 3, 0, 0, 0, 0, 0)  # NULL of NFS version 3
    far.start()
    try:
        near.start_control()
        near.start_data()
        near.wait("both planes", lambda: (s := near.ctl("status")) and s["data_plane"]["alive"] and near.ctl("reverse"))
        with near.wait("the gateway", lambda: connected(port)) as client:
            client.sendall(struct.pack(">I", 0x80000000 | len(call)) + call)
            assert client.recv(8)[4:] == struct.pack(">I", xid)
            far.data.send_signal(signal.SIGSTOP)
            try:
                near.wait("all threads of the server to stop", lambda: stopped(far.data.pid))
                client.sendall(struct.pack(">I", 0x80000000 | len(call)) + call)
                printed = near.wait("a request", lambda: "AwaitingReply" in (text := gdb(
                    "-p", str(near.data.pid), commands=["sluice requests", "sluice connections"])) and text)
                request, = table(printed, ["connection", "slot", "state"])
                assert request["xid"] == f"{xid:#010x}" and request["payload-bytes"] == str(len(call)), request
                assert request["sequence"] == "2" and request["deadline"].endswith(" ms"), request
                connection, = table(printed, ["connection", "state", "peer"])
                assert connection["requests"] == "1" and connection["connection"] == request["connection"], connection
            finally:
                far.data.send_signal(signal.SIGCONT)
    finally:
        near.stop()
        far.stop()


def stopped(pid):
    """A signal stops each thread separately, so calls are answered until the last thread has received it."""
    def state(thread):
        with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0]

    return all(state(thread) == "T" for thread in os.listdir(f"/proc/{pid}/task"))


def connected(port):
    try:
        client = socket.create_connection(("127.0.0.1", port), timeout=common.PATIENCE_S)
    except OSError:
        return None
    return client


def a_probe_stops_with_its_arguments():
    if "stapsdt" not in subprocess.run(["readelf", "-n", DATA], capture_output=True, text=True, check=True).stdout:
        raise Skipped("This build has no probes: run deploy/install-packages.sh product and configure it again.")
    planes = OverLoopback(EXPORT)
    planes.start()
    try:
        load = planes.load()
        planes.loaded()
        printed = gdb("-p", str(planes.data.pid), commands=[
            "break -probe-stap sluice:reply_posted", "continue", 'printf "%d arguments\\n", $_probe_argc',
            'printf "%d %#010x %d %d\\n", $_probe_arg0, $_probe_arg1, $_probe_arg2, $_probe_arg3', "sluice slots 0.0"])
        assert "4 arguments" in printed, printed
        connection, xid, slot, size = re.search(r"^(\d+) (0x\w+) (\d+) (\d+)$", printed, re.M).groups()
        stopped_in = [row for row in table(printed, ["connection", "slot", "state"]) if row["slot"] == slot]
        assert connection == "0" and [(row["xid"], row["state"]) for row in stopped_in] == [(xid, "Executing")], printed
        assert size == stopped_in[0]["reply-bytes"] == "24", printed
        assert end(load)["errors"] == 0
    finally:
        planes.stop()


def a_member_that_is_gone_leaves_a_sentence_and_the_other_columns():
    planes = OverLoopback(EXPORT)
    renamed = f"{planes.dir}/renamed.py"
    with open(SCRIPT, encoding="utf-8") as file:
        text = file.read()
    for name in ("calls_", "cores_"):
        assert f'"{name}"' in text, name
    planes.start()
    try:
        load = planes.load()
        planes.loaded()
        target = ["-p", str(planes.data.pid)]
        for name, sentence in (("calls_", "sluice::rpcrdma::Responder has no member 'gone_'"), ("cores_", "sluice::process::DataPlane has no member 'gone_'")):
            with open(renamed, "w", encoding="utf-8") as file:
                file.write(text.replace(f'"{name}"', '"gone_"'))
            printed = gdb(*target, commands=["sluice connections"], script=renamed)
            assert printed.count(f"{sentence}: this sluice-gdb.py is for another version of the program.") == 1, printed
            assert "Traceback" not in printed, printed
            if name == "calls_":
                connection, = table(printed, ["connection", "state"])
                assert connection["calls"] == "?" and connection["state"] == "Open" and int(connection["credits"]) > 0, connection
        end(load)
    finally:
        planes.stop()


def a_program_without_the_anchor_or_without_a_process_gets_a_sentence():
    assert "this is not sluice-dataplane, or its symbols are missing" in gdb(PROGRAMS[2], commands=["sluice slots"])
    assert "The data plane has no reactors now" in gdb(DATA, commands=["sluice slots"])


need("gdb", "readelf")
sys.exit(run_tap([(f.__name__, f) for f in (
    a_live_data_plane_and_its_core_show_what_sluicectl_shows, packet_sequence_numbers_of_softroce,
    request_slots_of_a_gateway_whose_server_does_not_answer, a_probe_stops_with_its_arguments,
    a_member_that_is_gone_leaves_a_sentence_and_the_other_columns,
    a_program_without_the_anchor_or_without_a_process_gets_a_sentence)]))
