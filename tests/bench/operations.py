# SPDX-License-Identifier: Apache-2.0
"""Figures of operation: many connections, the control plane's restart, the price of being looked at."""
import json
import os
import socket
import statistics
import subprocess
import threading
import time
import urllib.request

from planes import MemifPlanes, resident_mib

RUNS = 5
MANY = 10000
TRANSPORT = f"max_connections = {MANY + 10}\ncredits = 4"


def say(figure, value, unit, baseline, ratio, goal):
    print(json.dumps({"figure": figure, "value": round(value, 3), "unit": unit, "baseline": round(baseline, 3),
                      "ratio": round(ratio, 3), "goal": goal}), flush=True)


def simulate_peers(build, planes, count):
    done = subprocess.run([f"{build}/tests/bench/simulated_peers", planes.name, str(count), "4"], capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["made"] == count, done


def ask(path, method):
    """One question to the admin socket, or None while nobody answers."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(path)
            client.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method}).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                part = client.recv(65536)
                if not part:
                    return None
                answer += part
            return json.loads(answer)["result"]
    except OSError:
        return None


def idle_connections(build):
    """Connections that one reactor holds without a call: memory of each, while another client is served. Baseline: what
    that client gets when there are no others."""
    planes = MemifPlanes(build, TRANSPORT, f"max_connections_per_client = {MANY + 10}\nmax_credits = 4")
    try:
        alone = statistics.median(planes.load("--depth", "4", "null")["operations_per_s"] for _ in range(RUNS))
        empty = resident_mib(planes.data.pid)
        planes.control.kill()
        planes.control.wait()
        simulate_peers(build, planes, MANY)
        planes.start_control()
        among = statistics.median(planes.load("--depth", "4", "null")["operations_per_s"] for _ in range(RUNS))
        full = resident_mib(planes.data.pid)
        held = ask(planes.socket, "status")["connections"]
    finally:
        planes.stop()
    say("idle_connections", held, "connections", MANY, among / alone, MANY)
    say("idle_connection_bytes", (full - empty) * 1048576 / MANY, "bytes resident", empty * 1048576 / MANY, full / empty, None)


def cp_restart_ms(build):
    """From the start of a new control plane's process until it has taken over all connections, and administrators, MOUNT
    and metrics are answered. Baseline: the same with an empty table."""
    def restart(planes, connections):
        planes.control.kill()
        planes.control.wait()
        began = time.monotonic()
        planes.start_control()
        while True:
            status = ask(planes.socket, "status")
            if status and status["control_plane"]["alive"] and status["connections"] == connections:
                break
            time.sleep(0.001)
        urllib.request.urlopen("http://127.0.0.1:19464/metrics", timeout=5).read()
        with socket.create_connection(("127.0.0.1", 20049), timeout=5):
            pass
        return (time.monotonic() - began) * 1000

    planes = MemifPlanes(build, TRANSPORT, f"max_connections_per_client = {MANY + 10}\nmax_credits = 4", "127.0.0.1:19464")
    try:
        empty = statistics.median(restart(planes, 0) for _ in range(RUNS))
        planes.control.kill()
        planes.control.wait()
        simulate_peers(build, planes, MANY)
        full = statistics.median(restart(planes, MANY) for _ in range(RUNS))
    finally:
        planes.stop()
    say("cp_restart_ms", full, "ms", empty, full / empty, 500)


def scrape_cost_ratio(build):
    """NULL calls over memif while metrics are scraped every second, against the same without; turn by turn."""
    planes = MemifPlanes(build, metrics="127.0.0.1:19464")
    stop, scraping = threading.Event(), threading.Event()

    def scraper():
        os.sched_setaffinity(0, {0})  # this thread; the reactor polls elsewhere
        while not stop.wait(1):
            if scraping.is_set():
                urllib.request.urlopen("http://127.0.0.1:19464/metrics", timeout=5).read()

    thread = threading.Thread(target=scraper)
    thread.start()
    rates = {False: [], True: []}
    try:
        for _ in range(RUNS):
            for scraped in (False, True):
                (scraping.set if scraped else scraping.clear)()
                done = subprocess.run(planes.over_memif("--seconds", "3", "--depth", "64", "null"), capture_output=True, text=True, check=True)
                rates[scraped].append(json.loads(done.stdout)["operations_per_s"])
    finally:
        stop.set()
        thread.join()
        planes.stop()
    without, scraped = statistics.median(rates[False]), statistics.median(rates[True])
    say("scrape_cost_ratio", scraped, "RPC/s", without, scraped / without, None)


def policy_10k_ms(build):
    """Recomputation of the grants of 10,000 connections that want more than there is. Baseline: of 1,000."""
    done = subprocess.run([f"{build}/tests/bench/policy"], capture_output=True, text=True, check=True)
    figure = json.loads(done.stdout)
    say("policy_10k_ms", figure["ms_10000"], "ms", figure["ms_1000"], figure["ms_10000"] / figure["ms_1000"], 10)


OPERATIONS = {"idle_connections": idle_connections, "cp_restart_ms": cp_restart_ms, "policy_10k_ms": policy_10k_ms,
              "scrape_cost_ratio": scrape_cost_ratio}
