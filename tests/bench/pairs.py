# SPDX-License-Identifier: Apache-2.0
"""Comparisons that are valid on a machine whose speed changes. Two sides are measured alternately in short rounds, and a figure is
the median of the ratios of the rounds.

If the sides use two processors, the host may move these between rounds, which multiplies the time of a cache line from one to the
other. This time is measured in each round, and only rounds of one placement are compared. Rounds in which other programs used much
of the processors are dropped."""
import collections
import json
import math
import os
import statistics
import subprocess
import time

PAIRS = 15
# A cache line's round trip takes about 60 ns between threads of a core or neighbours, 300 ns across the host.
NEAR_BELOW_NS = 150
CROWDED = "crowded"
CROWDED_PAUSE_S = 0.2

Pair = collections.namedtuple("Pair", "placement value baseline")


def placement_of(round_trip_ns):
    if math.isnan(round_trip_ns):
        return CROWDED
    return "near" if round_trip_ns < NEAR_BELOW_NS else "far"


def alternate(value, baseline, round_trip=None, wanted=PAIRS, most=4 * PAIRS, pause=time.sleep):
    """Calls both in alternating order until there are `wanted` pairs. round_trip() is called before, between and after them; it
    returns NaN if other programs used the processors since its last call. A round is dropped when that happened, when the
    placement changed, or when a side returned None. At most `most` rounds."""
    pairs, dropped = [], 0

    def placement():
        return placement_of(round_trip()) if round_trip else "one core"

    while len(pairs) < wanted and len(pairs) + dropped < most:
        seen, measured = {placement()}, {}
        sides = (("value", value), ("baseline", baseline))
        for name, side in sides if (len(pairs) + dropped) % 2 == 0 else reversed(sides):
            if CROWDED not in seen:
                measured[name] = side()
                seen.add(placement())
        if CROWDED in seen:
            pause(CROWDED_PAUSE_S)
        if len(seen) == 1 and len(measured) == 2 and None not in measured.values():
            pairs.append(Pair(seen.pop(), **measured))
        else:
            dropped += 1
    return pairs, dropped


def quartiles(values):
    """Returns the first quartile, the median and the third quartile."""
    if len(values) == 1:
        return [values[0]] * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def rounded(number):
    return float(f"{number:.4g}")


def summary(pairs):
    """Returns the ratios and values of the pairs of each placement that occurred."""
    result = {}
    for placement in sorted({pair.placement for pair in pairs}, reverse=True):
        here = [pair for pair in pairs if pair.placement == placement]
        first, middle, third = quartiles([pair.value / pair.baseline for pair in here])
        result[placement] = {"ratio": rounded(middle), "quartiles": [rounded(first), rounded(third)], "pairs": len(here),
                             "value": rounded(statistics.median(pair.value for pair in here)),
                             "baseline": rounded(statistics.median(pair.baseline for pair in here))}
    return result


def say(figure, pairs, dropped, unit, goal=None, better="higher", **more):
    """Prints a figure as one line of JSON. `goal` is the minimum ratio, or with better="lower" the maximum; it may be
    one for each placement."""
    assert pairs, f"All {dropped} rounds were dropped: other programs keep the processors busy."
    print(json.dumps({"figure": figure, "unit": unit, "goal": goal, "better": better, "dropped": dropped, **summary(pairs), **more}),
          flush=True)


class Worker:
    """A program that measures on request. It reads lines 'SIDE SECONDS', and answers each by a line with a number."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"{self.process.args[0]} gave no answer to {words}."
        return float(answer)

    def side(self, *words):
        return lambda: self.ask(*words)

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def placement_probe(build):
    """Returns a worker that measures the round trip of a cache line between the first two processors."""
    return Worker(os.path.join(build, "tests/bench/placement"))
