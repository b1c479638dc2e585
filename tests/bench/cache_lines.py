# SPDX-License-Identifier: Apache-2.0
"""Counts the cache lines of data that the server touches for a NULL of version 1 over loopback, from the Receive to the completion
of the reply. Prints the median of all calls, and the number of lines that nearly all calls share.

cache_lines.py BUILD

BUILD contains tests/bench/one_core, and is built without link-time optimization, because that inlines the functions that mark the
steps of a call. The driver and the stack are not counted, because every transport pays for them. The end of an iteration, which
posts replies and Receives, is not counted either, because many calls share it. Requires valgrind."""
import collections
import statistics
import subprocess
import sys

from lackey import LINE_BITS, STACK, Ranges, functions, lacks, traced

CALLS = 400
RECEIVED, SENT = "Connection::on_received(", "Responder::on_reply_sent("
ENDS = ("Connection::on_completion(", "Engine::end_turn(", "Engine::poll(", "Client::poll(")
DRIVER = ("sluice::rdma::loopback::",)


class Trace:
    """Follows the instructions of a trace, and records the cache lines of each piece of work of a call."""

    def __init__(self, table):
        self.functions = Ranges(table)
        self.entries = {start: name for start, _, name in table
                        if any(part in name for part in (RECEIVED, SENT, *ENDS))}
        self.lines = None   # lines of the current piece of work
        self.kind = None
        self.driver = {}    # instruction -> whether it belongs to the driver
        self.in_driver = False
        self.pending = []   # sets of lines of calls whose reply is not complete
        self.calls = []

    def is_driver(self, pc):
        function = self.functions.find(pc)
        return function is not None and any(part in function[2] for part in DRIVER)

    def end_piece(self):
        if self.kind == RECEIVED:
            self.pending.append(self.lines)
        elif self.kind == SENT:
            self.end_calls(self.lines)
        self.lines = self.kind = None

    def end_calls(self, lines):
        """Ends the calls that a completion covers: those that alone use one of the lines that the completion touches."""
        users = collections.Counter(line for call in self.pending for line in call)
        ended = [call for call in self.pending if any(users[line] == 1 for line in call & lines)]
        self.pending = [call for call in self.pending if call not in ended]
        self.calls += [call | {line for line in lines if users[line] == 0} for call in ended]

    def instruction(self, pc):
        name = self.entries.get(pc)
        if name is not None:
            if self.lines is not None:
                self.end_piece()
            for kind in (RECEIVED, SENT):
                if kind in name:
                    self.kind, self.lines = kind, set()
        if self.lines is not None:
            known = self.driver.get(pc)
            if known is None:
                known = self.driver[pc] = self.is_driver(pc)
            self.in_driver = known

    def access(self, address, size):
        if self.in_driver or address >= STACK:
            return
        for line in range(address >> LINE_BITS, (address + size - 1 >> LINE_BITS) + 1):
            self.lines.add(line)


def read(trace, stream):
    for line in stream:
        kind = line[:3]
        if kind == b"I  ":
            trace.instruction(int(line[3:line.index(b",")], 16))
        elif trace.lines is not None and kind in (b" L ", b" S ", b" M "):
            address, size = line[3:].split(b",")
            trace.access(int(address, 16), int(size))
        if len(trace.calls) >= CALLS:
            return


def main():
    if len(sys.argv) != 2:
        sys.exit("Usage: cache_lines.py BUILD")
    if lacks():
        sys.exit(lacks())
    program = f"{sys.argv[1]}/tests/bench/one_core"
    trace = Trace(functions(program))
    with traced(program, stdin=subprocess.PIPE) as (process, lines):
        process.stdin.write("null 0.001\n")
        process.stdin.flush()
        read(trace, lines)
    counts = [len(lines) for lines in trace.calls]
    if not counts:
        sys.exit("No call was seen: is this a build with link-time optimization?")
    of_all = sum(calls > 0.9 * len(counts) for calls in collections.Counter(line for lines in trace.calls for line in lines).values())
    print(f"{statistics.median(counts):.0f} cache lines ({min(counts)} to {max(counts)}) of {len(counts)} calls; {of_all} of them are the same for nearly all calls")


if __name__ == "__main__":
    main()
