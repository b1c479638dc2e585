#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py BUILD [FIGURE...]: prints the figures, one line of JSON each."""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

from operations import OPERATIONS
from planes import MemifPlanes, resident_mib

RUNS = 5


def dataplane_rss_mib(build):
    """Resident memory of an idle data plane with the default configuration, and of an empty process as baseline."""
    values = []
    with tempfile.TemporaryDirectory() as folder:
        name = f"sluice-bench-{os.getpid()}"
        text = open("deploy/sluice.toml", encoding="utf-8").read()
        for key, value in (("segment", name), ("loopback_path", f"/dev/shm/{name}-loopback"), ("socket", f"{folder}/admin")):
            text = re.sub(rf'^{key} = ".*?"', f'{key} = "{value}"', text, flags=re.M)
        text = text.replace('address = "127.0.0.1:9464"', 'address = ""').replace("enabled = true ", "enabled = false ")
        config = f"{folder}/sluice.toml"
        with open(config, "w", encoding="utf-8") as file:
            file.write(text)
        for _ in range(RUNS):
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
            values.append(resident_mib(data.pid))
            for process in (data, control):
                process.terminate()
                process.wait()
        for path in (f"/dev/shm/{name}", f"/dev/shm/{name}-loopback"):
            if os.path.exists(path):
                os.unlink(path)
    value, baseline = statistics.median(values), resident_mib(os.getpid())
    print(json.dumps({"figure": "dataplane_rss_mib", "value": round(value, 1), "unit": "MiB",
                      "baseline": round(baseline, 1), "ratio": round(value / baseline, 2), "goal": 256}))


MEMIF_FIGURES = ("memif_null_rps", "memif_null_p50_us", "memif_read1m_gbps", "memif_write1m_gbps", "memif_null_vs_libtirpc_tcp",
                 "v2_vs_v1_null", "v2_vs_v1_getattr", "v2_vs_v1_8k_call", "v2_vs_v1_8k_reply")


def report(figure, pairs, unit, goal):
    value, baseline = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
    print(json.dumps({"figure": figure, "value": round(value, 2), "unit": unit, "baseline": round(baseline, 2),
                      "ratio": round(value / baseline, 2), "goal": goal}), flush=True)


def memif(build, wanted):
    """softroce over memif between a data plane and sluice-bench, one core each; TCP on loopback as baseline."""
    about = {"memif_null_rps": ("RPC/s", 2e6), "memif_null_p50_us": ("us", 4), "memif_read1m_gbps": ("GB/s", 3),
             "memif_write1m_gbps": ("GB/s", 3), "memif_null_vs_libtirpc_tcp": ("RPC/s", 10),
             "v2_vs_v1_null": ("RPC/s", 0.95), "v2_vs_v1_getattr": ("RPC/s", 0.95), "v2_vs_v1_8k_call": ("RPC/s", 1), "v2_vs_v1_8k_reply": ("RPC/s", 1)}
    large = ["--depth", "16", "nfs3", "--mount-port", "20049", "--file-mib", "64", "--block", "1048576", "--mix"]
    rounds = []
    planes = MemifPlanes(build)
    try:
        for _ in range(RUNS):
            tcp = json.loads(subprocess.run([f"{build}/tests/bench/tcp_baseline", "0.5"], capture_output=True, text=True,
                                            check=True).stdout)
            null = planes.load("--depth", "64", "null")
            bulk = {name: [planes.load("--rpcrdma", version, "--inline", inline, "--depth", "8", "bulk", "--call-bytes", call,
                                       "--reply-bytes", reply)["operations_per_s"] for version, inline in (("2", "4096"), ("1", "1024"))]
                    for name, call, reply in (("call", "8192", "0"), ("reply", "0", "8192"))}
            rounds.append({
                "memif_null_rps": (null["operations_per_s"], tcp["null_rps"]),
                "memif_null_p50_us": (planes.load("--depth", "1", "null")["latency_us"]["p50"], tcp["null_p50_us"]),
                "memif_read1m_gbps": (planes.load(*large, "read=1")["read_MB_per_s"] / 1e3, tcp["read1m_gbps"]),
                "memif_write1m_gbps": (planes.load(*large, "write=1")["write_MB_per_s"] / 1e3, tcp["write1m_gbps"]),
                "memif_null_vs_libtirpc_tcp": (null["operations_per_s"], tcp["libtirpc_rps"]),
                "v2_vs_v1_null": [planes.load("--rpcrdma", version, "--depth", "64", "null")["operations_per_s"] for version in "21"],
                "v2_vs_v1_getattr": [planes.load("--rpcrdma", version, "--depth", "64", "nfs3", "--mount-port", "20049", "--mix",
                                                 "getattr=1")["operations_per_s"] for version in "21"],
                "v2_vs_v1_8k_call": bulk["call"],
                "v2_vs_v1_8k_reply": bulk["reply"],
            })
    finally:
        planes.stop()
    for figure in wanted:
        report(figure, [one[figure] for one in rounds], *about[figure])


def conn_idle_bytes(build):
    """Resident memory of a data plane for each connection that is open and has had a few calls; what a connection may come
    to use (its share of the slots' buffers) is the baseline."""
    pairs = []
    connections = 32
    for _ in range(RUNS):
        planes = MemifPlanes(build)
        try:
            planes.load("--connections", "1", "--depth", "1", "--operations", "100", "null")
            before = resident_mib(planes.data.pid)
            client = subprocess.Popen(planes.over_memif("--connections", str(connections), "--depth", "1", "--seconds", "3", "null"),
                                      stdout=subprocess.DEVNULL)
            time.sleep(2)
            after = resident_mib(planes.data.pid)
            client.wait()
            shares = ("Receive buffers", "reply buffers of call slots", "call slots")
            reserved = sum(part["reserved_bytes"] for part in planes.ctl("memory")["parts"] if part["what"] in shares)
            pairs.append(((after - before) * 1048576 / (connections - 1), reserved / connections))
        finally:
            planes.stop()
    report("conn_idle_bytes", pairs, "bytes", None)


GUEST_FIGURES = ("guest_vs_knfsd_read4k", "guest_vs_knfsd_read1m", "verbs_vs_knfsd_read4k", "verbs_vs_knfsd_read1m")


def main():
    build, wanted = sys.argv[1], sys.argv[2:]
    known = {name: program for program in ("figures", "forward") for name in
             subprocess.run([f"{build}/tests/bench/{program}", "--list"], capture_output=True, text=True, check=True).stdout.split()}
    every = [*known, "dataplane_rss_mib", *MEMIF_FIGURES, "conn_idle_bytes", *OPERATIONS, *GUEST_FIGURES]
    unknown = set(wanted) - set(every)
    if unknown:
        sys.exit(f"Unknown figures {sorted(unknown)}: there are {every}.")
    for program in ("figures", "forward"):
        here = [name for name in known if known[name] == program and (not wanted or name in wanted)]
        if here:
            subprocess.run([f"{build}/tests/bench/{program}", *here], check=True)
    if not wanted or "dataplane_rss_mib" in wanted:
        dataplane_rss_mib(build)
    over_memif = [name for name in MEMIF_FIGURES if not wanted or name in wanted]
    if over_memif:
        memif(build, over_memif)
    if not wanted or "conn_idle_bytes" in wanted:
        conn_idle_bytes(build)
    for name, measure in OPERATIONS.items():
        if not wanted or name in wanted:
            measure(build)
    in_guests = [name for name in GUEST_FIGURES if not wanted or name in wanted]
    if in_guests:
        subprocess.run(["tests/interop/guest_bench.py", f"{build}/controlplane/sluice-controlplane", f"{build}/sluice-dataplane",
                        f"{build}/cli/sluicectl", *in_guests], check=True)


if __name__ == "__main__":
    main()
