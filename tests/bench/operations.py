# SPDX-License-Identifier: Apache-2.0
"""Figures of operation: many connections, restart of the control plane, cost of monitoring, memory."""
import json
import os
import re
import socket
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request

from pairs import Pair, alternate, placement_probe, say
from planes import MemifPlanes, ask, planes_of_tests, resident_mib

MANY = 10000
# Simulated peers acknowledge no probes, so probes are disabled.
TRANSPORT = f"max_connections = {MANY + 10}\ncredits = 4\nprobe_after_s = 0"
POLICY = f"max_connections_per_client = {MANY + 10}\nmax_credits = 4"
STOP_RUNS = 5
MEMORY_RUNS = 3  # resident memory does not depend on the speed of the machine


def simulate_peers(build, planes, count):
    """Sets up connections in a data plane, with the state that a restarted control plane takes over."""
    planes.control.kill()
    planes.control.wait()
    done = subprocess.run([f"{build}/tests/bench/simulated_peers", planes.name, str(count), "4"], capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["made"] == count, done
    planes.start_control()


def idle_connections(build):
    """Compares NULL calls of one client of a reactor that has many idle connections with those of a data plane that has none. The
    data plane that is not measured is paused. Also measures the memory of each connection."""
    with MemifPlanes(build, TRANSPORT, POLICY) as crowded, MemifPlanes(build, TRANSPORT, POLICY) as empty, \
            placement_probe(build) as probe:
        def null_of(planes, other):
            return other.beside(lambda: planes.load("--depth", "4", "null", seconds=0.3)["operations_per_s"])

        empty.load("--depth", "4", "null")
        crowded.load("--depth", "4", "null")
        before = resident_mib(crowded.data.pid)
        simulate_peers(build, crowded, MANY)
        crowded.up()
        memory = resident_mib(crowded.data.pid) - before
        both_paused = crowded.beside(empty.beside(probe.side("round_trip_ns", 0)))
        pairs, dropped = alternate(null_of(crowded, empty), null_of(empty, crowded), both_paused)
        held = ask(crowded.socket, "status")["connections"]
    say("idle_connections", pairs, dropped, "RPC/s", held=held, held_goal=MANY, bytes_each=round(memory * 1048576 / MANY))


def cp_restart_ms(build):
    """Measures the time from the start of a new control plane until it has taken over 10,000 connections and answers administrators,
    MOUNT and requests for metrics. The baseline is a restart with an empty connection table."""
    def restart(planes, metrics, connections):
        planes.control.kill()
        planes.control.wait()
        began = time.monotonic()
        planes.start_control()
        while True:
            status = ask(planes.socket, "status")
            if status and status["control_plane"]["alive"] and status["connections"] == connections:
                break
            time.sleep(0.001)
        urllib.request.urlopen(f"http://{metrics}/metrics", timeout=5).read()
        with socket.create_connection(("127.0.0.1", int(planes.mount_port())), timeout=5):
            pass
        return (time.monotonic() - began) * 1000

    ports = [f"127.0.0.1:{planes_of_tests.free_port()}" for _ in range(2)]
    with MemifPlanes(build, TRANSPORT, POLICY, ports[0]) as full, MemifPlanes(build, TRANSPORT, POLICY, ports[1]) as empty:
        simulate_peers(build, full, MANY)
        full.up()
        pairs, dropped = alternate(empty.beside(lambda: restart(full, ports[0], MANY)), full.beside(lambda: restart(empty, ports[1], 0)))
    say("cp_restart_ms", pairs, dropped, "ms", 29, "lower", value_goal=100)


def scrape_cost_ratio(build):
    """Compares NULL calls over memif while metrics are scraped every second with those while they are not."""
    address = f"127.0.0.1:{planes_of_tests.free_port()}"
    stop = threading.Event()

    def scraper():
        os.sched_setaffinity(0, {0})  # moves this thread off the reactor's processor
        while not stop.wait(1):
            urllib.request.urlopen(f"http://{address}/metrics", timeout=5).read()

    with MemifPlanes(build, metrics=address) as planes, placement_probe(build) as probe:
        def null():
            return planes.load("--depth", "64", "null", seconds=1.2)["operations_per_s"]

        def scraped():
            stop.clear()
            thread = threading.Thread(target=scraper)
            thread.start()
            result = null()
            stop.set()
            thread.join()
            return result

        pairs, dropped = alternate(scraped, null, planes.beside(probe.side("round_trip_ns", 0)), most=30)
    say("scrape_cost_ratio", pairs, dropped, "RPC/s", 0.99)


def slow_ring_cost_ratio(build):
    """Compares NULL calls over memif while calls of a millisecond are recorded as slow with those while none are recorded."""
    with MemifPlanes(build) as planes, placement_probe(build) as probe:
        with open(planes.config, encoding="utf-8") as file:
            text = file.read()

        def null_with_limit(limit_ms):
            def side():
                planes.write_config(f"{text}[observability]\nslow_call_ms = {limit_ms}\n")
                planes.ctl("config", "reload")
                return planes.load("--depth", "64", "null", seconds=1.2)["operations_per_s"]
            return side

        pairs, dropped = alternate(null_with_limit(1), null_with_limit(0), planes.beside(probe.side("round_trip_ns", 0)), most=30)
    say("slow_ring_cost_ratio", pairs, dropped, "RPC/s", 0.99)


EVENTS_PER_S = 100
REFUSED_EXPORT = """
[[export]]
path = "/none"
clients = ["192.0.2.77"]
"""


def mount_of_what_is_refused(xid):
    """Returns a MOUNT call (RFC 1813, appendix I) for an export that is denied to this client. Each call causes an event."""
    path = b"/none"
    return struct.pack(">10I", xid, 0, 2, 100005, 3, 1, 0, 0, 0, 0) + struct.pack(">I", len(path)) + path + bytes(-len(path) % 4)


def journal_cost_ratio(build):
    """Compares NULL calls over memif while the journal of events is written to a file with those while it is not. Mounts are denied in
    both cases. The data plane that is not measured is paused."""
    with tempfile.TemporaryDirectory() as folder, MemifPlanes(build, more=f'[events]\nfile = "{folder}/events"{REFUSED_EXPORT}') as kept, \
            MemifPlanes(build, more=REFUSED_EXPORT) as unkept, placement_probe(build) as probe:
        def null_of(planes, other):
            port, stop = int(planes.mount_port()), threading.Event()

            def deny():
                os.sched_setaffinity(0, {0})  # moves this thread off the reactor's processor
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                    xid = 0
                    while not stop.wait(1 / EVENTS_PER_S):
                        xid += 1
                        client.sendto(mount_of_what_is_refused(xid), ("127.0.0.1", port))

            def side():
                stop.clear()
                thread = threading.Thread(target=deny)
                thread.start()
                result = planes.load("--depth", "64", "null", seconds=1.2)["operations_per_s"]
                stop.set()
                thread.join()
                return result
            return other.beside(side)

        both_paused = kept.beside(unkept.beside(probe.side("round_trip_ns", 0)))
        pairs, dropped = alternate(null_of(kept, unkept), null_of(unkept, kept), both_paused, most=30)
        with open(f"{folder}/events", encoding="utf-8") as file:
            written = sum('"mount_denied"' in line for line in file)
    assert written > 0, "no MOUNT was refused"
    say("journal_cost_ratio", pairs, dropped, "RPC/s", 0.99, events_written=written)


def remove_shared(*names):
    for path in (f"/dev/shm/{name}" for name in names):
        if os.path.exists(path):
            os.unlink(path)


def dataplane_rss_mib(build):
    """Measures the resident memory of an idle data plane with the default configuration, and that of this Python process."""
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        name = f"sluice-bench-{os.getpid()}"
        text = open("deploy/sluice.toml", encoding="utf-8").read()
        for key, value in (("segment", name), ("loopback_path", f"/dev/shm/{name}-loopback"), ("socket", f"{folder}/admin")):
            text = re.sub(rf'^{key} = ".*?"', f'{key} = "{value}"', text, flags=re.M)
        text = text.replace('address = "127.0.0.1:9464"', 'address = ""').replace("enabled = true ", "enabled = false ")
        config = f"{folder}/sluice.toml"
        with open(config, "w", encoding="utf-8") as file:
            file.write(text)
        for _ in range(MEMORY_RUNS):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            control = subprocess.Popen([f"{build}/controlplane/sluice-controlplane", "--config", config], **quiet)
            data = subprocess.Popen([f"{build}/sluice-dataplane", "--segment", name], **quiet)
            for _ in range(300):
                done = subprocess.run([f"{build}/cli/sluicectl", "--socket", f"{folder}/admin", "--json", "exports"],
                                      capture_output=True, text=True)
                if done.returncode == 0 and json.loads(done.stdout):
                    break
                time.sleep(0.1)
            time.sleep(1)
            pairs.append(Pair("memory", resident_mib(data.pid), resident_mib(os.getpid())))
            for process in (data, control):
                process.terminate()
                process.wait()
        remove_shared(f"{name}.control", f"{name}.data", f"{name}-loopback")
    say("dataplane_rss_mib", pairs, 0, "MiB", better="lower", value_goal=256)


def time_of_stop_ms(process):
    """Sends SIGTERM, and returns the time until the process has exited."""
    began = time.monotonic()
    process.terminate()
    assert process.wait(planes_of_tests.PATIENCE_S) == 0, process.args
    return (time.monotonic() - began) * 1000


def stop_ms(build):
    """Measures a graceful stop of a data plane on memif, and of one with the loopback driver; also the slowest stop of a control plane."""
    drivers = {"memif": lambda folder: f'driver = "softroce"\nethdev = "{planes_of_tests.memif_ethdev(folder, "server")}"\naddresses = ["192.0.2.1/24"]',
               "loopback": lambda folder: f'driver = "loopback"\nloopback_path = "{folder}/loopback"'}
    controls = []

    def stop(driver):
        with tempfile.TemporaryDirectory() as folder:
            name = f"sluice-bench-{os.getpid()}"
            with open(f"{folder}/sluice.toml", "w", encoding="utf-8") as file:
                file.write(f'segment = "{name}"\n[device]\n{drivers[driver](folder)}\n[admin]\nsocket = "{folder}/admin"\n[metrics]\naddress = ""\n'
                           '[mount]\nport = 0\nrpcbind = false\n[[export]]\npath = "/export"\nclients = []\n')
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            control = subprocess.Popen([f"{build}/controlplane/sluice-controlplane", "--config", f"{folder}/sluice.toml"], **quiet)
            data = subprocess.Popen([f"{build}/sluice-dataplane", "--segment", name], **quiet)
            until = time.monotonic() + planes_of_tests.PATIENCE_S
            while not (ask(f"{folder}/admin", "status") or {}).get("data_plane", {}).get("alive"):
                assert time.monotonic() < until, "the data plane does not come up"
                time.sleep(0.05)
            took = time_of_stop_ms(data)
            controls.append(time_of_stop_ms(control))
            remove_shared(f"{name}.control", f"{name}.data")
            return took

    pairs = [Pair("stop", stop("memif"), stop("loopback")) for _ in range(STOP_RUNS)]
    say("stop_ms", pairs, 0, "ms", better="lower", value_goal=200, control_plane_ms=round(max(controls), 1))


def conn_idle_bytes(build):
    """Measures the resident memory of a data plane per open connection that has had a few calls. The baseline is the maximum that a
    connection can use, which is its share of the slots' buffers."""
    pairs = []
    connections = 32
    for _ in range(MEMORY_RUNS):
        with MemifPlanes(build) as planes:
            planes.load("--connections", "1", "--depth", "1", "--operations", "100", "null")
            before = resident_mib(planes.data.pid)
            client = subprocess.Popen(planes.over_memif("--connections", str(connections), "--depth", "1", "--seconds", "3", "null"),
                                      stdout=subprocess.DEVNULL)
            planes.wait("all connected", lambda: (ask(planes.socket, "status") or {}).get("connections") == connections)
            time.sleep(1)
            after = resident_mib(planes.data.pid)
            client.wait()
            shares = ("Receive buffers", "reply buffers of call slots", "call slots")
            reserved = sum(part["reserved_bytes"] for part in planes.ctl("memory")["parts"] if part["what"] in shares)
            pairs.append(Pair("memory", (after - before) * 1048576 / (connections - 1), reserved / connections))
    say("conn_idle_bytes", pairs, 0, "bytes", better="lower")


TARGETS = ["tests/bench/placement", "tests/bench/simulated_peers"]
FIGURES = {measure.__name__: measure for measure in (idle_connections, cp_restart_ms, scrape_cost_ratio, slow_ring_cost_ratio, journal_cost_ratio, dataplane_rss_mib,
                                                     conn_idle_bytes, stop_ms)}
