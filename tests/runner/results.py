# SPDX-License-Identifier: Apache-2.0
"""Results of a run of meson's test runner, from the two logs that it writes.

The JUnit file lists the cases, but does not show that a TAP program was killed or printed too few cases: such a program fails in
the JSON log only, so both are read."""
import dataclasses
import json
import os
import re
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class Outcome:
    passed: int = 0
    failed: list = dataclasses.field(default_factory=list)  # names
    skipped: list = dataclasses.field(default_factory=list)  # (name, reason)
    excerpts: list = dataclasses.field(default_factory=list)  # output lines of programs that failed

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.excerpts += other.excerpts

    def line(self):
        text = f"{self.passed} passed, {len(self.failed)} failed"
        return f"{text}, {len(self.skipped)} skipped" if self.skipped else text


def short(text):
    """Returns the reason for which a case was skipped, from its output. gtest prints the source line before it, and TAP the plan."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    reason = lines[-1] if lines else "no reason given"
    return reason.split("# SKIP", 1)[-1].strip()


FAILURE = re.compile(r"^not ok|: Failure$|\*\*\* |ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:")
LINES_OF_A_FAILURE, CHARACTERS_OF_A_LINE = 12, 200


def excerpt(test):
    """Returns the lines about the first failure of a program in meson's JSON log, or its last lines if none is recognized."""
    lines = (test.get("stdout", "") + "\n" + test.get("stderr", "")).splitlines()
    first = next((number for number, line in enumerate(lines) if FAILURE.search(line)), max(len(lines) - LINES_OF_A_FAILURE, 0))
    return [f"{test['name']}: {line[:CHARACTERS_OF_A_LINE]}" for line in lines[first:first + LINES_OF_A_FAILURE] if line.strip()]


# Characters that XML 1.0 (section 2.2, Char) cannot represent. meson 1.0 copies them from a program's output
# into the file.
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_junit(path):
    """Returns the outcome of a JUnit file, and the programs in which a case failed."""
    outcome, programs = Outcome(), set()
    with open(path, encoding="utf-8", errors="replace") as file:
        root = ElementTree.fromstring(UNWRITABLE.sub("\ufffd", file.read()).encode())
    for suite in root.iter("testsuite"):
        for case in suite.iter("testcase"):
            name = ".".join(dict.fromkeys(part for part in (suite.get("name"), case.get("classname"), case.get("name")) if part))
            if case.find("failure") is not None or case.find("error") is not None:
                outcome.failed.append(name)
                programs.add(program_of(suite, case))
            elif (skipped := case.find("skipped")) is not None:
                outcome.skipped.append((name, short(skipped.text or case.findtext("system-out"))))
            else:
                outcome.passed += 1
    return outcome, programs


def program_of(suite, case):
    """Returns the name of a case's program. meson names suites PROJECT.PROGRAM or PROJECT.PROGRAM.SUITE, and that of programs without cases PROJECT."""
    parts = suite.get("name").split(".")
    return parts[1] if len(parts) > 1 else case.get("name")


def read_meson(build, log):
    """Returns the outcome of `meson test --logbase LOG`."""
    base = f"{build}/meson-logs/{log}"
    if not os.path.exists(f"{base}.json"):
        return Outcome(failed=[f"{log}: no test ran"])
    outcome, programs = read_junit(f"{base}.junit.xml") if os.path.exists(f"{base}.junit.xml") else (Outcome(), set())
    with open(f"{base}.json", encoding="utf-8") as file:
        for test in map(json.loads, file):
            if test["result"] in ("OK", "SKIP", "EXPECTEDFAIL"):
                continue
            outcome.excerpts += excerpt(test)
            if test["name"] not in programs:
                outcome.failed.append(f"{test['name']} ({test['result']}, exit {test['returncode']})")
    if not outcome.passed and not outcome.failed and not outcome.skipped:
        outcome.failed.append(f"{log}: no test ran")
    return outcome
