#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the cache lines that reactors take from each other per call. All reactors and their clients run in one thread under
valgrind's lackey, and caches are unlimited, so the count is that of shared data only: it depends on neither the machine nor its load.

coherence.py BUILD [--reactors 2,4,8] [--calls N] [--depth N] [--top N] [--most FIGURE=LINES]...

--top N        also prints the N functions and the N memory ranges with the most lines of each kind of call
--most         fails if a figure exceeds this number of lines at any number of reactors

A line is taken when a reactor reads a line that another reactor wrote last and that it has not read since, or writes a line that another
reactor has written or read since. Lines between a reactor and its clients are the wire; they are counted separately. Accesses to the
stack are not counted. Each reactor but the owner of the files has a client with DEPTH outstanding calls, which makes CALLS calls.
BUILD contains tests/bench/coherence."""
import argparse
import collections
import functools
import json
import sys

from lackey import LINE_BITS, STACK, Ranges, functions, lacks, symbols, traced

# In the order of the program: FileCall of file_calls.h, then GETATTR at the owner.
KINDS = ("null", "getattr", "access", "lookup", "read4k", "commit", "write4k", "create", "remove", "own_getattr")
GOALS = {**dict.fromkeys(("null", "getattr", "access", "lookup", "read4k", "commit"), 0.5), "write4k": 24, "create": 30}
SIZES = (2, 4, 8)
CALLS, DEPTH = 32, 16
RUNS, COUNTS = "coherence_runs", "coherence_counts"
MARKS = 64  # elements of both arrays
CLIENT, BENCH = MARKS - 2, MARKS - 1
NOTHING = MARKS - 1


class Counts:
    """Transfers of one kind of call."""

    def __init__(self):
        self.reactors = 0               # lines between reactors
        self.owner = 0                  # of these, lines that the owner took
        self.wire = 0                   # lines between a reactor and its client, taken by the reactor
        self.by_pc = collections.Counter()
        self.by_line = collections.Counter()


class Caches:
    """Holders and last writer of each cache line. Holders are a mask of runners."""

    def __init__(self):
        self.holders = {}
        self.writers = {}
        self.runner = BENCH
        self.counts = None   # None: nothing is counted

    def read(self, line, pc):
        holders = self.holders.get(line, 0)
        me = 1 << self.runner
        if holders & me:
            return
        self.holders[line] = holders | me
        writer = self.writers.get(line)
        if self.counts is not None and writer is not None:
            self.take(1 << writer, line, pc)

    def write(self, line, pc):
        me = 1 << self.runner
        others = self.holders.get(line, 0) & ~me
        self.writers[line] = self.runner
        self.holders[line] = me
        if others and self.counts is not None:
            self.take(others, line, pc)

    def take(self, others, line, pc):
        """Counts a line that the runner takes from others."""
        if self.runner == CLIENT:
            return
        if others & ~(1 << CLIENT):
            self.counts.reactors += 1
            self.counts.owner += self.runner == 0
            self.counts.by_pc[pc] += 1
            self.counts.by_line[line] += 1
        else:
            self.counts.wire += 1


def marks_of(program):
    """Returns the addresses of the elements of both arrays, as (array, index) by address."""
    found = {name: start for start, _, name in symbols(program, "bBdD") if name in (RUNS, COUNTS)}
    assert len(found) == 2, f"{program} does not have the marks {RUNS} and {COUNTS}."
    return {start + i: (name, i) for name, start in found.items() for i in range(MARKS)}


def follow(marks, stream):
    """Returns the counts of each kind of call of a trace."""
    marks = {b"%08x" % address: mark for address, mark in marks.items()}
    caches, kinds, pc = Caches(), [Counts() for _ in KINDS], b""
    for line in stream:
        kind = line[:3]
        if kind == b"I  ":
            pc = line
        elif kind in (b" L ", b" S ", b" M "):
            address, _, size = line[3:].partition(b",")
            if kind == b" S " and address in marks:
                array, index = marks[address]
                if array == RUNS:
                    caches.runner = index
                else:
                    caches.counts = kinds[index] if index != NOTHING else None
                continue
            at = int(address, 16)
            if caches.runner == BENCH or at >= STACK:
                continue
            access = caches.read if kind == b" L " else caches.write
            last = at + int(size) - 1 >> LINE_BITS
            for number in range(at >> LINE_BITS, last + 1):
                access(number, pc)
    return kinds


def address_of(instruction):
    return int(instruction[3:instruction.index(b",")], 16)


def allocations(output, code):
    """Returns the ranges of the large allocations, named by their size and the function that allocated them."""
    found = []
    for line in output.splitlines():
        start, size, caller = line.split()
        function = code.find(int(caller, 16))
        found.append((int(start, 16), int(start, 16) + int(size), f"{size} bytes of {function[2] if function else caller}"))
    return found


class Result:
    """Counts of a number of reactors, and the names of what they refer to."""

    def __init__(self, program, reactors, depth, calls):
        self.code = Ranges(functions(program))
        with traced(program, *map(str, (reactors, depth, calls))) as (process, trace):
            self.kinds = dict(zip(KINDS, follow(marks_of(program), trace)))
            output = process.stdout.read()
            assert process.wait() == 0, f"{program} failed."
        self.memory = Ranges(allocations(output, self.code) + symbols(program, "bBdD"))
        self.calls = {kind: calls * (1 if kind == "own_getattr" else reactors - 1) for kind in KINDS}

    def lines(self, kind):
        return round(self.kinds[kind].reactors / self.calls[kind], 2)

    def of_owner(self, kind):
        return round(self.kinds[kind].owner / self.calls[kind], 2)

    def wire(self, kind):
        return round(self.kinds[kind].wire / self.calls[kind], 2)

    def top(self, kind, count):
        """Returns the functions and the ranges with the most lines, as (lines per call, name)."""
        by_function, by_range = collections.Counter(), collections.Counter()
        for pc, lines in self.kinds[kind].by_pc.items():
            function = self.code.find(address_of(pc))
            by_function[function[2] if function else "other functions"] += lines
        for line, lines in self.kinds[kind].by_line.items():
            memory = self.memory.find(line << LINE_BITS) or self.memory.find((line + 1 << LINE_BITS) - 1)
            by_range[memory[2] if memory else "registered and other memory"] += lines
        return [[(round(lines / self.calls[kind], 2), name) for name, lines in counter.most_common(count)] for counter in (by_function, by_range)]


@functools.lru_cache
def result_of(build, reactors, depth=DEPTH, calls=CALLS):
    return Result(f"{build}/tests/bench/coherence", reactors, depth, calls)


def say(kind, results, **more):
    print(json.dumps({"figure": f"reactor_lines_{kind}", "unit": "cache lines per call", "goal": GOALS.get(kind), "better": "lower",
                      "lines": {reactors: result.lines(kind) for reactors, result in results.items()},
                      "taken_by_owner": {reactors: result.of_owner(kind) for reactors, result in results.items()},
                      "wire": {reactors: result.wire(kind) for reactors, result in results.items()}, **more}), flush=True)


def measure(build, kind):
    """Prints a figure. All figures of a build are from the same traces."""
    if lacks():
        print(json.dumps({"figure": f"reactor_lines_{kind}", "skipped": lacks()}), flush=True)
        return
    say(kind, {reactors: result_of(build, reactors) for reactors in SIZES})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--reactors", default=",".join(map(str, SIZES)))
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--depth", type=int, default=DEPTH)
    parser.add_argument("--top", type=int, default=0)
    parser.add_argument("--most", action="append", default=[])
    words = parser.parse_args()
    if lacks():
        sys.exit(lacks())
    results = {}
    for size in map(int, words.reactors.split(",")):
        results[size] = result_of(words.build, size, words.depth, words.calls)
        print(f"{size} reactors:", ", ".join(f"{kind} {results[size].lines(kind)}" for kind in KINDS), file=sys.stderr, flush=True)
    for kind in KINDS:
        say(kind, results)
        for reactors, result in results.items() if words.top else ():
            for what, rows in zip(("function", "memory"), result.top(kind, words.top)):
                for lines, name in rows:
                    print(f"  {reactors} reactors, {what}: {lines:6.2f}  {name}")
    failed = False
    for limit in words.most:
        kind, most = limit.split("=")
        for reactors, result in results.items():
            if result.lines(kind) > float(most):
                failed = True
                print(f"{kind} moves {result.lines(kind)} lines with {reactors} reactors; the limit is {most}.")
    sys.exit(failed)


TARGETS = ["tests/bench/coherence"]
FIGURES = {f"reactor_lines_{kind}": lambda build, kind=kind: measure(build, kind) for kind in KINDS}

if __name__ == "__main__":
    main()
