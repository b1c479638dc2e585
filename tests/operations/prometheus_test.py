#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus server scrapes Sluice under load; rules, dashboard and reference match the metrics it gets. Speaks TAP.

prometheus_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH SLUICE_REFERENCE DEPLOY"""
import glob
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from planes import PATIENCE_S, Planes, end, finish, free_port, need, run_tap
from prometheus_server import Prometheus, of_gateways, samples, total

CONTROL, DATA, CTL, BENCH, REFERENCE, DEPLOY = sys.argv[1:7]
MAX_SERIES = 5000
METRIC = r"\b(?:sluice|process)_[a-z0-9_]*[a-z0-9]\b"

planes = Planes(CONTROL, DATA, CTL, BENCH, '[[client_class]]\nname = "lab"\nclients = ["192.0.2.0/24"]\nweight = 2\n')
server = None


def scrape():
    return server.exposition()


def rules_and_configuration_are_what_promtool_wants():
    for command in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"], ["check", "config", "sluice.yml"]):
        done = subprocess.run(["promtool", *command], cwd=f"{DEPLOY}/prometheus", capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    with open(f"{DEPLOY}/prometheus/rules.yml", encoding="utf-8") as rules, open(f"{DEPLOY}/prometheus/rules_test.yml", encoding="utf-8") as tests:
        tested = set(re.findall(r"alertname: (\w+)", tests.read()))
        assert tested == set(re.findall(r"alert: (\w+)", rules.read())), "an alert without a test"


def reference():
    """Returns the page of all metrics. The build installs it as metrics-reference.md."""
    return subprocess.run([REFERENCE, "metrics"], capture_output=True, text=True, check=True).stdout


def documented():
    return set(re.findall(r"^\| `(\w+)` \| (?:counter|gauge|histogram)", reference(), re.M))


def the_reference_has_all_metrics_of_pages_rules_and_dashboard():
    known = documented()
    named = {}
    for name in (*glob.glob(f"{DEPLOY}/docs/*.md"), f"{DEPLOY}/prometheus/rules.yml", f"{DEPLOY}/grafana/sluice.json"):
        with open(name, encoding="utf-8") as file:
            for metric in re.findall(METRIC, file.read()):
                named.setdefault(re.sub(r"_(bucket|sum|count)$", "", metric), os.path.basename(name))
    assert {"sluice_plane_up", "sluice_rpc_latency_seconds"} <= set(named)
    unknown = {metric: name for metric, name in named.items() if metric not in known}
    assert not unknown, unknown


def a_server_scrapes_under_load_and_counts_what_was_done():
    load = planes.nfs_load()
    planes.wait("load", lambda: total(scrape(), "sluice_rpc_calls_total", procedure="write") > 1000)
    server.scrapes(2)  # rates need several samples
    done = end(load)
    assert done["errors"] == 0, done
    # Use of exports is published some times a second.
    planes.wait("the export's calls", lambda: total(text := scrape(), "sluice_export_calls_total", procedure="write")
                == total(text, "sluice_rpc_calls_total", procedure="write", status="success"))
    text = scrape()
    # All calls that the client counted are in its class, and none failed.
    counted = total(text, "sluice_rpc_calls_total", **{"class": "lab"}, status="success")
    assert counted >= done["operations"]
    server.scrapes(1)
    assert server.number('sum(sluice_rpc_calls_total{class="lab", status="success"})') == counted
    assert total(text, "sluice_rpc_calls_total", **{"class": "default"}) == 0
    assert total(text, "sluice_rpc_latency_seconds_count", procedure="read") == total(text, "sluice_rpc_calls_total", procedure="read")
    assert total(text, "sluice_export_calls_total", procedure="write") == total(text, "sluice_rpc_calls_total", procedure="write", status="success")
    # 64 KiB goes by RDMA, in both directions.
    assert total(text, "sluice_bytes_total", path="ddp", direction="out") >= total(text, "sluice_export_read_bytes_total") * 0.99
    assert total(text, "sluice_bytes_total", path="ddp", direction="in") >= total(text, "sluice_export_written_bytes_total") * 0.99
    assert total(text, "sluice_roce_packets_sent_total") > 0
    slots = total(text, "sluice_call_slots")
    assert slots == 32 * 64, slots


def page(path):
    """Returns (status, text) of a page of the metrics port."""
    try:
        with urllib.request.urlopen(f"http://{planes.metrics}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def probes_are_told_whether_it_lives_and_is_ready_and_why_not():
    assert page("/healthz") == (200, "alive\n")
    planes.wait("readiness", lambda: page("/readyz") == (200, "ready\n"))
    planes.ctl("drain", "--no-wait")
    status, why = page("/readyz")
    assert status == 503 and "draining" in why, (status, why)
    assert page("/healthz")[0] == 200
    planes.ctl("drain", "--stop")
    assert page("/readyz")[0] == 200
    planes.data.terminate()
    planes.data.wait()
    status, why = page("/readyz")
    assert status == 503 and "start sluice-dataplane" in why, (status, why)
    assert page("/healthz")[0] == 200, "the control plane is well without it"
    planes.start_data()
    planes.up()
    planes.wait("readiness again", lambda: page("/readyz")[0] == 200)
    with socket.create_connection(planes.metrics.split(":")) as client:
        client.sendall(b"HEAD /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n\r\n"), answer
    assert "sluice_plane_up" in scrape()


def each_plane_measures_its_process():
    for plane, process in (("control", planes.control), ("data", planes.data)):
        def value(name):
            return total(scrape(), name, plane=plane)

        planes.wait("a measurement", lambda: value("process_cpu_seconds_total") > 0)
        spent_s = value("process_cpu_seconds_total")
        planes.wait("more processor time", lambda: value("process_cpu_seconds_total") > spent_s)
        with open(f"/proc/{process.pid}/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        assert 0.5 < value("process_resident_memory_bytes") / resident < 2, resident
        assert value("process_virtual_memory_bytes") > value("process_resident_memory_bytes")
        # The connection of the scrape is one of the descriptors.
        planes.wait("the count of descriptors", lambda: abs(value("process_open_fds") - len(os.listdir(f"/proc/{process.pid}/fd"))) <= 2)
        assert value("process_max_fds") > value("process_open_fds")
        started = value("process_start_time_seconds")
        assert abs(started - os.stat(f"/proc/{process.pid}").st_mtime) < 60 and started == value("process_start_time_seconds"), started


def the_busiest_clients_have_series_of_their_own():
    load = planes.nfs_load()
    of = {"client": "192.0.2.2"}
    before = total(scrape(), "sluice_client_calls_total", **of)
    planes.wait("the client's own series", lambda: total(scrape(), "sluice_client_calls_total", **of) > before + 1000)
    text = scrape()
    mean_s = total(text, "sluice_client_time_seconds_total", **of) / total(text, "sluice_client_calls_total", **of)
    assert 0 < mean_s < 1, mean_s
    assert {labels["client"] for labels, _ in samples(text, "sluice_client_calls_total")} == {"192.0.2.2", "others"}
    assert samples(text, "sluice_oldest_call_seconds")
    end(load)
    assert total(scrape(), "sluice_client_calls_total") <= total(scrape(), "sluice_rpc_calls_total")
    for direction in ("in", "out"):
        mine = total(text, "sluice_client_bytes_total", direction=direction, **of)
        assert 1000 * 40 < mine <= total(scrape(), "sluice_bytes_total", direction=direction), (direction, mine)


def losses_of_the_journal_are_counted():
    counts = planes.ctl("status")["events"]
    assert counts["recorded"] > 0
    planes.wait("the same counts", lambda: {labels["event"]: value for labels, value in samples(scrape(), "sluice_events_total")}
                == planes.ctl("status")["events"])


def a_client_of_the_admin_socket_that_does_not_read_is_logged_and_counted():
    deaf = []
    request = b'{"jsonrpc":"2.0","id":1,"method":"status"}\n'
    for _ in range(32):  # the maximum number, each with more to read than a socket buffer holds
        deaf.append(socket.socket(socket.AF_UNIX))
        deaf[-1].connect(planes.socket)
        deaf[-1].sendall(100 * request)

    def one_more_is_let_in():
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(planes.socket)
            time.sleep(0.1)
        return total(scrape(), "sluice_admin_total", event="clients_cut_off") > 0
    planes.wait("one is cut off", one_more_is_let_in)
    assert f"A client of the admin socket (process {os.getpid()}, user {os.getuid()}) was disconnected" in planes.text_of_log()
    for client in deaf:
        client.close()
    assert planes.wait("status", lambda: planes.ctl("status"))["admin"]["clients_cut_off"] > 0


def metrics_are_what_promtool_wants():
    done = subprocess.run(["promtool", "check", "metrics"], input=scrape(), capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr.strip(), done.stdout + done.stderr


def only_documented_series_and_not_too_many():
    known = documented()
    text = scrape()
    shown = set(re.findall(r"^# TYPE (\w+)", text, re.M))
    assert shown <= known, shown - known
    # The reference has a table of the values of some labels.
    tables = {(metric, label): set(re.findall(r"^\| `(\w+)` \|", rows, re.M))
              for label, metric, rows in re.findall(r"^## (\w+) of (\w+)\n(.*?)(?=^## |\Z)", reference(), re.M | re.S)}
    assert len(tables) == 4, tables.keys()
    for (metric, label), values in tables.items():
        exported = {labels[label] for labels, _ in samples(text, metric)}
        assert exported and exported <= values, (metric, exported - values)
    series = [line for line in text.splitlines() if line and line[0] != "#"]
    assert len(series) < MAX_SERIES, len(series)
    assert len(series) == len(set(line.rsplit(" ", 1)[0] for line in series)), "a series twice"


def latency_buckets_are_cumulative_and_end_in_the_count():
    text = scrape()
    by_procedure = {}
    for labels, value in samples(text, "sluice_rpc_latency_seconds_bucket"):
        by_procedure.setdefault((labels["class"], labels["program"], labels["procedure"]), []).append((float(labels["le"]), value))
    assert by_procedure
    for (_, program, procedure), buckets in by_procedure.items():
        assert buckets == sorted(buckets) and [v for _, v in buckets] == sorted(v for _, v in buckets)
        assert buckets[-1][1] == total(text, "sluice_rpc_latency_seconds_count", program=program, procedure=procedure)


def every_query_of_the_dashboard_returns_data():
    load = planes.nfs_load()
    planes.loaded()
    server.scrapes(3)
    empty = server.without_data(DEPLOY, lambda expression: not of_gateways(expression))
    end(load)
    assert not empty, "\n".join(empty)


def all_alerts_are_loaded_and_none_fires():
    rules = [rule for group in server.api("rules")["groups"] for rule in group["rules"]]
    assert rules and all(rule["health"] == "ok" for rule in rules), rules
    firing = [rule["name"] for rule in rules if rule.get("state") == "firing"]
    assert not firing, firing


def slow_and_many_scrapers_disturb_nobody():
    host, port = planes.metrics.split(":")
    slow = []
    for _ in range(32):
        client = socket.create_connection((host, int(port)))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + (b"\r\n" if len(slow) % 2 else b""))
        slow.append(client)
    load = planes.load("--seconds", "1", "--depth", "16", "null")
    assert planes.ctl("status")["data_plane"]["alive"]
    assert finish(load)["operations"] > 0
    assert planes.ctl("status")["data_plane"]["alive"]
    for client in slow:
        client.close()
    deadline = time.monotonic() + PATIENCE_S
    while True:  # a client that keeps its connection without a request is disconnected
        try:
            assert "sluice_plane_up" in scrape()
            return
        except OSError:
            assert time.monotonic() < deadline, "metrics are no longer served"


def main():
    global server
    need("prometheus", "promtool")
    planes.start()
    server = Prometheus(planes.run, f"{planes.dir}/prometheus", DEPLOY, planes.metrics, f"127.0.0.1:{free_port()}")
    try:
        return run_tap([(f.__name__, f) for f in (
            rules_and_configuration_are_what_promtool_wants, the_reference_has_all_metrics_of_pages_rules_and_dashboard,
            a_server_scrapes_under_load_and_counts_what_was_done, metrics_are_what_promtool_wants,
            each_plane_measures_its_process, losses_of_the_journal_are_counted,
            a_client_of_the_admin_socket_that_does_not_read_is_logged_and_counted, the_busiest_clients_have_series_of_their_own,
            only_documented_series_and_not_too_many, latency_buckets_are_cumulative_and_end_in_the_count,
            every_query_of_the_dashboard_returns_data, all_alerts_are_loaded_and_none_fires,
            probes_are_told_whether_it_lives_and_is_ready_and_why_not,
            slow_and_many_scrapers_disturb_nobody)])
    finally:
        server.process.terminate()
        server.process.wait()
        planes.stop()


sys.exit(main())
