#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the requirement coverage of test runs.

coverage.py [--tables FOLDER] [--junit FILE] RESULTS...    (RESULTS: JUnit files of test runs)

A row whose table says 'test' is shown if at least one test with its id in the name ran and none of them failed. Prints the table (row,
state, tests), and for each version the line 'V1 shown N of M', where M counts those rows, followed by the number of rows shown in other
ways. Fails if one of the M rows is not shown, or if the name of a test contains a row that does not exist or that its table does not
assign to a test. --junit writes a test case for each version."""
import argparse
import collections
import os
import re
import sys
import xml.etree.ElementTree as ElementTree

from tables import Tables


def ran(case):
    return case.find("skipped") is None and case.get("status", "run") == "run" and case.get("result", "completed") == "completed"


def read_results(paths):
    """Returns a map from row to a list of (test, passed)."""
    tests = collections.defaultdict(list)
    for path in paths:
        if not os.path.exists(path):  # meson writes none when a suite has no tests
            continue
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            if not ran(case):
                continue
            passed = case.find("failure") is None and case.find("error") is None
            name = case.get("name") or ""
            for version, number in re.findall(r"V([12])_(\d{3})", name):
                tests[f"V{version}-{number}"].append((name.split(".")[-1], passed))
    return tests


def check(rows, tests):
    """Yields (row, state, rest of the line, whether it is a failure)."""
    for row in sorted(set(rows) | set(tests)):
        results = tests.get(row, [])
        names = ", ".join(sorted({name for name, _ in results}))
        how = rows.get(row)
        if how is None:
            yield row, "is no row of the tables", names, True
        elif how != "test":
            yield row, how, f"but there is {names}" if names else "", bool(names)
        elif not results:
            yield row, "NOT SHOWN", "", True
        elif not all(passed for _, passed in results):
            yield row, "FAILED", ", ".join(sorted({name for name, passed in results if not passed})), True
        else:
            yield row, "shown", names, False


def write_junit(path, failures):
    """failures: version -> list of sentences."""
    suite = ElementTree.Element("testsuite", name="coverage", tests=str(len(failures)), errors="0", skipped="0",
                                failures=str(sum(bool(lines) for lines in failures.values())))
    for version, lines in failures.items():
        case = ElementTree.SubElement(suite, "testcase", name=f"{version}_rows_are_shown", classname="coverage")
        if lines:
            ElementTree.SubElement(case, "failure", message=f"{len(lines)} rows").text = "\n".join(lines)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "requirements"))
    parser.add_argument("--junit")
    parser.add_argument("results", nargs="*")
    options = parser.parse_args()

    tables = Tables(options.tables)
    failures = {version: list(tables.problems) for version in ("V1", "V2")}
    verdicts = list(check(tables.rows, read_results(options.results)))
    for row, state, behind, failed in verdicts:
        line = "  ".join(part for part in (row, state, behind) if part)
        print(line)
        if failed:
            failures[row[:2]].append(line)
    for version in ("V1", "V2"):
        mine = [row for row in tables.rows if row.startswith(version)]
        by_test = [row for row in mine if tables.rows[row] == "test"]
        shown = sum(row.startswith(version) and state == "shown" for row, state, _, _ in verdicts)
        otherwise = collections.Counter(tables.rows[row].split(":")[0] for row in mine if row not in by_test)
        print(f"{version} shown {shown} of {len(by_test)}" + "".join(f", {n} {how}" for how, n in sorted(otherwise.items())))
    for line in sorted({line for lines in failures.values() for line in lines}):
        print(f"FAILED {line}")
    if options.junit:
        write_junit(options.junit, failures)
    return 1 if any(failures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
