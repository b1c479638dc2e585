#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests which requirements tests/conformance/coverage.py counts as shown. Speaks TAP.

coverage_test.py SOURCE_ROOT"""
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from planes_of_tests import run_tap  # noqa: E402

PROGRAM = os.path.join(os.path.abspath(sys.argv[1]), "tests", "conformance", "coverage.py")
TABLES = {"v1.md": "| V1-001 | One. | test |\n| V1-002 | Two. | not shown: there is no such device |\n| A-01 | question | decision |\n",
          "v2.md": "| V2-001 | One. | test |\n"}
PASSED = '<testcase name="{}" status="run" result="completed"/>'
FAILED = '<testcase name="{}" status="run" result="completed"><failure message="no"/></testcase>'
SKIPPED = '<testcase name="{}"><skipped message="no device"/></testcase>'
DISABLED = '<testcase name="DISABLED_{}" status="notrun" result="suppressed"/>'


def coverage(*cases, tables=None):
    """Returns the exit status, the output lines, and for each version whether its case of the JUnit file passed."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "requirements"))
        for name, text in {**TABLES, **(tables or {})}.items():
            with open(os.path.join(folder, "requirements", name), "w", encoding="utf-8") as file:
                file.write(text)
        results, junit = os.path.join(folder, "results.xml"), os.path.join(folder, "coverage.xml")
        with open(results, "w", encoding="utf-8") as file:
            file.write("<testsuites><testsuite name='s'>" + "".join(cases) + "</testsuite></testsuites>")
        done = subprocess.run([sys.executable, PROGRAM, "--tables", os.path.join(folder, "requirements"), "--junit", junit,
                               results, os.path.join(folder, "none.xml")], capture_output=True, text=True)
        passed = {case.get("name")[:2]: case.find("failure") is None for case in ElementTree.parse(junit).getroot().iter("testcase")}
        return done.returncode, done.stdout.split("\n"), passed


BOTH = (PASSED.format("V1_001_works"), PASSED.format("V2_001_works"))


def rows_with_passed_tests_are_shown():
    code, lines, passed = coverage(*BOTH)
    assert code == 0 and passed == {"V1": True, "V2": True}, lines
    assert "V1-001  shown  V1_001_works" in lines and "V2 shown 1 of 1" in lines, lines
    assert "V1 shown 1 of 1, 1 not shown" in lines and "V1-002  not shown: there is no such device" in lines, lines


def fails(line, *cases, tables=None, version="V1"):
    code, lines, passed = coverage(*cases, tables=tables)
    assert code == 1 and any(said.startswith(f"FAILED {line}") for said in lines), lines
    assert not passed[version] and (tables or sum(passed.values()) == 1), passed


def a_row_without_a_test_fails():
    fails("V1-001  NOT SHOWN", BOTH[1])
    fails("V2-001  NOT SHOWN", BOTH[0], version="V2")


def a_row_whose_test_failed_fails():
    fails("V1-001  FAILED  V1_001_breaks", *BOTH, FAILED.format("V1_001_breaks"))


def a_test_that_did_not_run_shows_nothing():
    fails("V1-001  NOT SHOWN", BOTH[1], SKIPPED.format("V1_001_works"))
    fails("V1-001  NOT SHOWN", BOTH[1], DISABLED.format("V1_001_works"))


def one_test_may_show_rows_of_both_versions():
    assert coverage(PASSED.format("V1_001_V2_001_F_03_work"))[0] == 0


def a_test_of_no_row_fails():
    fails("V1-009  is no row", *BOTH, PASSED.format("V1_009_works"))


def a_test_of_a_row_that_is_not_shown_fails():
    fails("V1-002  not shown: there is no such device  but there is V1_002_works", *BOTH, PASSED.format("V1_002_works"))


def a_table_that_says_nothing_fails():
    fails("v1.md:1 V1-001 does not say how it is shown", *BOTH, tables={"v1.md": "| V1-001 | One. | perhaps |\n"})


TESTS = [rows_with_passed_tests_are_shown, a_row_without_a_test_fails, a_row_whose_test_failed_fails, a_test_that_did_not_run_shows_nothing,
         one_test_may_show_rows_of_both_versions, a_test_of_no_row_fails, a_test_of_a_row_that_is_not_shown_fails, a_table_that_says_nothing_fails]


if __name__ == "__main__":
    sys.exit(run_tap([(test.__name__, test) for test in TESTS]))
