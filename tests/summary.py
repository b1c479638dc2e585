#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up JUnit result files and prints one line 'N passed, N failed[, N skipped]'. Fails if any test failed."""
import os
import sys
import xml.etree.ElementTree as ElementTree


def outcomes(path):
    """Yields (name, outcome) of each test case; a suite without cases counts as one."""
    if not os.path.exists(path):  # meson writes none when a suite has no tests
        return
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            name = f"{suite.get('name')}.{case.get('classname') or ''}.{case.get('name')}"
            if case.find("failure") is not None or case.find("error") is not None:
                yield name, "failed"
            elif case.find("skipped") is not None:
                yield name, "skipped"
            else:
                yield name, "passed"


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for path in sys.argv[1:]:
        for name, outcome in outcomes(path):
            counts[outcome] += 1
            if outcome == "failed":
                print(f"FAILED {path.split('/')[0]} {name}")
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    if counts["skipped"]:
        line += f", {counts['skipped']} skipped"
    print(line)
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
