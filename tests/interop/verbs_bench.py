#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time of a call that the verbs driver serves on rxe in the guest, compared between two builds of Sluice.

verbs_bench.py BUILD_BEFORE BUILD_AFTER [ROUNDS]      prints verbs_rxe_null_vs_before and verbs_rxe_read1m_vs_before, a line of JSON each

The planes of both builds serve alternately. The client is BUILD_AFTER's sluice-bench in the same guest, so that its time is not counted."""
import json
import os
import shutil
import statistics
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
import verbs_lab  # noqa: E402
from lab import ROCE_HOST, Failed, need_lab, pack  # noqa: E402

GOAL = 1.02
PROGRAMS = ("controlplane/sluice-controlplane", "sluice-dataplane", "cli/sluicectl", "cli/sluice-bench")
LOADS = {"null": "--depth 8 null", "read1m": "--depth 2 nfs3 --mount-host 127.0.0.1 --mount-port 20058 --file-mib 4 --block 1048576 --mix read=1"}
CLIENT = "/mnt/host/sluice"
SECONDS = 3


def processor_s(bench):
    """Returns user and system time of the data plane under test, in seconds."""
    fields = bench.server.sh("cat /proc/$(cat /tmp/bench-data.pid)/stat").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def cost_of_a_call(bench, load):
    before = processor_s(bench)
    report = verbs_lab.report_of(bench.server.sh(f"export LD_LIBRARY_PATH={CLIENT}/lib\n{CLIENT}/sluice-bench --device verbs "
                                                 f"--server {ROCE_HOST} --port 20059 --seconds {SECONDS} --json {load}"))
    if report["errors"] or not report["operations"]:
        raise Failed(str(report))
    return (processor_s(bench) - before) / report["operations"]


def round_of(bench, build):
    """Starts the planes of a build, and returns the processor time of a call of each load."""
    verbs_lab.SLUICE = f"/mnt/host/{build}"
    bench.start("bench", verbs_lab.EXPORT, mount_port=20058, port=20059)
    try:
        return {name: cost_of_a_call(bench, load) for name, load in LOADS.items()}
    finally:
        bench.stop("bench")


def pack_before(bench, before):
    """Copies the other build's programs. Both builds use one folder of libraries, because DPDK loads its drivers from one folder."""
    folder, shared = f"{bench.server.dir}/before", f"{bench.server.dir}/sluice/lib"
    pack(folder, [f"{before}/{program}" for program in PROGRAMS[:3]])
    for library in set(os.listdir(f"{folder}/lib")) - set(os.listdir(shared)):
        shutil.copy(f"{folder}/lib/{library}", shared)
    shutil.rmtree(f"{folder}/lib")
    os.symlink("../sluice/lib", f"{folder}/lib")


def main():
    before, after = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    need_lab()
    bench = verbs_lab.VerbsBench([f"{after}/{program}" for program in PROGRAMS])
    try:
        bench.stop("admin")
        pack_before(bench, before)
        costs = {"before": [], "sluice": []}
        for number in range(2 * rounds):
            # ABBA: a drift of the machine's speed favours neither build.
            build = ("before", "sluice", "sluice", "before")[number % 4]
            costs[build].append(round_of(bench, build))
        for name in LOADS:
            ratios = [own[name] / other[name] for own, other in zip(costs["sluice"], costs["before"])]
            print(json.dumps({"figure": f"verbs_rxe_{name}_vs_before", "value": round(statistics.median(ratios), 3), "goal": GOAL,
                              "from": round(min(ratios), 3), "to": round(max(ratios), 3), "rounds": rounds,
                              "us_before": round(1e6 * statistics.median(c[name] for c in costs["before"]), 2)}), flush=True)
    finally:
        bench.close()


if __name__ == "__main__":
    sys.exit(main())
