#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command that compiles each source.

commands.py BUILD_ROOT    writes BUILD_ROOT/sources/compile_commands.json, which names every source, for clangd

A unity build compiles several sources as one translation unit, and its compilation database names only that unit. Here each source has a
command of its own, with the options of its unit."""
import json
import os
import re
import shlex
import sys

INCLUDED = re.compile(r'^#include\s*[<"](.+?)[>"]', re.M)


def of_unit(entry):
    """Returns one entry of the compilation database for each source of the translation unit."""
    unit = os.path.join(entry["directory"], entry["file"])
    if not re.search(r"-unity\d+\.(cpp|cc)$", unit):
        return [entry]
    with open(unit, encoding="utf-8") as file:
        sources = [os.path.relpath(os.path.join(os.path.dirname(unit), name), entry["directory"]) for name in INCLUDED.findall(file.read())]
    words = shlex.split(entry["command"])
    return [{**entry, "file": source, "command": shlex.join([source if word == entry["file"] else word for word in words])} for source in sources]


def entries(build):
    """Returns the compilation database of a build directory with an entry for each source."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        return [one for entry in json.load(file) for one in of_unit(entry)]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(folder := os.path.join(sys.argv[1], "sources"), exist_ok=True)
    with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(entries(sys.argv[1]), file, indent=1)


if __name__ == "__main__":
    main()
