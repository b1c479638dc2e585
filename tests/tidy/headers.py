#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each header compiles alone. Speaks TAP.

headers.py SOURCE_ROOT BUILD_ROOT"""
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import commands
from tree import Tree

FOLDER_FLAG = re.compile(r"-(?:isystem\s?|I)\S+")


def include_folders(build):
    return " ".join(sorted({flag for entry in commands.entries(build) for flag in FOLDER_FLAG.findall(entry["command"])})).split()


def proven(tree):
    """Returns the headers that a source includes first, which are known to compile alone."""
    first = (re.search(r'^#include ["<]([^">]+)', tree.text(name), re.M) for name in tree.named(".cc"))
    return {included[1] for included in first if included}


def compile_alone(header, flags, folder):
    """Returns the compiler's first error, or None."""
    done = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", "-x", "c++", '-DSLUICE_VERSION=""', *flags, "-include", header, "/dev/null"],
                          cwd=folder, capture_output=True, text=True)
    return None if done.returncode == 0 else (done.stderr.splitlines() or ["fails"])[0]


def notices_what_is_missing():
    with tempfile.TemporaryDirectory() as folder:
        header = os.path.join(folder, "lacking.h")
        with open(header, "w", encoding="utf-8") as file:
            file.write("#pragma once\ninline std::uint32_t f() { return 0; }\n")
        return [] if compile_alone(header, [], folder) else ["a header without its include was not noticed"]


def headers_compile_alone(tree, build):
    flags = [*include_folders(build), f"-I{tree.root}"]
    known = proven(tree)
    headers = [name for name in tree.named(".h") if name not in known]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = pool.map(lambda name: compile_alone(os.path.join(tree.root, name), flags, build), headers)
        return [f"{name}: {line}" for name, line in zip(headers, said) if line]


def main():
    tree, build = Tree(sys.argv[1]), os.path.abspath(sys.argv[2])
    print("1..2")
    failed = False
    for number, (name, wrong) in enumerate([("notices_what_is_missing", notices_what_is_missing()),
                                            ("headers_compile_alone", headers_compile_alone(tree, build))], 1):
        print(f"{'not ok' if wrong else 'ok'} {number} {name}", flush=True)
        for line in wrong[:20]:
            print(f"# {line}")
        failed = failed or bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
