# SPDX-License-Identifier: Apache-2.0
"""Runs the test programs of the mutated tree: once to find out which test reaches which mutant, then each mutant with the tests that reach it."""
import os
import resource
import signal
import subprocess
import tempfile
from collections import defaultdict

QUICK_US = 500_000  # the first batch of a program's tests
SANITIZERS = {"ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1:hard_rss_limit_mb=6000"}


class Test:
    def __init__(self, name, spent_us, reaches):
        self.name, self.spent_us, self.reaches = name, spent_us, reaches


def run(command, tests, deadline_s, extra):
    """Returns the exit status, or None if the process had to be killed. It runs in a separate process group, so that its children are killed too."""
    arguments = [*command, "--gtest_fail_fast", "--gtest_brief=1"]
    if tests is not None:
        arguments.append("--gtest_filter=" + ":".join(tests))
    environment = dict(os.environ, **SANITIZERS, **extra)
    with tempfile.TemporaryDirectory(prefix="sluice-mutant-") as folder:
        process = subprocess.Popen(arguments, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
        try:
            status = process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            status = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        return status


def reached(command, deadline_s=900):
    """Returns ([Test] that pass without a mutant, names of tests that fail) of a program. The program runs twice: once to record what it
    reaches, and once as with a mutant, so that a leak or crash of the program itself is not mistaken for a detected mutant."""
    with tempfile.NamedTemporaryFile("r", prefix="sluice-reached-", suffix=".txt") as file:
        status = subprocess_status(command, file.name, deadline_s)
        tests, failing = [], []
        for line in file.read().splitlines():
            name, outcome, spent, *numbers = line.split()
            if outcome == "passed":
                tests.append(Test(name, int(spent), set(map(int, numbers))))
            elif outcome == "failed":
                failing.append(name)
    if status is None:
        failing.append("(it did not terminate)")
    if tests and run(command, [test.name for test in tests], deadline_s, {}) != 0:
        return [], failing + ["(it fails with those tests left out)"]
    return tests, failing


def subprocess_status(command, file, deadline_s):
    process = subprocess.Popen([*command, "--gtest_brief=1"], env=dict(os.environ, **SANITIZERS, SLUICE_MUTATION_REACHED=file), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


class Coverage:
    """Records which tests reach which mutant, and so have to run for it."""

    def __init__(self):
        self.of = defaultdict(lambda: defaultdict(list))  # mutant -> program's command -> [Test]

    def add(self, command, tests):
        for test in tests:
            for number in test.reaches:
                self.of[number][command].append(test)

    def batches(self, number):
        """Returns [(command, [test name], microseconds)], quickest first, because the first failure ends the search."""
        batches = []
        for command, tests in self.of[number].items():
            quick, slow, spent = [], [], 0
            for test in sorted(tests, key=lambda t: t.spent_us):
                spent += test.spent_us
                (quick if spent <= QUICK_US or not quick else slow).append(test)
            batches += [(command, [t.name for t in part], sum(t.spent_us for t in part)) for part in (quick, slow) if part]
        return sorted(batches, key=lambda b: b[2])


def title(command):
    """Returns the name of the program, with its arguments if it runs with several sets of them."""
    return " ".join([os.path.basename(command[0]), *(a for a in command[1:] if not a.startswith("--gtest"))])


def outcome(coverage, number, patience):
    """Returns ('noticed'|'hung'|'survived'|'not covered', the test that detected it)."""
    batches = coverage.batches(number)
    if not batches:
        return "not covered", ""
    for command, tests, spent_us in batches:
        status = run(command, tests, patience["least_s"] + patience["factor"] * spent_us / 1e6, {"SLUICE_MUTANT": str(number)})
        if status is None:
            return "hung", title(command)
        if status != 0:
            return "noticed", title(command)
    return "survived", ", ".join(sorted({title(command) for command, _, _ in batches}))
