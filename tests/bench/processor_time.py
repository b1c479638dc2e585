# SPDX-License-Identifier: Apache-2.0
"""Compares the server's processor time per call of nfs-ganesha and of chimera (an export in memory over TCP) with that of Sluice
(softroce on memif).
Both servers run on the second processor, and have more calls outstanding than they can answer, from a minimal client on the first.
The processor clock of a process, user and system, measures its time in a round. A reactor polls continuously, so it uses the whole
round. Rounds in which it was not the bottleneck are dropped; idle polls in the others count as work, and are printed."""
import json
import statistics
import time

import chimera
import ganesha
from pairs import Worker, alternate, placement_probe, say
from planes import MemifPlanes, ask, planes_of_tests

SECONDS = 0.5
SERVER_CPU = 1
MOST_IDLE = 0.1  # largest idle share of a reactor that counts as the bottleneck
# Peer: its module, and the class of its server.
PEERS = {"ganesha": (ganesha, ganesha.Ganesha), "chimera": (chimera, chimera.Chimera)}
# Figure: peer, call, goal.
CALLS = {
    "cpu_null_vs_ganesha": ("ganesha", "null", 50),
    "cpu_getattr_vs_ganesha": ("ganesha", "getattr", 35),
    "cpu_read4k_vs_ganesha": ("ganesha", "read4k", 26),
    "cpu_read1m_vs_ganesha": ("ganesha", "read1m", 3),
    "memif_vs_chimera_null": ("chimera", "null", {"near": 2, "far": 1.3}),
    "memif_vs_chimera_getattr": ("chimera", "getattr", {"near": 2, "far": 1.3}),
    "memif_vs_chimera_read4k": ("chimera", "read4k", {"near": 1.3, "far": 1.0}),
    "memif_vs_chimera_read1m": ("chimera", "read1m", {"near": 1.0, "far": 0.9}),
    "memif_vs_chimera_write4k": ("chimera", "write4k", {"near": 2.0, "far": 1.3}),
    "memif_vs_chimera_write1m": ("chimera", "write1m", {"near": 2.0, "far": 1.3}),
}


def processor_s(pid):
    """Returns the processor time of a process in seconds, by its clock (clock_getcpuclockid(3))."""
    return time.clock_gettime(~pid << 3 | 2)


class IdleTurns:
    """Measures the share of a reactor's time that it spent on idle iterations in each round. An idle iteration is assumed to take as
    long as without any load; it takes longer while a client writes to the memory that is polled."""

    def __init__(self, planes):
        self.planes = planes
        before = self.now()
        time.sleep(1)
        after = self.now()
        self.seconds_each = (after[1] - before[1]) / (after[0] - before[0])
        self.shares = []

    def now(self):
        return ask(self.planes.socket, "counters")[0]["polls_idle"], processor_s(self.planes.data.pid)

    def during(self, side):
        def measure():
            before = self.now()
            result = side()
            after = self.now()
            share = (after[0] - before[0]) * self.seconds_each / (after[1] - before[1])
            if share > MOST_IDLE:
                return None
            self.shares.append(share)
            return result
        return measure


def compare(build, figure):
    name, call, goal = CALLS[figure]
    module, server = PEERS[name]
    reason = module.lacks()
    if reason:
        return print(json.dumps({"figure": figure, "skipped": reason}), flush=True)
    with MemifPlanes(build, "credits = 128", "max_credits = 128") as planes, server(SERVER_CPU) as peer, \
            placement_probe(build) as probe:
        over_tcp = peer.enter(f"{build}/tests/bench/tcp_saturate", peer.NFS_PORT, peer.MOUNT_PORT, peer.EXPORT, peer.process.pid)
        over_rdma = [f"{build}/tests/bench/rdma_saturate", planes_of_tests.memif_ethdev(planes.dir, "client"), planes.mount_port(),
                     planes.data.pid]
        with Worker(*map(str, over_tcp)) as theirs, Worker(*map(str, over_rdma)) as ours:
            idle = IdleTurns(planes)
            pairs, dropped = alternate(planes.beside(theirs.side(call, SECONDS)), idle.during(ours.side(call, SECONDS)),
                                       planes.beside(probe.side("round_trip_ns", 0)))
    say(figure, pairs, dropped, "ns of the server's processor per call", goal, reactor_idle=round(statistics.median(idle.shares or [1]), 3))


FIGURES = {name: lambda build, name=name: compare(build, name) for name in CALLS}
TARGETS = ["tests/bench/rdma_saturate", "tests/bench/tcp_saturate"]
