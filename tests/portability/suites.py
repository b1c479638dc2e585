# SPDX-License-Identifier: Apache-2.0
"""Information about the suites unit and conformance of a build.

suites.py targets BUILD    prints the ninja targets of the suites
suites.py results BUILD    prints the results of their cases, in the form of inside.sh"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "runner"))
from results import read_meson  # noqa: E402
from steps import Build  # noqa: E402

what, build = sys.argv[1:3]
if what == "targets":
    print(*Build("suites", directory=build, suites=("unit", "conformance")).targets_of_suites())
else:
    outcome = read_meson(build, "testlog")
    print(f"result passed {outcome.passed} cases of unit and conformance" if outcome.passed else "result failed unit and conformance")
    for name in outcome.failed:
        print(f"result failed {name}")
    for name, reason in outcome.skipped:
        print(f"result skipped {name}: {reason}")
