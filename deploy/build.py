#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds targets with ninja, and shows the progress.

build.py BUILD_DIRECTORY [TARGET...]

On a terminal one line shows the number of steps that are done, the total, and an estimate of the remaining time. Other outputs contain only
the last line. Memory limits the number of concurrent jobs; a line reports this limit if it applies. The last line is the cost of the build.

  --full          print every line of ninja
  --report FILE   write the cost as JSON: processor seconds, objects compiled, objects from ccache, and the slowest outputs"""
import argparse
import collections
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

MIB_PER_JOB = 800  # memory of the largest compilation, with sanitizers
SLOWEST = 10
STEP = re.compile(r"\[(\d+)/(\d+)\] (.*)")
# A compilation from precompiled headers hits the cache only with this sloppiness (ccache's manual, "Precompiled headers"). Comments are hashed,
# because GCC compares a header with #pragma once byte by byte with the precompiled one, and includes it again if a comment differs. Checkouts share
# objects, because the path of a checkout is only in debugging information.
CACHE = {"CCACHE_SLOPPINESS": "pch_defines,time_macros,locale", "CCACHE_COMMENTS": "true", "CCACHE_NOHASHDIR": "true"}


def cache_settings(directory):
    """Returns the environment of ccache. Precompiled headers of Clang contain absolute paths, so checkouts do not share objects that Clang
    has compiled with one."""
    try:
        with open(os.path.join(directory, "build.ninja"), encoding="utf-8", errors="replace") as file:
            has_paths = "-include-pch" in file.read()
    except OSError:
        has_paths = False  # ninja reports the error
    return {**CACHE, **({"CCACHE_NAMESPACE": os.path.realpath(directory)} if has_paths else {})}


def cgroup_folders():
    """Returns the folders with the memory limits of this process: its cgroup's, and the root, at which a container sees its own cgroup."""
    own = ""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if "memory" in controllers.split(","):
                return [f"/sys/fs/cgroup/memory{path}", "/sys/fs/cgroup/memory"]
            own = path if not controllers else own
    return [f"/sys/fs/cgroup{own}", "/sys/fs/cgroup"]


def left_in(folder):
    """Returns the memory in MiB that a cgroup may still allocate; infinite without a limit."""
    for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        try:
            with open(f"{folder}/{limit}", encoding="ascii") as one, open(f"{folder}/{used}", encoding="ascii") as other:
                return (int(one.read()) - int(other.read())) >> 20
        except (OSError, ValueError):
            pass  # the other version of cgroups, or no limit
    return float("inf")


def available_mib():
    """Returns the memory in MiB that this process may still allocate: that of the machine, or the rest of its cgroup's limit."""
    with open("/proc/meminfo", encoding="ascii") as file:
        known = dict(re.findall(r"^(\w+):\s+(\d+) kB", file.read(), re.M))
    return min(int(known["MemAvailable"]) >> 10, *map(left_in, cgroup_folders()))


def bounded_jobs(processors, mib):
    """Returns the number of concurrent jobs: ninja's default, limited by memory, and at least one."""
    usual = {1: 2, 2: 3}.get(processors, processors + 2)
    return max(1, min(usual, mib // MIB_PER_JOB))


def remaining(done, steps, seconds):
    """Returns an estimate of the time of the remaining steps, as text."""
    left = seconds / done * (steps - done) if done else 0
    return f"{int(left // 60)} min {int(left % 60)} s" if left >= 60 else f"{int(left)} s"


class Display:
    """Shows ninja's output: one line that is overwritten on a terminal, only failures on other outputs, and everything with --full."""

    def __init__(self, out, full):
        self.out, self.full = out, full
        self.terminal = out.isatty() and not full
        self.started = time.monotonic()
        self.last = ""
        self.kinds = collections.Counter()

    def take(self, line):
        step = STEP.match(line)
        if step:
            self.last = line
            self.kinds["compiled"] += "Compiling C" in step[3]
        if self.full:
            print(line, file=self.out, flush=True)
        elif step and self.terminal:
            done, steps = int(step[1]), int(step[2])
            text = f"{done} of {steps}, {remaining(done, steps, time.monotonic() - self.started)} left: {step[3].rsplit(' ', 1)[-1]}"
            print(f"\r\033[K{text[:columns()]}", end="", file=self.out, flush=True)
        elif not step:
            self.clear()
            print(line, file=self.out, flush=True)

    def clear(self):
        if self.terminal:
            print("\r\033[K", end="", file=self.out, flush=True)


def columns():
    try:
        return (os.get_terminal_size().columns or 80) - 1
    except OSError:
        return 79


def cache_hits(log):
    """Returns the number of compilations that hit the cache, from ccache's log of results."""
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            return sum(line.strip() in ("direct_cache_hit", "preprocessed_cache_hit") for line in file)
    except OSError:
        return 0


def slowest_outputs(directory, offset):
    """Returns [seconds, output] of the slowest outputs that ninja has added to its log since `offset`."""
    try:
        with open(os.path.join(directory, ".ninja_log"), encoding="utf-8") as file:
            if offset > os.fstat(file.fileno()).st_size:  # ninja has replaced the log by a shorter one
                offset = 0
            file.seek(offset)
            fields = [line.split("\t") for line in file if not line.startswith("#")]
    except OSError:
        return []
    took = {entry[3]: (int(entry[1]) - int(entry[0])) / 1000 for entry in fields if len(entry) >= 5}
    return [[round(seconds, 1), output] for output, seconds in sorted(took.items(), key=lambda item: -item[1])[:SLOWEST]]


def run(directory, targets, display, jobs):
    command = ["ninja", "-C", directory, "-j", str(jobs), *targets]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as ninja:
        for line in ninja.stdout:
            if display.full or not line.startswith(("ninja: Entering directory", "ninja: no work to do")):
                display.take(line.rstrip("\n"))
    display.clear()
    return ninja.returncode


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("directory")
    arguments.add_argument("targets", nargs="*")
    arguments.add_argument("--full", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument("--report", metavar="FILE", help=argparse.SUPPRESS)
    chosen = arguments.parse_intermixed_args()
    processors, mib = len(os.sched_getaffinity(0)), available_mib()
    jobs, unbounded = bounded_jobs(processors, mib), bounded_jobs(processors, sys.maxsize)
    if jobs < unbounded:
        print(f"{mib} MiB of memory are available, so ninja runs {jobs} job{'s' if jobs > 1 else ''} at a time instead of {unbounded}.", flush=True)
    ninja_log = os.path.join(chosen.directory, ".ninja_log")
    offset = os.path.getsize(ninja_log) if os.path.exists(ninja_log) else 0
    display = Display(sys.stdout, chosen.full)
    with tempfile.TemporaryDirectory() as folder:
        statistics = os.path.join(folder, "ccache")
        os.environ["CCACHE_STATSLOG"] = statistics
        for name, value in cache_settings(chosen.directory).items():
            os.environ.setdefault(name, value)
        status = run(chosen.directory, chosen.targets, display, jobs)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        hits = cache_hits(statistics)
    cost = {"processor_s": round(used.ru_utime + used.ru_stime, 1), "seconds": round(time.monotonic() - display.started, 1),
            "compiled": max(display.kinds["compiled"] - hits, 0), "cached": hits, "slowest": slowest_outputs(chosen.directory, offset)}
    if chosen.report:
        with open(chosen.report, "w", encoding="utf-8") as file:
            json.dump(cost, file)
    if status == 0 and not chosen.report:
        print(f"{cost['compiled']} objects compiled, {cost['cached']} from the compiler cache, {cost['processor_s']:.0f} s of processor time"
              if display.last else "All targets are up to date.")
    return status


if __name__ == "__main__":
    sys.exit(main())
