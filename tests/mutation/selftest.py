#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutation testing of toy/, for which it is known which mutants are detected, hang, survive and are left out. Speaks TAP."""
import argparse
import os
import subprocess
import sys
import tempfile

import mutate
import points as P
import runs

TOY = os.path.join(mutate.HERE, "toy")
FILES = {"toy.cc": "toy", "toy.h": "toy"}
EQUIVALENT = ("toy.cc", "if (value > 10) return 10;", "comparison widened: value > 10, > becomes >=")
EXPECTED = {
    "statement dropped: ++calls": "survived",
    "condition negated: value > 10": "noticed",
    "bound off by one: value > [10 + 1]": "noticed",
    "condition negated: left > 0": "noticed",
    "comparison widened: left > 0, > becomes >=": "noticed",
    "bound off by one: left > [0 + 1]": "noticed",
    "statement dropped: left -= 1": "hung",
    "bound off by one: left -= [1 + 1]": "noticed",
    "condition negated: value < 3": "not covered",
    "comparison widened: value < 3, < becomes <=": "not covered",
    "bound off by one: value < [3 + 1]": "not covered",
    "bound off by one: value * [2 - 1]": "noticed",
    "bound off by one: value * [3 + 1]": "constant",
    "statement dropped: *open -= 1": "noticed",
    "bound off by one: *open -= [1 + 1]": "noticed",
    "release left out: close()": "noticed",
}


def toy_points():
    flags = ["-std=c++20", "-working-directory=" + TOY]
    found = P.points_of(TOY, os.path.join(TOY, "toy.cc"), flags, FILES)
    points = [p for file in sorted(found) for p in sorted(found[file], key=lambda p: (p["start"], p["end"], p["change"]))]
    for number, point in enumerate(points, 1):
        point["id"] = number
    return points


def built(folder, points):
    for file in (*FILES, "toy_test.cc"):
        with open(os.path.join(TOY, file), "rb") as source, open(os.path.join(folder, file), "wb") as target:
            target.write(P.with_mutants(source.read(), [p for p in points if p["file"] == file]))
    program = os.path.join(folder, "toy_test")
    sources = [os.path.join(folder, "toy.cc"), os.path.join(folder, "toy_test.cc"), os.path.join(mutate.HERE, "support", "reached.cc")]
    subprocess.run(["clang++", "-std=c++20", "-I", mutate.ROOT, *sources, "-o", program, "-lgtest_main", "-lgtest", "-lpthread"], check=True)
    return program


def main():
    checks = []
    points = toy_points()
    sample = mutate.Sample(points, FILES, argparse.Namespace(sample=0, seed=1), {EQUIVALENT})
    checks.append(("an equivalent mutant is left out", [p["change"] for p in sample.equivalent] == [EQUIVALENT[2]]))
    mutate.PATIENCE = {"least_s": 2, "factor": 10}
    mutate.say = lambda *words: print("# " + " ".join(words).replace("\n", "\n# "))
    with tempfile.TemporaryDirectory() as folder:
        program = built(folder, sample.points())
        tests, failing = runs.reached((program,))
        checks.append(("a test that fails without a mutant is left out and named", failing == ["Toy.fails_by_itself"] and len(tests) == 4))
        coverage = runs.Coverage()
        coverage.add((program,), tests)
        results = mutate.outcomes(coverage, sample.points(), 2)
    seen = {p["change"]: results[p["id"]][0] for p in sample.points()}
    for change in sorted(set(EXPECTED) | set(seen)):
        checks.append((f"{change} is '{EXPECTED.get(change)}'" + ("" if seen.get(change) == EXPECTED.get(change) else f", not '{seen.get(change)}'"),
                       seen.get(change) == EXPECTED.get(change)))
    score, survivors = mutate.report("toy", sample.points(), results, argparse.Namespace(threshold=0.9, seed=1))
    checks.append(("the report names survivors with file, line and change", "toy.cc:11: statement dropped: ++calls" in survivors))
    checks.append(("the score counts what hangs as noticed, and what is not covered as survived", abs(score - 11 / 15) < 1e-9))
    order = [p["change"] for p in mutate.ranked(points, 1)]
    checks.append(("a seed gives one order", order == [p["change"] for p in mutate.ranked(list(points), 1)] and order != [p["change"] for p in mutate.ranked(points, 2)]))
    print(f"1..{len(checks)}")
    for number, (what, good) in enumerate(checks, 1):
        print(f"{'ok' if good else 'not ok'} {number} - {what}")
    return 0 if all(good for _, good in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
