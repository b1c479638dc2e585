# SPDX-License-Identifier: Apache-2.0
"""Comparisons of softroce over memif between a data plane and sluice-bench, each on one processor. The data plane is paused while
something else is measured."""
from pairs import Worker, alternate, say
from planes import MemifPlanes

SECONDS = 0.4


class Setting:
    """The planes, and the programs that sides have started."""

    def __init__(self, build, planes):
        self.build, self.planes, self.workers = build, planes, {}

    def worker(self, name):
        if name not in self.workers:
            self.workers[name] = Worker(f"{self.build}/tests/bench/{name}")
        return self.workers[name]

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        for worker in self.workers.values():
            worker.__exit__()


def program(name, side):
    """Returns a side that a program of the benchmarks measures."""
    return lambda setting: setting.planes.beside(setting.worker(name).side(side, SECONDS))


def load(field, *words, scale=1):
    """Returns a side that runs sluice-bench with these arguments. The port of MOUNT replaces the word MOUNT."""
    def side(setting):
        arguments = [setting.planes.mount_port() if word == "MOUNT" else word for word in words]
        return lambda: scale * field(setting.planes.load(*arguments, seconds=SECONDS))
    return side


def rate(result):
    return result["operations_per_s"]


def nfs3(field, mix, depth, version="1", block="4096", scale=1, connections="1"):
    return load(field, "--rpcrdma", version, "--connections", connections, "--depth", depth, "nfs3", "--mount-port", "MOUNT", "--file-mib", "16", "--block", block,
                "--mix", mix, scale=scale)


def null(version="1"):
    return load(rate, "--rpcrdma", version, "--depth", "64", "null")


def bulk(version, inline, call, reply):
    return load(rate, "--rpcrdma", version, "--inline", inline, "--depth", "8", "bulk", "--call-bytes", call, "--reply-bytes", reply)


# Name: value, baseline, unit, goal, better.
COMPARISONS = {
    "memif_null_vs_driver": (null(), program("memif_pair", "driver"), "RPC/s", 0.8, "higher"),
    "memif_null_rps": (null(), program("tcp_baseline", "null"), "RPC/s", None, "higher"),
    "memif_null_p50_us": (load(lambda result: result["latency_us"]["p50"], "--depth", "1", "null"),
                          program("tcp_baseline", "null_p50_us"), "us", None, "lower"),
    "memif_read1m_gbps": (nfs3(lambda result: result["read_MB_per_s"], "read=1", "16", block="1048576", scale=1e6),
                          program("tcp_baseline", "read1m"), "bytes/s", None, "higher"),
    "memif_read4k_deep": (nfs3(rate, "read=1", "128", connections="2"), nfs3(rate, "read=1", "8", connections="2"), "RPC/s", 1, "higher"),
    "memif_write1m_gbps": (nfs3(lambda result: result["write_MB_per_s"], "write=1", "16", block="1048576", scale=1e6),
                           program("tcp_baseline", "write1m"), "bytes/s", None, "higher"),
    "memif_null_vs_libtirpc_tcp": (null(), program("tcp_baseline", "libtirpc_null"), "RPC/s", 10, "higher"),
    "v2_vs_v1_null": (null("2"), null("1"), "RPC/s", 0.95, "higher"),
    "v2_vs_v1_getattr": (nfs3(rate, "getattr=1", "64", "2"), nfs3(rate, "getattr=1", "64", "1"), "RPC/s", 0.95, "higher"),
    "v2_vs_v1_8k_call": (bulk("2", "4096", "8192", "0"), bulk("1", "1024", "8192", "0"), "RPC/s", 1, "higher"),
    "v2_vs_v1_8k_reply": (bulk("2", "4096", "0", "8192"), bulk("1", "1024", "0", "8192"), "RPC/s", 1, "higher"),
}


# [transport] and [policy]. By default a client would have fewer credits than outstanding calls.
CREDITS = {"memif_read4k_deep": ("credits = 128", "max_credits = 128")}


def compare(build, figure):
    value, baseline, unit, goal, better = COMPARISONS[figure]
    with MemifPlanes(build, *CREDITS.get(figure, ())) as planes, Setting(build, planes) as setting:
        round_trip = planes.beside(setting.worker("placement").side("round_trip_ns", 0))
        pairs, dropped = alternate(value(setting), baseline(setting), round_trip)
    say(figure, pairs, dropped, unit, goal, better)


TARGETS = ["tests/bench/memif_pair", "tests/bench/placement", "tests/bench/tcp_baseline"]
FIGURES = {name: lambda build, name=name: compare(build, name) for name in COMPARISONS}
