#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The runner reports every failure as a failure. Speaks TAP.

runner_test.py"""
import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import main  # noqa: E402
from planes_of_tests import run_tap  # noqa: E402
from results import Outcome, read_meson  # noqa: E402
from steps import Command, Failed, Step, Unfinished, finish  # noqa: E402

# TAP programs, and the counts that the runner must report for each: passed, failed, skipped.
PROGRAMS = {
    "fine": ('echo "1..2"; echo "ok 1 a"; echo "ok 2 b"', (2, 0, 0)),
    "one_fails": ('echo "1..2"; echo "ok 1 a"; echo "not ok 2 b"; echo "# why"', (1, 1, 0)),
    "hangs_after_a_pass": ('echo "1..2"; echo "ok 1 a"; exec sleep 60', (1, 1, 0)),
    "ends_early": ('echo "1..3"; echo "ok 1 a"', (1, 1, 0)),
    "passes_and_exits_1": ('echo "1..1"; echo "ok 1 a"; exit 1', (1, 1, 0)),
    # meson 1.0 copies a program's output into its JUnit file, including characters that XML cannot represent.
    "prints_control_characters": (r"""printf '1..1\n\001\033[1m\377 \n' >&2; printf '1..1\nok 1 a \010\n\001\000\n'""", (1, 0, 0)),
    "skipped": ('echo "1..0 # SKIP qemu-system-x86_64 is not installed"', (0, 0, 1)),
}


def project_of_programs(folder):
    for program, (script, _) in PROGRAMS.items():
        with open(f"{folder}/{program}.sh", "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(f"{folder}/{program}.sh", 0o755)
    with open(f"{folder}/meson.build", "w", encoding="utf-8") as file:
        file.write("project('sluice')\n" + "".join(
            f"test('{program}', find_program('{program}.sh'), protocol: 'tap', timeout: 2)\n" for program in PROGRAMS))
    subprocess.run(["meson", "setup", f"{folder}/build", folder], check=True, capture_output=True)


def what_programs_say_is_counted_as_they_ended():
    with tempfile.TemporaryDirectory() as folder:
        project_of_programs(folder)
        for program, (_, wanted) in PROGRAMS.items():
            subprocess.run(["meson", "test", "-C", f"{folder}/build", "--logbase", program, program], check=False, capture_output=True)
            outcome = read_meson(f"{folder}/build", program)
            seen = outcome.passed, len(outcome.failed), len(outcome.skipped)
            assert seen == wanted, f"{program}: {outcome}"
            assert bool(outcome.excerpts) == bool(outcome.failed), outcome
            if program == "one_fails":
                assert outcome.excerpts == ["one_fails: not ok 2 b", "one_fails: # why"], outcome
            if outcome.skipped:
                assert outcome.skipped[0][1] == "qemu-system-x86_64 is not installed", outcome


def a_suite_without_tests_fails():
    with tempfile.TemporaryDirectory() as folder:
        assert read_meson(folder, "log").failed


class Fake(Step):
    def __init__(self, name, *, error=None, **more):
        super().__init__(name, **more)
        self.error, self.ran = error, False

    def run(self):
        self.ran = True
        if self.error:
            raise self.error
        return Outcome(passed=1)


def run_of(*steps):
    run = main.Run(list(steps))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run.run()
    return run


def a_suite_whose_build_failed_fails_too():
    suite = Fake("suite", after=("build",))
    run = run_of(Fake("build", error=Failed("no compiler"), lane="back"), suite)
    assert not suite.ran and run.outcomes["suite"].failed and run.outcomes["build"].failed


def a_fault_of_the_runner_is_a_failure():
    assert run_of(Fake("suite", error=RuntimeError("shown on purpose"))).outcomes["suite"].failed


def after_the_deadline_no_step_starts_and_the_run_says_which():
    first, last = Fake("first"), Fake("last", after=("first",))
    deadline, main.DEADLINE = main.DEADLINE, time.time() - 1
    try:
        run = run_of(first, last)
    finally:
        main.DEADLINE = deadline
    assert not first.ran and not last.ran and run.left_out == ["first", "last"], run.left_out


def what_does_not_end_in_time_is_ended_and_left_out():
    process = subprocess.Popen(["sh", "-c", "sleep 600 & wait"], start_new_session=True)
    try:
        finish(process, time.time() + 0.2)
        raise AssertionError("it was waited for")
    except Unfinished:
        assert process.poll() is not None
    os.killpg(process.pid, signal.SIGKILL)  # kills the sleep in the background as well
    run = run_of(Fake("suite", error=Unfinished()))
    assert run.left_out == ["suite"] and not run.outcomes


def a_command_that_fails_is_a_failed_case():
    with tempfile.TemporaryDirectory() as folder:
        here = os.getcwd()
        os.chdir(folder)
        os.mkdir("build-logs")
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                assert Command("good", command=("true",)).run().passed == 1
                assert Command("bad", command=("false",)).run().failed
        finally:
            os.chdir(here)


def the_workflow_runs_suites_of_the_plan():
    with open(os.path.join(HERE, "..", "..", ".github", "workflows", "tests.yml"), encoding="utf-8") as file:
        runs = re.findall(r"^ +run: tests/run\.sh (.+)$", file.read(), re.MULTILINE)
    assert len(runs) == 3, runs
    steps = {step.name for words in runs for step in main.chosen(words.split())}
    assert {"style", "real", "unit", "conformance", "fuzz", "interop", "operations", "tsan", "fault release"} <= steps, steps


def every_step_comes_after_what_it_needs():
    steps = main.chosen(["all"])
    for number, step in enumerate(steps):
        missing = set(step.after) - {earlier.name for earlier in steps[:number]}
        assert not missing, f"{step.name} needs {missing}"


def many_cases_skipped_alike_are_one_line():
    many = [(f"suite / program.{number}", "no time was left") for number in range(20)]
    assert list(main.skipped_lines([*many, ("suite / other", "no device")])) == [
        "SKIPPED 20 cases, the last suite / program.19: no time was left", "SKIPPED suite / other: no device"]


TESTS = [what_programs_say_is_counted_as_they_ended, a_suite_without_tests_fails, a_suite_whose_build_failed_fails_too,
         a_fault_of_the_runner_is_a_failure, after_the_deadline_no_step_starts_and_the_run_says_which,
         what_does_not_end_in_time_is_ended_and_left_out, a_command_that_fails_is_a_failed_case, the_workflow_runs_suites_of_the_plan,
         every_step_comes_after_what_it_needs, many_cases_skipped_alike_are_one_line]

if __name__ == "__main__":
    sys.exit(run_tap([(test.__name__, test) for test in TESTS]))
