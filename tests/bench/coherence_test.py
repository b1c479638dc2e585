#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests which accesses of a trace count as transfers between reactors. coherence_test.py"""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from coherence import BENCH, CLIENT, COUNTS, KINDS, NOTHING, RUNS, follow  # noqa: E402
from lackey import STACK, Ranges  # noqa: E402

RUNS_AT, COUNTS_AT = 0x1000, 0x2000
MARKED = {**{RUNS_AT + i: (RUNS, i) for i in range(64)}, **{COUNTS_AT + i: (COUNTS, i) for i in range(64)}}
LINE = 0x400000


class Script:
    """A trace that is written step by step."""

    def __init__(self):
        self.lines = [b"==1== Lackey\n"]

    def access(self, kind, address, size=8):
        self.lines += [b"I  00108000,4\n", b" %s %08x,%d\n" % (kind, address, size)]
        return self

    def run(self, runner):
        return self.access(b"S", RUNS_AT + runner, 1)

    def count(self, kind="null"):
        return self.access(b"S", COUNTS_AT + (NOTHING if kind is None else KINDS.index(kind)), 1)

    def read(self, address=LINE, size=8):
        return self.access(b"L", address, size)

    def write(self, address=LINE, size=8):
        return self.access(b"S", address, size)

    def result(self, kind="null"):
        return follow(MARKED, iter(self.lines))[KINDS.index(kind)]


class Transfers(unittest.TestCase):
    def test_a_line_that_another_reactor_wrote_is_taken_once(self):
        script = Script().count().run(1).write().run(0).read().read(LINE + 56)
        self.assertEqual((script.result().reactors, script.result().owner), (1, 1))

    def test_it_is_taken_again_after_another_write(self):
        self.assertEqual(Script().count().run(1).write().run(0).read().run(1).write().run(0).read().result().reactors, 3)

    def test_readers_do_not_take_a_line_from_each_other(self):
        self.assertEqual(Script().run(0).write().run(1).read().run(2).count().read().run(1).read().result().reactors, 1)
        self.assertEqual(Script().run(0).write().run(1).read().run(2).read().count().run(1).read().run(2).read().result().reactors, 0)

    def test_a_write_takes_a_line_that_others_have_read(self):
        self.assertEqual(Script().run(0).write().run(1).read().run(0).count().write().write().result().reactors, 1)

    def test_an_access_takes_each_line_that_it_touches(self):
        self.assertEqual(Script().run(0).write(LINE, 32).write(LINE + 64, 32).run(1).count().read(LINE + 60, 8).result().reactors, 2)

    def test_a_modification_takes_one_line(self):
        self.assertEqual(Script().run(0).write().run(1).count().access(b"M", LINE).result().reactors, 1)

    def test_lines_of_setup_belong_to_nobody(self):
        self.assertEqual(Script().run(BENCH).write().run(0).count().read().write().result().reactors, 0)

    def test_lines_shared_with_a_client_are_the_wire(self):
        result = Script().count().run(CLIENT).write().run(0).read().write().run(CLIENT).read().result()
        self.assertEqual((result.reactors, result.wire), (0, 2))

    def test_a_line_that_a_client_wrote_last_is_the_wire_for_all_readers(self):
        result = Script().run(CLIENT).write().count().run(0).read().run(1).read().result()
        self.assertEqual((result.reactors, result.wire), (0, 2))

    def test_the_stack_is_not_counted(self):
        self.assertEqual(Script().count().run(0).write(STACK + 64).run(1).read(STACK + 64).result().reactors, 0)

    def test_only_calls_of_the_marked_kind_are_counted(self):
        script = Script().run(0).write().count("getattr").run(1).read().count(None).run(0).write()
        self.assertEqual({kind: script.result(kind).reactors for kind in KINDS}, {**dict.fromkeys(KINDS, 0), "getattr": 1})


class Names(unittest.TestCase):
    def test_an_address_is_found_in_its_range_only(self):
        ranges = Ranges([(20, 30, "b"), (0, 10, "a")])
        self.assertEqual([(ranges.find(at) or (0, 0, None))[2] for at in (0, 9, 10, 19, 20, 29, 30)], ["a", "a", None, None, "b", "b", None])


if __name__ == "__main__":
    unittest.main()
