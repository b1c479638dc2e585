#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requirement coverage: coverage.py REQUIREMENTS JUNIT...

A row is shown when at least one test that carries its id ran and none of them failed. Prints the table (row, state,
tests) and for each version the line 'V1 shown N of M', where M counts the rows that an implementation can show."""
import collections
import os
import re
import sys
import xml.etree.ElementTree as ElementTree


def read_requirements(path):
    rows = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("#") or not line.strip():
                continue
            row, how, *reason = line.split(None, 2)
            rows[row] = (how, reason[0].strip() if reason else "")
    return rows


def read_results(paths):
    """Row -> list of (test, passed)."""
    tests = collections.defaultdict(list)
    for path in paths:
        if not os.path.exists(path):
            continue
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            if case.find("skipped") is not None:
                continue
            passed = case.find("failure") is None and case.find("error") is None
            name = case.get("name") or ""
            for version, number in re.findall(r"V([12])_(\d{3})", name):
                tests[f"V{version}-{number}"].append((name, passed))
    return tests


def main():
    rows = read_requirements(sys.argv[1])
    tests = read_results(sys.argv[2:])
    unknown = sorted(set(tests) - set(rows))
    shown = collections.Counter()
    showable = collections.Counter()
    for row, (how, reason) in rows.items():
        version = row[:2]
        if how != "test":
            print(f"{row}  {how}: {reason}")
            continue
        showable[version] += 1
        results = tests.get(row, [])
        state = "not shown" if not results else "shown" if all(p for _, p in results) else "FAILED"
        shown[version] += state == "shown"
        names = ", ".join(sorted({name.split(".")[-1] for name, _ in results}))
        print(f"{row}  {state}{'  ' if names else ''}{names}")
    for row in unknown:
        print(f"{row}  is no row of the requirements")
    for version in ("V1", "V2"):
        print(f"{version} shown {shown[version]} of {showable[version]}")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
