# SPDX-License-Identifier: Apache-2.0
"""Information about the suites unit and conformance of a build.

suites.py targets BUILD [PROTOCOL]    prints the ninja targets of the suites
suites.py names BUILD [PROTOCOL]      prints the names of their tests
suites.py results BUILD               prints the results of their cases, in the form of inside.sh

With a PROTOCOL of meson's tests, such as gtest, only tests of that protocol count."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "runner"))
from results import read_meson  # noqa: E402

SUITES = {"sluice:unit", "sluice:conformance"}


def introspect(build, what):
    return json.loads(subprocess.run(["meson", "introspect", build, what], capture_output=True, text=True, check=True).stdout)


def tests_of(build, protocol):
    return [test for test in introspect(build, "--tests") if SUITES & set(test["suite"]) and protocol in ("", test["protocol"])]


def targets_of(build, tests):
    files = {target["id"]: target["filename"] for target in introspect(build, "--targets")}
    return sorted({os.path.relpath(file, build) for test in tests for target in test["depends"] for file in files[target]})


def main():
    what, build, protocol = (sys.argv[1:4] + [""])[:3]
    if what == "targets":
        print(*targets_of(build, tests_of(build, protocol)))
    elif what == "names":
        print(*(test["name"] for test in tests_of(build, protocol)))
    else:
        outcome = read_meson(build, "testlog")
        print(f"result passed {outcome.passed} cases of unit and conformance" if outcome.passed else "result failed unit and conformance")
        for name in outcome.failed:
            print(f"result failed {name}")
        for name, reason in outcome.skipped:
            print(f"result skipped {name}: {reason}")


main()
