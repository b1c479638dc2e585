# SPDX-License-Identifier: Apache-2.0
"""Traces of memory accesses by valgrind's lackey, and the symbols of the traced program."""
import bisect
import contextlib
import os
import shutil
import subprocess

BASE = 0x108000  # load address of position-independent programs in valgrind
LINE_BITS = 6
STACK = 0x1FFE000000
# lackey traces a repeated string instruction byte by byte.
NO_STRING_INSTRUCTIONS = "glibc.cpu.x86_rep_stosb_threshold=1000000000:glibc.cpu.x86_rep_movsb_threshold=1000000000"


def symbols(program, types):
    """Returns the symbols of these types (see nm(1)) of a program, as (start, end, name) in the order of their addresses."""
    found = []
    for line in subprocess.run(["nm", "-C", "-S", "--defined-only", program], capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split(" ", 3)
        if len(words) == 4 and words[2] in types:
            found.append((BASE + int(words[0], 16), BASE + int(words[0], 16) + int(words[1], 16), words[3]))
    return sorted(found)


def functions(program):
    return symbols(program, "tTwW")


class Ranges:
    """Finds the range of addresses that contains an address."""

    def __init__(self, ranges):
        self.ranges = sorted(ranges)
        self.starts = [start for start, *_ in self.ranges]

    def find(self, address):
        """Returns (start, end, name), or None."""
        at = bisect.bisect(self.starts, address) - 1
        return self.ranges[at] if at >= 0 and address < self.ranges[at][1] else None


def lacks():
    """Returns why there can be no trace, or None."""
    return None if shutil.which("valgrind") else "valgrind is not installed: it traces the memory accesses."


@contextlib.contextmanager
def traced(*command, stdin=None):
    """Runs a program. Yields its process and a binary file of the trace, which the program's output is not a part of."""
    there, here = os.pipe()
    with subprocess.Popen(["valgrind", "--tool=lackey", "--trace-mem=yes", f"--log-fd={here}", *command], stdin=stdin,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, pass_fds=[here],
                          env={**os.environ, "GLIBC_TUNABLES": NO_STRING_INSTRUCTIONS}) as process:
        os.close(here)
        with open(there, "rb", buffering=1 << 20) as trace:
            try:
                yield process, trace
            finally:
                process.kill()
