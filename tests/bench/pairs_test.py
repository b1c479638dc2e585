#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the arithmetic of comparisons with made-up sides and placements. pairs_test.py"""
import contextlib
import io
import itertools
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import table  # noqa: E402
from pairs import NEAR_BELOW_NS, PAIRS, Pair, Worker, alternate, placement_of, quartiles, say, summary  # noqa: E402


def numbers(*values):
    return itertools.cycle(values).__next__


class Alternation(unittest.TestCase):
    def test_sides_take_turns_and_each_goes_first_as_often(self):
        order = []
        pairs, dropped = alternate(lambda: order.append("A") or 6.0, lambda: order.append("B") or 2.0, wanted=4)
        self.assertEqual("".join(order), "ABBAABBA")
        self.assertEqual(pairs, [Pair("one core", 6.0, 2.0)] * 4)
        self.assertEqual(dropped, 0)

    def test_at_least_fifteen_pairs_are_taken(self):
        self.assertGreaterEqual(PAIRS, 15)
        self.assertEqual(len(alternate(numbers(1), numbers(1))[0]), PAIRS)

    def test_a_slow_minute_does_not_move_the_ratio(self):
        speed = itertools.chain([100.0] * 16, itertools.repeat(50.0))  # half as fast from the middle of a pair on
        pairs, _ = alternate(lambda: 3 * next(speed), lambda: next(speed), wanted=15)
        self.assertEqual(summary(pairs)["one core"]["ratio"], 3)

    def test_a_round_during_which_the_placement_changed_is_dropped(self):
        for trips in ((50, 300, 300), (50, 50, 300), (300, 300, 50), (50, 300, 50)):
            probed = itertools.chain(trips, itertools.repeat(50))
            pairs, dropped = alternate(numbers(1), numbers(1), lambda: next(probed), wanted=2)  # pylint: disable=cell-var-from-loop
            self.assertEqual((len(pairs), dropped), (2, 1), trips)
            self.assertEqual({pair.placement for pair in pairs}, {"near"})

    def test_a_round_in_which_a_side_could_not_be_measured_is_dropped(self):
        pairs, dropped = alternate(numbers(None, 1.0, 1.0), numbers(1.0, 1.0, None), wanted=1)
        self.assertEqual((pairs, dropped), ([Pair("one core", 1.0, 1.0)], 1))

    def test_rounds_end_when_the_placement_never_stays(self):
        pairs, dropped = alternate(numbers(1), numbers(1), numbers(50, 300), wanted=5, most=9)
        self.assertEqual((pairs, dropped), ([], 9))


class Arithmetic(unittest.TestCase):
    def test_placement_is_told_by_the_round_trip(self):
        self.assertEqual([placement_of(ns) for ns in (58, NEAR_BELOW_NS - 1, NEAR_BELOW_NS, 320)], ["near", "near", "far", "far"])

    def test_quartiles(self):
        self.assertEqual(quartiles([5.0]), [5.0, 5.0, 5.0])
        self.assertEqual(quartiles([4.0, 1.0, 3.0, 2.0, 5.0]), [2.0, 3.0, 4.0])

    def test_the_ratio_is_the_median_of_ratios_not_the_ratio_of_medians(self):
        pairs = [Pair("near", 10.0, 1.0), Pair("near", 20.0, 4.0), Pair("near", 30.0, 2.0)]
        self.assertEqual(summary(pairs)["near"], {"ratio": 10.0, "quartiles": [7.5, 12.5], "pairs": 3, "value": 20.0, "baseline": 2.0})

    def test_each_placement_is_by_itself(self):
        pairs = [Pair("near", 8.0, 2.0), Pair("far", 3.0, 3.0), Pair("near", 8.0, 2.0)]
        result = summary(pairs)
        self.assertEqual((result["near"]["ratio"], result["near"]["pairs"]), (4.0, 2))
        self.assertEqual((result["far"]["ratio"], result["far"]["pairs"]), (1.0, 1))

    def test_a_figure_is_one_line_of_json(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            say("name", [Pair("far", 1.0, 4.0)], 2, "RPC/s", 0.2, idle=0.01)
        result = json.loads(out.getvalue())
        self.assertEqual(out.getvalue().count("\n"), 1)
        self.assertEqual((result["figure"], result["goal"], result["dropped"], result["idle"]), ("name", 0.2, 2, 0.01))
        self.assertEqual(result["far"]["ratio"], 0.25)

    def test_no_pairs_are_no_figure(self):
        with self.assertRaises(AssertionError):
            say("name", [], 9, "RPC/s")


class Table(unittest.TestCase):
    ROW = "| `name` | A : B | - | - | 0.5 |"

    def result(self, count):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            say("name", [Pair("near", 2e6, 4e6)] * count + [Pair("far", 1500.0, 1000.0)] * 5, 0, "RPC/s")
        return json.loads(out.getvalue())

    def test_a_row_gets_ratios_and_absolute_values(self):
        self.assertEqual(table.filled(f"before\n{self.ROW}\n| `other` | A : B | - | - |  |", {"name": self.result(10)}).split("\n")[1],
                         "| `name` | A : B | near **0.5** (0.5 to 0.5), far **1.5** (1.5 to 1.5) "
                         "| 2 million/s : 4 million/s, 1,500/s : 1,000/s | 0.5 |")

    def test_too_few_pairs_are_left_out(self):
        self.assertTrue(table.complete(self.result(10)))
        self.assertFalse(table.complete(self.result(9)))
        self.assertFalse(table.complete({"figure": "name", "failed": "why"}))

    def test_units(self):
        self.assertEqual([table.readable(*of) for of in ((9.61e9, "bytes/s"), (868000.0, "bytes"), (31.5, "MiB"), (674.8, "ns of it"),
                                                         (370000.0, "ns of it"), (1.85, "us"), (16000.0, "RPC/s"))],
                         ["9.61 GB/s", "868 KB", "31.5 MiB", "675 ns", "370 us", "1.85 us", "16,000/s"])


class Workers(unittest.TestCase):
    def test_a_worker_answers_line_by_line(self):
        with Worker(sys.executable, "-uc", "while True: print(2 * float(input().split()[1]))") as worker:
            self.assertEqual([worker.side("any", 0.25)(), worker.ask("any", 3)], [0.5, 6.0])

    def test_a_worker_that_ends_is_noticed(self):
        with Worker(sys.executable, "-c", "input()") as worker:
            with self.assertRaises(AssertionError):
                worker.ask("any", 1)


if __name__ == "__main__":
    unittest.main()
