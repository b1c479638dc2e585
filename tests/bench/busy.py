# SPDX-License-Identifier: Apache-2.0
"""Measures the error of the busy share that a reactor reports."""
import math

from pairs import Pair, Worker, say

LOADS = (25, 50, 90)
RUNS = 5
MOST_DROPPED = 15


def busy_error(build):
    """Compares the busy share that a reactor reports with the share of calls of known cost, at three loads."""
    pairs, dropped, errors = [], 0, {}
    with Worker(f"{build}/tests/bench/busy_share") as bench:
        for load in LOADS:
            done = 0
            while done < RUNS and dropped < MOST_DROPPED:
                shown, true = bench.ask(load, 1), bench.ask("true", 0)
                if math.isnan(true):
                    dropped += 1
                    continue
                done += 1
                pairs.append(Pair(f"{load} %", shown, true))
                errors[load] = max(errors.get(load, 0), abs(shown - true))
    say("busy_error", pairs, dropped, "share", error={f"{load} %": round(error, 4) for load, error in errors.items()}, error_goal=0.05)


TARGETS = ["tests/bench/busy_share"]
FIGURES = {"busy_error": busy_error}
