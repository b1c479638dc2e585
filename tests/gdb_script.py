# SPDX-License-Identifier: Apache-2.0
"""Runs deploy/gdb/sluice-gdb.py in gdb, on a live data plane or on a core file."""
import os
import re
import subprocess

from planes_of_tests import PATIENCE_S, Skipped

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "deploy/gdb/sluice-gdb.py")


def gdb(*target, commands, script=SCRIPT):
    """Returns gdb's output for the commands, including its errors."""
    words = [word for command in commands for word in ("-ex", command)]
    done = subprocess.run(["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no", *target, "-x", script, *words],
                          capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if re.search("ptrace: Operation not permitted", done.stderr):
        raise Skipped("This user may not attach to a process: run the tests as root.")
    return done.stdout + done.stderr


def table(text, first):
    """Returns the rows of the table whose header begins with these columns, as dictionaries. Two spaces separate columns."""
    lines = text.splitlines()
    at = next((i for i, line in enumerate(lines) if re.split("  +", line)[:len(first)] == list(first)), None)
    assert at is not None, f"no table {first} in:\n{text}"
    names = re.split("  +", lines[at])
    rows = []
    for line in lines[at + 1:]:
        cells = re.split("  +", line)
        if len(cells) != len(names) or cells[0] == names[0]:
            break
        rows.append(dict(zip(names, cells)))
    return rows
