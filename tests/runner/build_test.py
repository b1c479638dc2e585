#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The output of deploy/build.py, the number of its jobs, and its report. Speaks TAP.

build_test.py"""
import io
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "deploy"), os.path.dirname(HERE)]
import build  # noqa: E402
from planes_of_tests import run_tap  # noqa: E402

NINJA_FILE = """
rule cc
  command = sleep 0.1; {command} && touch $out
  description = Compiling C++ object $out
build a.o: cc
build b.o: cc
default a.o b.o
"""


def project(folder, command="true"):
    with open(os.path.join(folder, "build.ninja"), "w", encoding="utf-8") as file:
        file.write(NINJA_FILE.format(command=command))
    return [sys.executable, os.path.join(ROOT, "deploy/build.py"), folder]


def jobs_are_bounded_by_memory_and_one_is_always_possible():
    assert build.bounded_jobs(2, 100_000) == 3
    assert build.bounded_jobs(16, 100_000) == 18
    assert build.bounded_jobs(16, 2048) == 2
    assert build.bounded_jobs(1, 100) == 1


def the_limit_of_a_cgroup_counts():
    mib = 1 << 20
    for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        with tempfile.TemporaryDirectory() as folder:
            assert build.left_in(folder) == float("inf")
            for name, text in ((limit, f"{2048 * mib}\n"), (used, f"{48 * mib}\n")):
                with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                    file.write(text)
            assert build.left_in(folder) == 2000
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("memory.max", "max\n"), ("memory.current", "5\n")):
            with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                file.write(text)
        assert build.left_in(folder) == float("inf")
    assert 0 < build.available_mib() < float("inf")


def what_is_left_is_estimated_from_what_is_done():
    assert build.remaining(10, 30, 20) == "40 s"
    assert build.remaining(1, 101, 3) == "5 min 0 s"
    assert build.remaining(0, 30, 1) == "0 s"


def in_a_file_there_is_one_line():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(project(folder), capture_output=True, text=True, check=True)
        assert done.stdout.startswith("2 objects compiled, 0 from the compiler cache,"), done.stdout
        assert done.stdout.count("\n") == 1, done.stdout
        done = subprocess.run(project(folder), capture_output=True, text=True, check=True)
        assert done.stdout == "All targets are up to date.\n", done.stdout


def on_a_terminal_one_line_is_overwritten():
    with tempfile.TemporaryDirectory() as folder:
        here, there = pty.openpty()
        with subprocess.Popen(project(folder), stdout=there, stderr=there) as process:
            os.close(there)
            shown = b""
            try:
                while part := os.read(here, 4096):
                    shown += part
            except OSError:
                pass  # the other end is closed
            assert process.wait() == 0
        assert b"\r\033[K1 of 2, " in shown and b"2 of 2, 0 s left: b.o" in shown.replace(b"a.o", b"b.o"), shown


def a_failure_is_shown_and_fails():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(project(folder, "echo broken; false"), capture_output=True, text=True)
        assert done.returncode != 0 and "broken" in done.stdout, done


def the_report_has_the_cost():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        subprocess.run([*project(folder), "--full", "--report", path, "a.o", "b.o"], capture_output=True, check=True)
        with open(path, encoding="utf-8") as file:
            cost = json.load(file)
        assert cost["compiled"] == 2 and cost["cached"] == 0 and cost["processor_s"] >= 0, cost
        assert {output for _, output in cost["slowest"]} == {"a.o", "b.o"}, cost


def a_display_that_is_no_terminal_keeps_what_is_no_step():
    out = io.StringIO()
    display = build.Display(out, full=False)
    for line in ("[1/2] Compiling C++ object a.o", "a.cc:1: error: x"):
        display.take(line)
    assert out.getvalue() == "a.cc:1: error: x\n", out.getvalue()


CACHED_PROJECT = """
rule pch
  command = ccache c++ -x c++-header -fpch-preprocess $in -o $out
rule cc
  command = ccache c++ -fpch-preprocess -include all.h -Winvalid-pch -c $in -o $out
build all.h.gch: pch all.h | one.h
build {name}.o: cc {name}.cc | all.h.gch
"""


def another_comment_in_a_header_is_another_precompiled_header():
    with tempfile.TemporaryDirectory() as folder:
        def built(name, comment):
            for file, text in ((f"{name}.cc", f'#include "one.h"\nOne {name};\n'), ("all.h", '#include "one.h"\n'),
                               ("one.h", f"#pragma once\n// {comment}\nstruct One {{}};\n"), ("build.ninja", CACHED_PROJECT.format(name=name))):
                with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
                    out.write(text)
            if os.path.exists(os.path.join(folder, "all.h.gch")):
                os.remove(os.path.join(folder, "all.h.gch"))
            return subprocess.run([sys.executable, os.path.join(ROOT, "deploy/build.py"), folder], capture_output=True, text=True,
                                  env={**os.environ, "CCACHE_DIR": os.path.join(folder, "cache")})
        for name, comment in (("first", "one"), ("second", "two")):
            done = built(name, comment)
            assert done.returncode == 0, done.stdout + done.stderr


CLANG_PROJECT = """
rule pch
  command = ccache clang++ -x c++-header $in -o $out
rule cc
  command = ccache clang++ -include-pch all.h.pch -c $in -o $out
build all.h.pch: pch ../all.h
build one.o: cc ../one.cc | all.h.pch
"""


def a_precompiled_header_of_another_checkout_is_not_taken_from_the_cache():
    with tempfile.TemporaryDirectory() as folder:
        for name in ("one", "other"):
            checkout = os.path.join(folder, name)
            os.makedirs(f"{checkout}/build")
            for file, text in (("one.cc", "One one;\n"), ("all.h", "#pragma once\nstruct One {};\n"), ("build/build.ninja", CLANG_PROJECT)):
                with open(os.path.join(checkout, file), "w", encoding="utf-8") as out:
                    out.write(text)
            done = subprocess.run([sys.executable, os.path.join(ROOT, "deploy/build.py"), f"{checkout}/build"], capture_output=True, text=True,
                                  env={**os.environ, "CCACHE_DIR": os.path.join(folder, "cache")})
            assert done.returncode == 0, done.stdout + done.stderr
            shutil.rmtree(checkout)


TESTS = [a_precompiled_header_of_another_checkout_is_not_taken_from_the_cache, another_comment_in_a_header_is_another_precompiled_header, jobs_are_bounded_by_memory_and_one_is_always_possible, the_limit_of_a_cgroup_counts, what_is_left_is_estimated_from_what_is_done, in_a_file_there_is_one_line,
         on_a_terminal_one_line_is_overwritten, a_failure_is_shown_and_fails, the_report_has_the_cost,
         a_display_that_is_no_terminal_keeps_what_is_no_step]

if __name__ == "__main__":
    sys.exit(run_tap([(test.__name__, test) for test in TESTS]))
