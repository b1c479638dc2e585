# SPDX-License-Identifier: Apache-2.0
"""Measures the effect of misbehaving clients on other clients, as absolute values instead of ratios."""
import json

from pairs import Worker

REQUESTS = 100
LOADS = ("32_7", "32_45", "256_7", "256_45")  # connection limit, requests per second of the other source
PROBE_RUNS = 3  # of 200 probes each
PROBE_GOAL_MS = 100


def cm_victim_refusals(build):
    """Counts refused connection requests of a client that sends one per second, beside a source that answers no DREQ."""
    with Worker(f"{build}/tests/bench/cm_victim") as worker:
        refused = {load: round(worker.ask(load, 0)) for load in LOADS}
    print(json.dumps({"figure": "cm_victim_refusals", "unit": "requests", "value": max(refused.values()), "goal": 0, "of": REQUESTS,
                      **refused}), flush=True)


def probe_ms_under_slow_http(build):
    """Measures the longest time of a probe of /healthz beside 30 slow connections."""
    with Worker(f"{build}/tests/bench/slow_http") as worker:
        worst, alone = (max(worker.ask(side, 0) for _ in range(PROBE_RUNS)) for side in ("beside_slow", "alone"))
    print(json.dumps({"figure": "probe_ms_under_slow_http", "unit": "ms", "value": round(worst, 2), "goal": PROBE_GOAL_MS, "better": "lower",
                      "alone": round(alone, 2)}), flush=True)


TARGETS = ["tests/bench/cm_victim", "tests/bench/slow_http"]
FIGURES = {"cm_victim_refusals": cm_victim_refusals, "probe_ms_under_slow_http": probe_ms_under_slow_http}
