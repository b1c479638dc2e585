#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: changes one line at a time, and reports the changes that no test detects. README.md describes its use."""
import argparse
import fnmatch
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

try:
    import clang.cindex  # noqa: F401
except ImportError:  # Debian's package belongs to the system interpreter
    if sys.executable == "/usr/bin/python3" or not os.path.exists("/usr/bin/python3"):
        sys.exit("Mutation testing needs libclang's bindings: install python3-clang.")
    os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])

import points as P
import runs
import tree as T

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GOAL = 0.90
TRANSPORT = ["rpc_message", "rpcrdma_*", "message_path_allocation", "v1_conformance*", "v2_conformance*", "handover"]
# The tests that may detect a mutant of a folder: names of meson tests, with * as a wildcard. Only tests that are about the folder are listed,
# because everything that includes a mutated header has to be compiled.
FOLDERS = {
    "dataplane/base": ["base", "segment", *TRANSPORT],
    "dataplane/xdr": TRANSPORT,
    "dataplane/rpc": TRANSPORT,
    "dataplane/rpcrdma": TRANSPORT,
    "dataplane/segment": ["segment"],
    "dataplane/gateway/tcp_upstream": ["forward"],
    "pmd/softroce": ["roce_wire", "softroce_parts", "softroce", "softroce_driver"],
}
PATIENCE = {"least_s": 20, "factor": 10}  # a longer run counts as hung


def say(*words):
    print(*words, flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wanted", nargs="*", metavar="FOLDER|FILE", help="what to mutate; default: " + " ".join(FOLDERS))
    parser.add_argument("--sample", type=int, default=60, help="mutants of each folder; 0 for all there are (default: %(default)s)")
    parser.add_argument("--run", type=int, default=0, metavar="N", help="run only so many of each folder's sample, when time is short")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="compilers, and mutants, at once (default: %(default)s)")
    parser.add_argument("--work", default=os.path.join(ROOT, "build-mutate"), help="where the mutated tree is kept (default: build-mutate)")
    parser.add_argument("--again", action="store_true", help="rebuilds the tests in the tree of the last run, and runs its survivors again")
    parser.add_argument("--junit", metavar="FILE", help="writes the scores as test results")
    parser.add_argument("--threshold", type=float, default=GOAL, help="the score that a folder must reach (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="prints the mutants of the sample and ends")
    return parser.parse_args()


def chosen(wanted):
    """Returns {file: folder} of the sources to mutate."""
    files = {}
    for folder in FOLDERS:
        for path, _, names in os.walk(os.path.join(ROOT, folder)):
            below = os.path.relpath(path, ROOT)
            for name in sorted(names):
                file = f"{below}/{name}"
                if name.endswith((".cc", ".h")) and (not wanted or {folder, below, file} & set(wanted)):
                    files[file] = folder
    left = [w for w in wanted if w not in files and not any(f.startswith(w.rstrip("/") + "/") for f in files)]
    if left:
        raise T.Problem(f"{left[0]} is none of {', '.join(FOLDERS)}, and no source file in one of them.")
    return files


def equivalents(path=os.path.join(HERE, "equivalent.txt")):
    """Returns [{file, line, change, why}] from paragraphs of 'key: value' lines."""
    entries = []
    with open(path, encoding="utf-8") as file:
        text = "\n".join(line for line in file.read().splitlines() if not line.startswith("#"))
    for paragraph in filter(None, (p.strip() for p in text.split("\n\n"))):
        entry = dict(line.split(": ", 1) for line in paragraph.splitlines())
        if set(entry) != {"file", "line", "change", "why"}:
            raise T.Problem(f"equivalent.txt: each paragraph has file, line, change and why; this has {sorted(entry)}: {paragraph[:80]}")
        entries.append(entry)
    return entries


def parsed(job):
    unit, flags, files, root = job
    return P.points_of(root, unit, flags, files)


class Found:
    """Returns all_points() and which of them do not compile. The result is cached in the tree until a source changes."""

    def __init__(self, tree, files):
        self.path = os.path.join(tree.work, "points.json")
        self.sources = {f: digest(os.path.join(ROOT, f)) for f in [*files, "tests/mutation/points.py"]}
        self.points, self.rejected = None, set()
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                kept = json.load(file)
            if kept["sources"] == self.sources:
                self.points, self.rejected = kept["points"], set(kept.get("rejected", []))
        if self.points is None:
            self.points = all_points(tree, files)
            self.keep(set())

    def keep(self, rejected):
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump({"sources": self.sources, "points": self.points, "rejected": sorted(rejected)}, file)


def all_points(tree, files):
    """Returns every mutation point of the files, numbered in the order of the source."""
    units = tree.units()
    any_flags = next((f for u, f in units.items() if u.startswith("pmd/softroce/")), next(iter(units.values())))
    sources = [f for f in files if f.endswith(".cc")]
    jobs = [(os.path.join(tree.source, f), units.get(f, any_flags), frozenset(files), os.path.realpath(tree.source)) for f in sources]
    found = {}
    with multiprocessing.Pool(tree.jobs) as pool:
        for result in pool.imap_unordered(parsed, jobs):
            found.update({name: points for name, points in result.items() if name not in found})
        alone = [f for f in files if f not in found]  # headers that no source of the folder includes
        for result in pool.imap_unordered(parsed, [(os.path.join(tree.source, f), ["-xc++", *units.get(f, any_flags)], frozenset([f]), os.path.realpath(tree.source)) for f in alone]):
            found.update(result)
    points = [p for f in sorted(found) for p in sorted(found[f], key=lambda p: (p["start"], p["end"], p["change"]))]
    for number, point in enumerate(points, 1):
        point["id"] = number
    return points


def ranked(points, seed):
    """Returns the points in a random order. The rank of a point depends only on the seed, not on changes at other places of the file."""
    seen = Counter()

    def rank(point):
        key = (point["file"], point["text"], point["change"])
        seen[key] += 1
        return hashlib.sha256(repr((seed, *key, seen[key])).encode()).hexdigest()

    return [point for _, point in sorted(((rank(p), p) for p in points), key=lambda pair: pair[0])]


class Sample:
    """The mutants of one run. One that does not compile is replaced by the next by rank. Equivalent ones are built but not run, so that adding
    one to the list does not change the tree."""

    def __init__(self, points, files, options, known_equivalent):
        self.size = options.sample
        self.equivalent = [p for p in points if (p["file"], p["text"], p["change"]) in known_equivalent]
        self.same = {p["id"] for p in self.equivalent}
        self.queues = defaultdict(list)
        for point in ranked(points, options.seed):
            self.queues[files[point["file"]]].append(point)
        self.rejected = set()

    def built_of(self, folder):
        built, counted = [], 0
        for point in self.queues[folder]:
            if self.size and counted == self.size:
                break
            if point["id"] not in self.rejected:
                built.append(point)
                counted += point["id"] not in self.same
        return built

    def of(self, folder):
        return [p for p in self.built_of(folder) if p["id"] not in self.same]

    def points(self):
        return [p for folder in self.queues for p in self.of(folder)]

    def sources(self, tree):
        by_file = defaultdict(list)
        for folder in self.queues:
            for point in self.built_of(folder):
                by_file[point["file"]].append(point)
        mutated = {}
        for name, points in by_file.items():
            with open(os.path.join(tree.root, name), "rb") as file:
                mutated[name] = P.with_mutants(file.read(), points)
        return mutated


def build(tree, sample, programs):
    """Checks the mutated sources first, and builds when all of them compile."""
    while True:
        mutated = sample.sources(tree)
        tree.copy(mutated)
        rejected, unknown = tree.check(mutated)
        if not rejected and not unknown:
            rejected, unknown = tree.compile(programs)
            if not rejected:
                return
        if unknown and not rejected:
            raise T.Problem("A mutated source does not compile, at a place without a mutant: " + ", ".join(unknown[:3]))
        sample.rejected |= rejected


def covered(programs, jobs):
    coverage = runs.Coverage()
    with ThreadPoolExecutor(jobs) as pool:
        for command, (tests, failing) in zip(programs, pool.map(runs.reached, programs)):
            coverage.add(command, tests)
            for name in failing:
                say(f"   left out, since it fails without a mutant: {runs.title(command)} {name}")
    return coverage


def outcomes(coverage, points, jobs):
    """Returns {number: (outcome, test that detected it)}."""
    results, begun = {}, time.monotonic()

    def one(point):
        result = runs.outcome(coverage, point["id"], PATIENCE)
        if result[0] == "not covered" and point["constant"]:  # not reached by any test because only the compiler evaluates it
            result = "constant", ""
        results[point["id"]] = result
        if len(results) % 20 == 0:
            counts = Counter(o for o, _ in results.values())
            say(f"   {len(results)} of {len(points)} after {time.monotonic() - begun:.0f} s: " + ", ".join(f"{n} {o}" for o, n in counts.items()))

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, points))
    return results


def report(folder, points, results, options):
    """Prints the survivors and the score; returns (score, text of the survivors)."""
    say(f"== {folder}")
    points = [p for p in points if results[p["id"]][0] != "constant"]
    counts = Counter(results[p["id"]][0] for p in points)
    noticed = counts["noticed"] + counts["hung"]
    lines = []
    for point in sorted(points, key=lambda p: (p["file"], p["line"])):
        result, by = results[point["id"]]
        if result in ("survived", "not covered"):
            lines.append(f"{point['file']}:{point['line']}: {point['change']}\n      {point['text']}\n      " +
                         ("reached by no test" if result == "not covered" else f"survived {by}"))
    for line in lines:
        say("   " + line)
    score = noticed / len(points)
    say(json.dumps({"figure": "mutation_score_" + folder.split("/")[-1], "value": round(score, 3), "unit": "ratio", "goal": options.threshold,
                    "mutants": len(points), "seed": options.seed, "noticed": counts["noticed"], "hung": counts["hung"], "survived": counts["survived"],
                    "not_covered": counts["not covered"]}))
    return score, "\n".join(lines)


def write_junit(path, scores, threshold):
    suite = ElementTree.Element("testsuite", name="mutation", tests=str(len(scores)), failures=str(sum(s < threshold for s, _ in scores.values())))
    for folder, (score, survivors) in scores.items():
        case = ElementTree.SubElement(suite, "testcase", classname="mutation", name=folder)
        if score < threshold:
            ElementTree.SubElement(case, "failure", message=f"{score:.2f} of the mutants were noticed, below {threshold}").text = survivors
        else:
            ElementTree.SubElement(case, "system-out").text = f"{score:.3f}\n{survivors}"
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.ElementTree(root).write(path, encoding="unicode", xml_declaration=True)


def stale(entries, points):
    there = {(p["file"], p["text"], p["change"]) for p in points}
    files = {p["file"] for p in points}
    return [e for e in entries if e["file"] in files and (e["file"], e["line"], e["change"]) not in there]


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class State:
    """The sources and results of a run, for --again."""

    def __init__(self, work):
        self.path = os.path.join(work, "state.json")

    def save(self, results, points, sample_files):
        rows = [{**p, "outcome": results[p["id"]][0], "by": results[p["id"]][1]} for p in points]
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump({"sources": {f: digest(os.path.join(ROOT, f)) for f in sample_files}, "results": rows}, file, indent=1)

    def load(self):
        if not os.path.exists(self.path):
            raise T.Problem("--again needs an earlier run.")
        with open(self.path, encoding="utf-8") as file:
            kept = json.load(file)
        for name, known in kept["sources"].items():
            if digest(os.path.join(ROOT, name)) != known:
                raise T.Problem(f"{name} has changed since the last run: run without --again.")
        return kept


def programs_for(tree, folders):
    patterns = {name for folder in folders for name in FOLDERS[folder]}
    return tree.programs({t["name"] for t in tree.introspect("--tests") if any(fnmatch.fnmatch(t["name"], p) for p in patterns)})


def once_more(tree, files, state, known_equivalent, options):
    """Runs the survivors of the last run again, in its tree but with the current tests."""
    kept = state.load()
    mutated = {}
    for name in kept["sources"]:
        with open(os.path.join(tree.source, name), "rb") as file:
            mutated[name] = file.read()
    tree.copy(mutated)
    tree.configure()
    folders = sorted({files[p["file"]] for p in kept["results"] if p["file"] in files})
    programs = programs_for(tree, folders)
    say(f"== building {len(programs)} test programs in the tree of the last run")
    if tree.compile(list(programs.values()))[0]:
        raise T.Problem(f"The tree no longer builds; see {tree.log}.")
    results = {p["id"]: (p["outcome"], p["by"]) for p in kept["results"]}
    points = [p for p in kept["results"] if p["file"] in files and (p["file"], p["text"], p["change"]) not in known_equivalent]
    left = [p for p in points if p["outcome"] in ("survived", "not covered")]
    say(f"== running {len(left)} survivors")
    results.update(outcomes(covered(list(programs.values()), options.jobs), left, options.jobs))
    state.save(results, kept["results"], kept["sources"])
    return {folder: report(folder, [p for p in points if files[p["file"]] == folder], results, options) for folder in folders}


def first_time(tree, files, state, entries, options):
    begun = time.monotonic()
    tree.copy({})
    tree.configure()
    found = Found(tree, files)
    for entry in stale(entries, found.points):
        raise T.Problem(f"equivalent.txt: {entry['file']} no longer has this mutant: {entry['change']} in '{entry['line']}'")
    sample = Sample(found.points, files, options, {(e["file"], e["line"], e["change"]) for e in entries})
    sample.rejected = found.rejected
    folders = sorted(set(files.values()))
    say(f"== {len(found.points)} mutation points, {len(sample.equivalent)} of the sample equivalent; seed {options.seed}")
    if options.list:
        for point in sorted(sample.points(), key=lambda p: (p["file"], p["line"])):
            say(f"{point['file']}:{point['line']}: {point['change']}")
        return {}
    programs = programs_for(tree, folders)
    say(f"== building {len(programs)} test programs with {len(sample.points())} mutants: {' '.join(sorted(programs))}")
    build(tree, sample, list(programs.values()))
    found.keep(sample.rejected)
    say(f"== {time.monotonic() - begun:.0f} s; {len(sample.rejected)} mutants do not compile and were replaced; finding out which test reaches which")
    coverage = covered(list(programs.values()), options.jobs)
    run = {folder: sample.of(folder)[:options.run or None] for folder in folders}
    points = [p for folder in folders for p in run[folder]]
    say(f"== {time.monotonic() - begun:.0f} s; running {len(points)} mutants")
    results = outcomes(coverage, points, options.jobs)
    state.save(results, points, sorted({p["file"] for f in folders for p in sample.built_of(f)}))
    scores = {folder: report(folder, points, results, options) for folder, points in run.items() if points}
    say(f"== {time.monotonic() - begun:.0f} s in all")
    return scores


def main():
    options = arguments()
    files = chosen(options.wanted)
    tree = T.Tree(ROOT, os.path.abspath(options.work), options.jobs, say)
    state = State(tree.work)
    entries = equivalents()
    if options.again:
        scores = once_more(tree, files, state, {(e["file"], e["line"], e["change"]) for e in entries}, options)
    else:
        scores = first_time(tree, files, state, entries, options)
    if options.junit:
        write_junit(options.junit, scores, options.threshold)
    return 1 if any(score < options.threshold for score, _ in scores.values()) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        sys.exit(main())
    except T.Problem as problem:
        sys.exit(str(problem))
