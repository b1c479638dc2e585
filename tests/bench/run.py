#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures figures, and prints one line of JSON for each.

run.py BUILD [FIGURE...]    measures these figures, by default all; peers means those beside servers of other projects
run.py --list               prints the names of the figures
run.py --targets            prints the ninja targets that the figures need"""
import json
import subprocess
import sys

import busy
import coherence
import denial
import handover
import in_process
import operations
import over_memif
import processor_time

# Figures measured with a guest, and the program that measures them.
GUEST_FIGURES = {**dict.fromkeys(("guest_vs_knfsd_read4k", "guest_vs_knfsd_read1m", "verbs_vs_knfsd_read4k", "verbs_vs_knfsd_read1m"), "guest_bench.py"),
                 **dict.fromkeys(("loss_silence_s", "link_recovery_s"), "repair_bench.py")}
GROUPS = (in_process, over_memif, processor_time, operations, busy, handover, denial, coherence)
SETS = {"peers": list(processor_time.FIGURES)}
PROGRAMS = ("controlplane/sluice-controlplane", "sluice-dataplane", "cli/sluicectl", "cli/sluice-bench")


def in_guests(build, wanted):
    for program in sorted({GUEST_FIGURES[name] for name in wanted}):
        figures = [name for name in wanted if GUEST_FIGURES[name] == program]
        subprocess.run([f"tests/interop/{program}", f"{build}/controlplane/sluice-controlplane", f"{build}/sluice-dataplane",
                        f"{build}/cli/sluicectl", *figures], check=True)


def named(words, known):
    """Returns the figures that the words name, each of which is a figure or a set of figures."""
    unknown = set(words) - set(known) - set(SETS)
    if unknown:
        sys.exit(f"Unknown figures {sorted(unknown)}. The figures are {known}, and sets of them are {list(SETS)}.")
    return [figure for word in words for figure in SETS.get(word, [word])]


def main():
    figures = {name: measure for group in GROUPS for name, measure in group.FIGURES.items()}
    if sys.argv[1:] == ["--targets"]:
        print(" ".join([*PROGRAMS, *sorted({target for group in GROUPS for target in group.TARGETS})]))
        return
    if sys.argv[1:] == ["--list"]:
        print("\n".join([*figures, *GUEST_FIGURES]))
        return
    known = [*figures, *GUEST_FIGURES]
    build, wanted = sys.argv[1], named(sys.argv[2:], known) or known
    failed = False
    for name in wanted:
        try:
            if name in figures:
                figures[name](build)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            failed = True
            print(json.dumps({"figure": name, "failed": str(error)}), flush=True)
    guests = [name for name in wanted if name in GUEST_FIGURES]
    if guests:
        in_guests(build, guests)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
