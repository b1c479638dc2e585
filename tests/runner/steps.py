# SPDX-License-Identifier: Apache-2.0
"""The kinds of steps of a run: a build, a meson suite, or a command. Each step writes its output to a file in build-logs."""
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from results import Outcome, read_junit, read_meson

LOGS = "build-logs"


# A run with a time limit keeps its results by ending earlier: after DEADLINE, in seconds since 1970, no
# further step starts, and steps that still run GRACE_S later are terminated.
DEADLINE = float(os.environ.get("SLUICE_TEST_DEADLINE") or "inf")
GRACE_S = 1500


# A line of ninja or of meson's test runner.
PROGRESS = re.compile(r"^\[? *(\d+)/(\d+)[\] ]")


class Failed(Exception):
    """Failure of a step; steps that need it are not run."""


class Unfinished(Exception):
    """A step was ended because the time limit expired."""


RUNNING = set()  # processes of steps, each in a separate session


def end_process(process):
    process.terminate()  # meson terminates its tests, which are in separate process groups
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def finish(process, end):
    """Waits until `end` (seconds since 1970) for the process, and returns its exit status. Ends the process if it takes longer."""
    RUNNING.add(process)
    try:
        return process.wait(None if end == float("inf") else max(end - time.time(), 0))
    except subprocess.TimeoutExpired:
        end_process(process)
        raise Unfinished from None
    finally:
        RUNNING.discard(process)


@dataclasses.dataclass
class Step:
    name: str
    after: tuple = ()   # names of the steps that this one needs
    lane: str = "front"  # the steps of a lane run one after the other; those of lane "back" have a lower priority

    kind = "suite"

    def run_logged(self, command, env=None, suffix=""):
        """Runs a command, whose output goes to the step's log, and returns its exit status."""
        nice = ["nice", "-n", "19"] if self.lane == "back" else []
        with open(self.log(suffix), "w", encoding="utf-8") as log:
            process = subprocess.Popen(nice + command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       env={**os.environ, **(env or {})}, start_new_session=True)
            return finish(process, DEADLINE + GRACE_S)

    def log(self, suffix=""):
        return f"{LOGS}/{self.name.replace(' ', '-')}{suffix}.log"

    def progress(self):
        """Returns the progress in the last such line of the log, in steps of ninja or tests of meson. Empty if there is no such line yet."""
        try:
            with open(self.log(), "rb") as log:
                log.seek(max(os.fstat(log.fileno()).st_size - 4096, 0))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        found = [match for match in map(PROGRESS.match, lines) if match]
        return f"{found[-1][1]} of {found[-1][2]}" if found else ""

    def tail(self, lines=60, suffix=""):
        with open(self.log(suffix), encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-lines:])


# ccache and mold are used if they are installed. meson uses ccache by itself for its default compiler, but
# not for an explicitly selected one.
LINKER = {"CC_LD": "mold", "CXX_LD": "mold"} if shutil.which("mold") else {}
CACHED = "ccache " if shutil.which("ccache") else ""


# -g1 gives line numbers for reports. Full debugging information would double the compile time. Ten sources of a
# target are one translation unit, which parses the headers once, so that precompiled headers would not pay.
SANITIZER = ["-Db_lundef=false", "-Db_pch=false", "--buildtype=debugoptimized", "-Doptimization=1", "-Dcpp_args=-g1", "-Dunity=on", "-Dunity_size=10"]
DIRECTORIES = {
    "build": (["--buildtype=release"], {}),
    # The fuzz targets require clang, and use the same libraries as the tests.
    "build-asan": (["-Db_sanitize=address,undefined", "-Dwerror=false", *SANITIZER], {"CC": f"{CACHED}clang", "CXX": f"{CACHED}clang++"}),
    "build-tsan": (["-Db_sanitize=thread", *SANITIZER], {}),
}
# Environment of the tests of a sanitized build.
ENVIRONMENT = {
    "build-asan": {"ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
                   "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"},
    "build-tsan": {"TSAN_OPTIONS": f"halt_on_error=1:suppressions={os.path.dirname(os.path.abspath(__file__))}/tsan.supp"},
}


@dataclasses.dataclass
class Build(Step):
    """Builds targets of a build directory: the named ones, and those that the tests of the named suites need."""
    directory: str = "build"
    targets: tuple = ()
    suites: tuple = ()

    kind = "build"

    def run(self):
        options, env = DIRECTORIES[self.directory]
        if not os.path.exists(f"{self.directory}/build.ninja"):
            self.must(["meson", "setup", self.directory, *options], {**LINKER, **env}, "-setup")
        elif not os.path.exists(f"{self.directory}/tests"):  # configured by the quick start, before GoogleTest was installed
            self.must(["meson", "setup", "--reconfigure", self.directory], suffix="-setup")
        self.must(["ninja", "-C", self.directory, "build.ninja"])
        self.must([sys.executable, "deploy/build.py", self.directory, "--full", "--report", self.report(), *self.targets, *self.targets_of_suites()])
        return Outcome()

    def report(self):
        return f"{LOGS}/{self.name.replace(' ', '-')}-cost.json"

    def cost(self):
        """Returns the cost of the last run of this build; empty if the build has written no report."""
        try:
            with open(self.report(), encoding="utf-8") as file:
                return json.load(file)
        except OSError:
            return {}

    def must(self, command, env=None, suffix=""):
        if self.run_logged(command, env, suffix) != 0:
            raise Failed(f"{' '.join(command[:3])} failed:\n{self.tail(suffix=suffix)}")

    def targets_of_suites(self):
        wanted = {f"sluice:{suite}" for suite in self.suites}
        files = {target["id"]: target["filename"] for target in self.introspect("--targets")}
        needed = {file for test in self.introspect("--tests") if wanted & set(test["suite"])
                  for target in test["depends"] for file in files[target]}
        return sorted(os.path.relpath(file, self.directory) for file in needed)

    def introspect(self, what):
        return json.loads(subprocess.run(["meson", "introspect", self.directory, what], capture_output=True, text=True, check=True).stdout)


@dataclasses.dataclass
class Suite(Step):
    """Runs the tests of a meson suite, or only the named ones."""
    directory: str = "build"
    suite: str = ""
    tests: tuple = ()

    def run(self):
        logbase = "testlog-" + self.name.replace(" ", "-")
        for ending in ("json", "junit.xml", "txt"):  # meson writes no log if there is nothing to run
            if os.path.exists(old := f"{self.directory}/meson-logs/{logbase}.{ending}"):
                os.unlink(old)
        what = ["--suite", self.suite] if self.suite else []
        self.run_logged(["meson", "test", "-C", self.directory, "--no-rebuild", "--print-errorlogs", "--logbase", logbase, *what, *self.tests],
                        ENVIRONMENT.get(self.directory))
        outcome = read_meson(self.directory, logbase)
        if outcome.failed:
            print(self.failures(), flush=True)
        return outcome

    def failures(self):
        """Returns the end of meson's output, without the lines of tests that passed."""
        with open(self.log(), encoding="utf-8", errors="replace") as log:
            return "".join(line for line in log if not re.search(r"^ *\d+/\d+ .* (OK|SKIP) ", line))[-20000:]

    def junit(self):
        return f"{self.directory}/meson-logs/testlog-{self.name.replace(' ', '-')}.junit.xml"


@dataclasses.dataclass
class Command(Step):
    """Runs a program that may write a JUnit file; without one it counts as one case. Figures that it prints as JSON are shown."""
    command: tuple = ()
    junit_file: str = ""

    def run(self):
        if self.junit_file and os.path.exists(self.junit_file):
            os.unlink(self.junit_file)
        status = self.run_logged([*self.command])
        for line in self.tail(1000).splitlines():
            if line.startswith('{"figure"'):
                print(line, flush=True)
        if self.junit_file and os.path.exists(self.junit_file):
            outcome, _ = read_junit(self.junit_file)
        else:
            outcome = Outcome(passed=int(status == 0))
        if status != 0 and not outcome.failed:
            outcome.failed.append(f"{self.name} (exit {status})")
        if outcome.failed:
            print(self.tail(), flush=True)
        return outcome


@dataclasses.dataclass
class Preparation(Command):
    """Runs a command that suites would otherwise run themselves. The suite, which tries again, reports a failure."""
    kind = "build"

    def run(self):
        self.run_logged([*self.command])
        return Outcome()
