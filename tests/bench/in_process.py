# SPDX-License-Identifier: Apache-2.0
"""Comparisons for which one program measures both sides."""
import dataclasses

from pairs import PAIRS, Worker, alternate, placement_probe, say


@dataclasses.dataclass
class Comparison:
    program: str
    value: str
    baseline: str
    unit: str
    goal: float = None
    better: str = "higher"
    seconds: float = 0.3
    processors: int = 2
    pairs: int = PAIRS
    value_goal: float = None  # goal of the value itself, not of the ratio
    workers: int = 1  # successive processes, because memory placement makes some faster by a few percent


# A goal that was absolute originally is expressed relative to the baseline measured with it.
COMPARISONS = {
    "v1_decode_ns": Comparison("codec", "decode_ns", "rpcgen_decode_ns", "ns", 0.3, "lower", processors=1),
    "v1_decode_vs_rpcgen": Comparison("codec", "rpcgen_decode_ns", "decode_ns", "ns", 5, processors=1),
    # The goal refers to a ping-pong that clears its arrays in each iteration. The comparison with the driver
    # alone has no goal.
    "loopback_null_vs_driver": Comparison("loopback", "null", "driver_with_fresh_arrays", "RPC/s", 0.45),
    "loopback_null_vs_bare_driver": Comparison("loopback", "null", "driver", "RPC/s"),
    "loopback_null_rps": Comparison("loopback", "null", "driver", "RPC/s", 0.21),
    "loopback_getattr_rps": Comparison("loopback", "getattr", "null", "RPC/s", 0.43),
    "loopback_read4k_rps": Comparison("loopback", "read4k_one_connection", "null_one_connection", "RPC/s", 0.22),
    "loopback_read1m_vs_memcpy": Comparison("loopback", "read1m", "memcpy1m", "bytes/s", 0.7),
    "loopback_write1m_vs_memcpy": Comparison("loopback", "write1m", "memcpy1m", "bytes/s", 0.7),
    "loopback_v2_null_rps": Comparison("loopback", "null_v2", "null", "RPC/s", 0.83),
    "loopback_v2_getattr_rps": Comparison("loopback", "getattr_v2", "getattr", "RPC/s", 0.7),
    "v2_vs_v1_null_loopback": Comparison("one_core", "null_v2", "null", "RPC/s", 0.97, processors=1, pairs=2, workers=24),
    # Cost of the clock readings for stages and latencies, two per iteration.
    "stages_cost_ratio": Comparison("one_core", "null", "null_unmeasured", "RPC/s", 0.99, processors=1, pairs=2, workers=10),
    "stages_cost_ratio_d1": Comparison("one_core", "single_null", "single_null_unmeasured", "RPC/s", processors=1, pairs=2, workers=10),
    "loopback_null_p99_us": Comparison("loopback", "null_p99_us", "driver_round_trip_us", "us", None, "lower"),
    "foreign_reactor_getattr_ratio": Comparison("two_reactors", "foreign", "own", "RPC/s", 0.95),
    # Both sides have a client in each reactor's thread.
    **{f"reactors_pair_vs_processes_{call}": Comparison("reactor_pair", f"{call}_pair", f"{call}_processes", "RPC/s", 0.97)
       for call in ("null", "getattr", "read4k", "write4k")},
    "isolation_p99_ratio": Comparison("isolation", "worst_p99_ratio", "one", "times", 2, "lower", 0.02, processors=1, pairs=1),
    "isolation_throughput_ratio": Comparison("isolation", "worst_throughput_ratio", "one", "times", 0.0625, "higher", 0.02, processors=1, pairs=1),
    "turn_cost_silent_clients": Comparison("isolation", "turn_with_silent_clients_ns", "turn_ns", "ns", 1.5, "lower", 0.1, processors=1),
    "close_with_7000_waiting_us": Comparison("isolation", "close_with_7000_waiting_us", "close_with_none_waiting_us", "us", None, "lower", 0.2, processors=1),
    "gateway_added_us": Comparison("forward", "gateway_p50_us", "straight_p50_us", "us", 2.2, "lower"),
    "forward_getattr_rps": Comparison("forward", "gateway", "straight", "RPC/s", 0.037),
    "forward_vs_direct_tcp": Comparison("forward", "gateway_alone", "straight_alone", "RPC/s", 0.85),
    "forward_null_vs_direct_d16": Comparison("forward", "gateway_null", "straight_null", "RPC/s", 1.0),
    "forward_read_gbps": Comparison("forward", "gateway_read", "straight_read", "bytes/s", 0.53),
    "forward_read1m_vs_direct": Comparison("forward", "gateway_read1m", "straight_read1m", "bytes/s", 1.0),
    "forward_write1m_vs_direct": Comparison("forward", "gateway_write1m", "straight_write1m", "bytes/s", 1.0),
    # The gateway has its processor to itself, so bytes per second are bytes per second of processor time.
    "forward_read4m_vs_read1m": Comparison("forward", "gateway_read4m", "gateway_read1m", "bytes/s"),
    "rdma_upstream_read1m_vs_tcp_upstream": Comparison("forward", "relay_read1m", "gateway_read1m", "bytes/s", 1.5),
    "rdma_upstream_read4m_vs_read1m": Comparison("forward", "relay_read4m", "relay_read1m", "bytes/s"),
    # The baseline makes 102,400 calls/s with 512 outstanding; the goal is 50,000 calls/s.
    "gateway_write_rate_at_5ms": Comparison("forward", "gateway_write4k_5ms", "straight_write4k_5ms", "RPC/s", 0.49),
    "upstream_longest_turn_us_10k": Comparison("forward", "longest_turn_us_10k", "longest_turn_us_64", "us", None, "lower", 0.2, processors=1, value_goal=20),
    "conn_start_bytes": Comparison("connection_memory", "start_64_credits", "start_4_credits", "bytes", None, "lower", processors=1, pairs=1),
    "policy_10k_ms": Comparison("policy", "ms_10000", "ms_1000", "ms", None, "lower", processors=1),
    "cm_request_us_131k": Comparison("reconnect", "request_us_131k", "request_us_1k", "us", None, "lower", processors=1, value_goal=20),
    "cm_tick_us_131k": Comparison("reconnect", "tick_us_131k", "tick_us_1k", "us", None, "lower", processors=1, value_goal=100),
    "reconnect_storm_s": Comparison("reconnect", "storm_100k_s", "storm_10k_s", "s", None, "lower", processors=1, pairs=1, value_goal=60),
    "reconnect_storm_fairness": Comparison("reconnect", "storm_fairness", "one", "times", 0.95, processors=1, pairs=1),
    "connections_page_ms_131k": Comparison("control_loop", "listing_ms_131k", "listing_ms_1k", "ms", None, "lower", processors=1, pairs=1, value_goal=20),
    "connections_pages_ms_131k_4_clients": Comparison("control_loop", "listings_ms_131k", "listing_ms_131k", "ms", None, "lower", processors=1, pairs=1, value_goal=20),
    "cp_pause_ms": Comparison("control_loop", "storm_ms", "few_ms", "ms", None, "lower", processors=1, pairs=1, value_goal=20),
    "softroce_loss_0_1pct_write": Comparison("lossy_wire", "write_losing_1", "write_losing_0", "bytes/s", 0.9, processors=1),
    "softroce_loss_1pct_write": Comparison("lossy_wire", "write_losing_10", "write_losing_0", "bytes/s", 0.6, processors=1),
    "softroce_loss_1pct_read": Comparison("lossy_wire", "read_losing_10", "read_losing_0", "bytes/s", 0.6, processors=1),
    "softroce_loss_1pct_small_p99_us": Comparison("lossy_wire", "small_losing_10_p99_us", "small_losing_0_us", "us", 20, "lower", processors=1),
    # Time of version 1 : time of version 2. The cores do not matter, because one thread runs both ends and
    # the wire.
    "v2_vs_v1_8k_call_at_20us": Comparison("delay", "us v1_1k call_8k 20 1", "us v2 call_8k 20 1", "us", 1.5, processors=1),
    "v2_vs_v1_8k_call_at_20us_d8": Comparison("delay", "us v1_1k call_8k 20 8", "us v2 call_8k 20 8", "us", processors=1),
    "v2_vs_v1_8k_reply_at_20us": Comparison("delay", "us v1_1k reply_8k 20 1", "us v2 reply_8k 20 1", "us", 1.5, processors=1),
    "v2_vs_v1_8k_reply_at_20us_d8": Comparison("delay", "us v1_1k reply_8k 20 8", "us v2 reply_8k 20 8", "us", processors=1),
    "softroce_null_vs_packets": Comparison("softroce_core", "null", "packets", "exchanges/s", processors=1),
    "softroce_packets_vs_memif": Comparison("memif_pair", "driver_packets", "packets", "packets/s", 0.4),
}


def compare(build, figure):
    c = COMPARISONS[figure]
    pairs, dropped = [], 0
    with placement_probe(build) as probe:
        round_trip = probe.side("round_trip_ns", 0) if c.processors == 2 else None
        for _ in range(c.workers):
            with Worker(f"{build}/tests/bench/{c.program}") as worker:
                measured, left_out = alternate(worker.side(c.value, c.seconds), worker.side(c.baseline, c.seconds), round_trip,
                                               c.pairs)
            pairs += measured
            dropped += left_out
    say(figure, pairs, dropped, c.unit, c.goal, c.better, **({"value_goal": c.value_goal} if c.value_goal else {}))


TARGETS = sorted({f"tests/bench/{c.program}" for c in COMPARISONS.values()} | {"tests/bench/placement"})
FIGURES = {name: lambda build, name=name: compare(build, name) for name in COMPARISONS}
