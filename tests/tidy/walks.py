#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the functions that a reactor enters from a call's arrival to its reply. Prints a line of JSON for each kind of call.

walks.py SOURCE_ROOT [BUILD]

Calls go over the loopback driver. Only functions with a body in a source file of the data plane count. `functions` and `files` are
distinct; `changes_of_class` counts the entries whose class differs from that of the previous entry, and `changes_in_gateway` does so among
the entries of the gateway's classes. Periodic work is not due during a forwarded call, because the time does not advance. BUILD
(build-walks) is configured on the first use, without optimization and with a call at the entry of each function."""
import json
import os
import re
import subprocess
import sys

CALLS = {"getattr": "walk_getattr", "write": "walk_write", "forwarded_getattr": "forwarded_getattr_walk"}
PROGRAM = "tests/bench/walks"
# Classes of the gateway to a TCP upstream that handle a call.
GATEWAY = {"ForwardService", "Upstream", "UpstreamCalls", "Admission", "DuplicateRequests", "UpstreamConnection"}
SETUP = ["--buildtype=debug", "-Doptimization=0", "-Dcpp_args=-finstrument-functions"]


def build(root, folder):
    if not os.path.exists(f"{folder}/build.ninja"):
        subprocess.run(["meson", "setup", folder, root, *SETUP], check=True, stdout=sys.stderr)
    subprocess.run(["ninja", "-C", folder, PROGRAM], check=True, stdout=sys.stderr)


def entries(program, call):
    """Returns (function, file) of each entry, in order."""
    addresses = subprocess.run([program, call], capture_output=True, text=True, check=True).stdout
    # The output has two lines for each address: the function, and its file and line.
    lines = subprocess.run(["addr2line", "-f", "-C", "-e", program], input=addresses, capture_output=True, text=True, check=True).stdout.splitlines()
    return [(function, where.rsplit(":", 1)[0]) for function, where in zip(lines[::2], lines[1::2])]


def class_of(function):
    """Returns the scope of a function, which is its class or its namespace."""
    name = re.sub(r"\(anonymous namespace\)", "anonymous", function)
    while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)( const)?( noexcept)?", "", name)) != name:
        name = shorter
    return name.split(" ")[-1].rpartition("::")[0]


def changes(classes):
    return sum(one != other for one, other in zip(classes, classes[1:]))


def counted(root, walked):
    ours = [(function, os.path.relpath(file, root)) for function, file in walked if file.startswith(f"{root}/dataplane/") and file.endswith(".cc")]
    classes = [class_of(function) for function, _ in ours]
    gateway = [name for name in classes if name.rpartition("::")[2] in GATEWAY]
    return {"functions": len(set(ours)), "files": len({file for _, file in ours}), "entries": len(ours),
            "changes_of_class": changes(classes), "changes_in_gateway": changes(gateway)}


def main():
    root = os.path.realpath(sys.argv[1])
    folder = os.path.realpath(sys.argv[2] if len(sys.argv) > 2 else f"{root}/build-walks")
    build(root, folder)
    for call, figure in CALLS.items():
        walked = entries(f"{folder}/{PROGRAM}", call)
        print(json.dumps({"figure": figure, **counted(root, [(function, os.path.realpath(file)) for function, file in walked])}))


if __name__ == "__main__":
    main()
