#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of an exchange with callgrind, which gives the same number on a busy machine as on an idle one.

instructions.py BUILD [--functions N] [SHAPE...]   prints a line for each shape, and N functions with the most instructions of their own
instructions.py BUILD --check                      fails if a shape takes more instructions than its limit; prints TAP

A shape is a program of BUILD/tests/bench and one of its sides. Both ends and the wire run in one thread. An exchange is a call and
its reply. Instructions of the wire belong to the test, and of the ends to the product. Requires valgrind."""
import argparse
import collections
import dataclasses
import re
import shutil
import subprocess
import sys
import tempfile


@dataclasses.dataclass
class Shape:
    program: str
    side: str
    counted: str  # pattern of the function in which instructions are counted
    exchanges: int
    limit: int  # most instructions of an exchange


# The limits are 3 % above the measured values, because libraries choose functions by the processor.
SHAPES = {
    "softroce_null": Shape("softroce_core", "null", "*answer*", 10_000, 3_410),
    "softroce_getattr": Shape("softroce_core", "getattr", "*answer*", 10_000, 3_590),
    "softroce_read4k": Shape("softroce_core", "read4k", "*answer*", 10_000, 11_090),
    "softroce_write4k": Shape("softroce_core", "write4k", "*answer*", 10_000, 13_080),
    "loopback_null": Shape("one_core", "null", "*ClosedLoop*::run*", 10_000, 2_070),
    "loopback_null_v2": Shape("one_core", "null_v2", "*ClosedLoop*::run*", 10_000, 2_135),
}

# Groups of functions, by the function that is entered first. What is in none of them belongs to the client of the program.
GROUPS = {
    "post": ("SoftQueuePair::post_send(", "SoftQueuePair::post_recv("),
    "send": ("SoftDevice::transmit_active(",),
    "receive": ("SoftDevice::receive(",),
    "wire": ("FaultyWire::carry()",),
}
PACKET = "Transmitter::send"


class Profile:
    """Instructions by function, read from a file of callgrind (Callgrind Format Specification)."""

    def __init__(self, path):
        self.names = {}
        self.own = collections.Counter()        # function -> instructions of its own
        self.inclusive = collections.Counter()  # function -> instructions with its callees
        self.calls = collections.Counter()
        self.instructions = 0
        with open(path, encoding="utf-8", errors="replace") as file:
            self.read(file)

    def name(self, text):
        match = re.match(r"\((\d+)\)(?: (.*))?$", text)
        if match.group(2) is not None:
            self.names[match.group(1)] = match.group(2)
        return self.names[match.group(1)]

    def read(self, file):
        function = callee = None
        for line in file:
            if line.startswith("fn="):
                function = self.name(line[3:].rstrip("\n"))
            elif line.startswith("cfn="):
                callee = self.name(line[4:].rstrip("\n"))
            elif line.startswith("calls="):
                self.calls[callee] += int(line[6:].split()[0])
                self.inclusive[callee] += int(next(file).split()[-1])
            elif line.startswith("totals:"):
                self.instructions = int(line.split()[-1])
            elif function is not None and line[0] in "0123456789+-*":
                self.own[function] += int(line.split()[-1])

    def total(self):
        return self.instructions

    def of(self, patterns):
        return sum(count for name, count in self.inclusive.items() if any(pattern in name for pattern in patterns))

    def calls_of(self, pattern):
        return sum(count for name, count in self.calls.items() if pattern in name)


def profile(build, shape):
    with tempfile.NamedTemporaryFile(prefix="sluice-callgrind-") as out:
        subprocess.run(["valgrind", "--tool=callgrind", f"--toggle-collect={shape.counted}", f"--callgrind-out-file={out.name}",
                        f"{build}/tests/bench/{shape.program}"],
                       input=f"{shape.side} 0\n", text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return Profile(out.name)


def describe(name, shape, seen, functions):
    total = seen.total() / shape.exchanges
    groups = {group: seen.of(patterns) / shape.exchanges for group, patterns in GROUPS.items()}
    text = f"{name}: {total:.0f} instructions an exchange"
    packets = seen.calls_of(PACKET) / shape.exchanges
    if packets > 0:
        ends = total - groups["wire"]
        sent = (groups["post"] + groups["send"]) / packets
        text += (f", {ends:.0f} without the wire; {packets:.2f} packets, each {sent:.0f} to post and send, "
                 f"{groups['receive'] / packets:.0f} to receive, {groups['wire'] / packets:.0f} on the wire")
    print(text)
    for function, count in seen.own.most_common(functions):
        print(f"  {count / shape.exchanges:7.0f} in {seen.calls[function] / shape.exchanges:6.2f} calls  {function}")


def check(build, shapes):
    print(f"1..{len(shapes)}")
    failed = 0
    for number, (name, shape) in enumerate(shapes.items(), 1):
        count = profile(build, shape).total() / shape.exchanges
        good = 0 < count <= shape.limit
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} {name}: {count:.0f} of at most {shape.limit} instructions an exchange")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("shapes", nargs="*", metavar="SHAPE")
    parser.add_argument("--functions", type=int, default=0, metavar="N")
    parser.add_argument("--check", action="store_true")
    words = parser.parse_intermixed_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed: it counts the instructions.")
    unknown = [name for name in words.shapes if name not in SHAPES]
    if unknown:
        sys.exit(f"Unknown shape '{unknown[0]}'. The shapes are {', '.join(SHAPES)}.")
    shapes = {name: SHAPES[name] for name in words.shapes or SHAPES}
    if words.check:
        sys.exit(check(words.build, shapes) > 0)
    for name, shape in shapes.items():
        describe(name, shape, profile(words.build, shape), words.functions)


if __name__ == "__main__":
    main()
