#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""targets.py BUILD SUITE...: the ninja targets that the tests of these suites need."""
import json
import os
import subprocess
import sys


def introspect(build, what):
    return json.loads(subprocess.run(["meson", "introspect", build, what], capture_output=True, text=True, check=True).stdout)


def main():
    build, suites = sys.argv[1], {f"sluice:{suite}" for suite in sys.argv[2:]}
    files = {target["id"]: target["filename"] for target in introspect(build, "--targets")}
    needed = set()
    for test in introspect(build, "--tests"):
        if suites & set(test["suite"]):
            needed.update(file for target in test["depends"] for file in files[target])
    print(" ".join(sorted(os.path.relpath(file, build) for file in needed)))


if __name__ == "__main__":
    main()
