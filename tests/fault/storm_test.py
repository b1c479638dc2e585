#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Both planes are stopped, continued and killed at random under verified load, with two reactors. Speaks TAP.

storm_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH EXACTLY_ONCE DRIVER   (DRIVER: loopback or softroce)

SLUICE_FAULT_SECONDS   duration in seconds; default 20
SLUICE_FAULT_SEED      determines the faults, their order and lengths; printed

The load creates, writes, compares, renames and removes files of names that are used once (exactly_once.cc). Its clients start and end
all the time. When the data plane is killed, its clients lose their connections, and the memory export loses its files. No other error may
occur. Afterwards no file, connection, buffer, call slot or admission is left over."""
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import planes_of_tests  # noqa: E402
from planes_of_tests import PATIENCE_S, Failed, free_port, memif_ethdev, run_tap  # noqa: E402

CONTROL, DATA, CTL, BENCH, EXACTLY_ONCE, DRIVER = sys.argv[1:7]
SECONDS = float(os.environ.get("SLUICE_FAULT_SECONDS", "20"))
SEED = int(os.environ.get("SLUICE_FAULT_SEED", random.randrange(1 << 31)))
LOST = 3  # exit status of a client that lost its connection
# A heartbeat counts as recent for three seconds. A stopped data plane does not acknowledge: RoCE gives up after some seconds.
LONGEST_STOP_S = {"control": 4.5, "data": 4.5 if DRIVER == "loopback" else 1.5}
LATEST_START_S = 1.5  # after a kill
VERSIONS = [1, 2]  # of RPC-over-RDMA


class Planes(planes_of_tests.Planes):
    def __init__(self):
        super().__init__("storm", CONTROL, DATA, CTL, BENCH)
        self.fabric = f"/dev/shm/{self.name}-loopback"
        self.leftovers.append(self.fabric)
        self.port, self.metrics = free_port(), f"127.0.0.1:{free_port()}"
        device = f'driver = "loopback"\nloopback_path = "{self.fabric}"' if DRIVER == "loopback" else \
            f'driver = "softroce"\nethdev = "{memif_ethdev(self.dir, "server")}"\naddresses = ["192.0.2.1/24"]'
        self.write_config(f"""segment = "{self.name}"
log_level = "debug"
[reactor]
count = 2
idle = "backoff"
[transport]
max_connections = 16
[device]
{device}
[memory]
size_mib = 256
[admission]
max_requests_per_second = 10000
max_requests_per_second_per_client = 10000
[policy]
max_connections_per_client = 32
[admin]
socket = "{self.socket}"
[metrics]
address = "{self.metrics}"
[mount]
port = {self.port}
rpcbind = false
[[export]]
path = "/export"
clients = []
root_squash = false
""")

    def scrape(self):
        """Returns the metrics by name with labels."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


class Client:
    """A run of exactly_once."""

    count = 0
    NOTHING = {"operations": 0, "files": 0, "bytes_compared": 0, "errors": 0, "lost": ""}

    def __init__(self, planes, seconds, connections, version):
        Client.count += 1
        self.started = time.monotonic()
        self.ended = None
        self.told_to_end = False
        where = ["--fabric", planes.fabric] if DRIVER == "loopback" else \
            ["--device", "softroce", "--ethdev", memif_ethdev(planes.dir, "client"), "--address", "192.0.2.2/24", "--server", "192.0.2.1"]
        self.process = subprocess.Popen([EXACTLY_ONCE, *where, "--mount-port", str(planes.port), "--seconds", str(seconds), "--connections",
                                         str(connections), "--rpcrdma", str(version), "--seed", str(Client.count)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def has_ended(self):
        if self.process.poll() is not None and self.ended is None:
            self.ended = time.monotonic()
        return self.ended is not None

    def end(self):
        if self.process.poll() is None:
            self.told_to_end = True
            self.process.terminate()
        self.process.wait(timeout=PATIENCE_S)

    def judge(self, outages):
        """Returns what the client has done, or raises Failed. A connection may be lost, or fail to open, while the data plane is down."""
        self.has_ended()
        out, err = self.process.communicate()
        excused = any(self.started <= outage.end and outage.begin <= self.ended for outage in outages)
        if excused and self.process.returncode == -signal.SIGKILL:
            return self.NOTHING
        if self.told_to_end and self.process.returncode == -signal.SIGTERM:
            # SIGTERM came before the program handled it, or after the program had printed its result.
            done = json.loads(out) if out else self.NOTHING
            if done["errors"] == 0 and (excused or not done["lost"]):
                return done
        if self.process.returncode != 0 and not (self.process.returncode == LOST and excused):
            raise Failed(f"a client of {self.ended - self.started:.1f} s ended with {self.process.returncode}, the data plane "
                         f"{'was' if excused else 'was not'} killed meanwhile:\n{out}{err}")
        return json.loads(out)


class Outage:
    """Time from a kill of the data plane until all its clients have ended and another data plane is up."""

    def __init__(self):
        self.begin, self.end = time.monotonic(), math.inf


class Storm:
    def __init__(self, planes):
        self.planes = planes
        self.random = random.Random(SEED)
        self.clients = []
        self.outages = []  # of the data plane
        self.faults = []
        self.done = {"operations": 0, "files": 0, "bytes_compared": 0}
        self.began = time.monotonic()

    def say(self, text):
        self.faults.append(f"{time.monotonic() - self.began:8.2f} {text}")

    def process(self, plane):
        return self.planes.control if plane == "control" else self.planes.data

    # --- Load

    def tend(self):
        """Judges the clients that have ended, and starts new ones."""
        for client in [client for client in self.clients if client.has_ended()]:
            self.clients.remove(client)
            self.judge(client)
        # Each of the two ends of a memif is one process.
        wanted = 3 if DRIVER == "loopback" else 1
        while len(self.clients) < wanted:
            self.clients.append(Client(self.planes, self.random.uniform(1, 12), self.random.randint(1, 6),
                                       self.random.choice(VERSIONS)))

    def judge(self, client):
        done = client.judge(self.outages)
        for name in self.done:
            self.done[name] += done[name]

    def rest(self, seconds):
        end = time.monotonic() + seconds
        while True:
            self.tend()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.1))

    def lives(self, plane):
        if self.process(plane).poll() is not None:
            raise Failed(f"the {plane} plane has ended by itself, with {self.process(plane).returncode}")

    # --- Faults

    def stop_and_continue(self, *planes):
        seconds = min(self.random.choice([0.01, 0.3, 1, LONGEST_STOP_S[plane]]) * self.random.uniform(0.3, 1) for plane in planes)
        self.say(f"stop {' and '.join(planes)} for {seconds:.2f} s")
        for plane in planes:
            self.process(plane).send_signal(signal.SIGSTOP)
        self.rest(seconds)
        for plane in self.random.sample(planes, len(planes)):
            self.process(plane).send_signal(signal.SIGCONT)

    def kill(self, plane):
        self.lives(plane)
        self.say(f"kill {plane}")
        if plane == "data":
            self.outages.append(Outage())
        self.process(plane).kill()
        self.process(plane).wait()
        if plane == "data":
            self.kill_clients()

    def kill_clients(self):
        """Over loopback a client cannot detect that its server's process has died, because no packet is missed."""
        if DRIVER == "loopback":
            for client in self.clients:
                client.process.kill()

    def start(self, plane):
        self.say(f"start {plane}")
        if plane == "data":
            self.planes.start_data()
        else:
            self.planes.start_control()

    def kill_and_start(self, *planes):
        for plane in planes:
            self.kill(plane)
        self.rest(self.random.choice([0, 0.2, LATEST_START_S]) * self.random.random())
        for plane in self.random.sample(planes, len(planes)):
            self.start(plane)

    def kill_while_the_other_is_stopped(self, plane):
        other = "data" if plane == "control" else "control"
        self.process(other).send_signal(signal.SIGSTOP)
        self.say(f"stop {other}")
        self.kill(plane)
        self.start(plane)
        self.rest(self.random.uniform(0, LONGEST_STOP_S["data"] / 2))
        self.process(other).send_signal(signal.SIGCONT)
        self.say(f"continue {other}")

    def fault(self):
        draw = self.random.random()
        if draw < 0.25:
            self.stop_and_continue("control")
        elif draw < 0.50:
            self.stop_and_continue("data")
        elif draw < 0.60:
            self.stop_and_continue("control", "data")
        elif draw < 0.80:
            self.kill_and_start("control")
        elif draw < 0.87:
            self.kill_and_start("data")
        elif draw < 0.90:
            self.kill_and_start("control", "data")
        elif draw < 0.96:
            self.kill_while_the_other_is_stopped("control")
        else:
            self.kill_while_the_other_is_stopped("data")

    def run(self):
        while time.monotonic() < self.began + SECONDS:
            self.fault()
            self.planes.wait("both planes up", self.up)
            if self.outages and self.outages[-1].end == math.inf:
                # Clients that connected until now may have used resources of the previous data plane.
                self.kill_clients()
                self.outages[-1].end = time.monotonic()
            self.rest(self.random.choice([0, 0.5, 3]) * self.random.random())
            self.lives("control")
            self.lives("data")
        self.say("the end")

    def up(self):
        self.tend()
        try:
            done = subprocess.run([CTL, "--socket", self.planes.socket, "--json", "status"], capture_output=True, text=True, timeout=5, check=False)
        except subprocess.TimeoutExpired:
            return False
        if done.returncode != 0:
            return False
        status = json.loads(done.stdout)
        return status["data_plane"]["alive"] and status["data_plane"]["pid"] == self.planes.data.pid and self.planes.ctl("exports")

    # --- Afterwards

    def check_admission(self):
        """Checks, while clients are connected, that as many connections are admitted as exist."""
        def same():
            self.tend()
            status = self.planes.ctl("status")
            shown = len(self.planes.ctl("connections"))
            return shown > 0 and status["admitted_connections"] == shown
        self.planes.wait("as many admitted as there are connections", same)

    def clear(self):
        for client in self.clients:
            client.end()
            self.judge(client)
        self.clients = []

    def check_books(self):
        planes = self.planes
        planes.wait("no connection", lambda: planes.ctl("connections") == [])
        planes.wait("nobody admitted", lambda: planes.ctl("status")["admitted_connections"] == 0)

        def left_over():
            left = [pool for pool in planes.ctl("memory")["shared"] if pool["held"] or pool["waiting"]]
            metrics = planes.scrape()
            slots = {name: value for name, value in metrics.items() if name.startswith("sluice_call_slots{") and 'state="free"' not in name.lower()}
            left += [item for item in slots.items() if item[1]]
            left += [item for item in metrics.items() if item[1] and re.match(r"sluice_(credits_(granted|used)|connections)\{", item[0])]
            return left
        last = []

        def nothing_left():
            last[:] = left_over()
            return not last
        try:
            planes.wait("everything back", nothing_left)
        except AssertionError:
            raise Failed(f"left over: {last}") from None
        failed = [item for item in planes.scrape().items() if item[0].startswith("sluice_invariant_failures_total") and item[1]]
        assert not failed, failed

    def check_service(self):
        """Clients are served as before, with all their credits, and leave no file."""
        # RoCE admits only a few requests of one source at a time.
        many = 12 if DRIVER == "loopback" else 6
        client = Client(self.planes, PATIENCE_S, many, VERSIONS[-1])
        try:
            self.planes.wait(f"{many} connections with calls and all credits", lambda: client.has_ended() or len([
                c for c in self.planes.ctl("connections") or [] if c["calls"] > 50 and c["credits"] == 64]) == many)
        finally:
            client.end()
        client.judge([])
        self.planes.wait("no connection", lambda: self.planes.ctl("connections") == [])
        # Files may remain only if a client lost its connection and could not remove them.
        if not self.outages:
            self.planes.wait("no file", lambda: self.planes.ctl("exports")[0]["files"] <= 1)


def under_a_storm_nothing_is_wrong_and_nothing_is_left(storm):
    storm.run()
    storm.check_admission()
    storm.clear()
    storm.check_books()
    storm.check_service()
    print(f"# {storm.done}, {len(storm.faults)} steps, data plane killed {len(storm.outages)} times")
    assert storm.done["files"] > 0, storm.done


def planes_end_as_they_are_told(planes):
    for name, plane in (("data", planes.data), ("control", planes.control)):
        plane.terminate()
        assert plane.wait(timeout=PATIENCE_S) == 0, f"the {name} plane ended with {plane.returncode}"


def main():
    planes = Planes()
    print(f"# SLUICE_FAULT_SEED={SEED} SLUICE_FAULT_SECONDS={SECONDS:g}")
    storm = Storm(planes)

    def explain():
        return "\n".join([f"SLUICE_FAULT_SEED={SEED}", *storm.faults[-40:], planes.text_of_log()[-8000:]])

    def storm_and_explanation():
        try:
            under_a_storm_nothing_is_wrong_and_nothing_is_left(storm)
        except Exception as error:
            raise Failed(f"{error}\n{explain()}") from error
    try:
        planes.start()
        return run_tap([(f"under_a_storm_nothing_is_wrong_and_nothing_is_left {DRIVER}", storm_and_explanation),
                        (f"planes_end_as_they_are_told {DRIVER}", lambda: planes_end_as_they_are_told(planes))])
    finally:
        for client in storm.clients:
            client.process.kill()
        for plane in (planes.data, planes.control):
            if plane and plane.poll() is None:
                plane.send_signal(signal.SIGCONT)
        planes.stop()


if __name__ == "__main__":
    sys.exit(main())
