#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the lines that a compiler reads for each source of the product, without precompiled headers. Speaks TAP.

build_lines.py SOURCE_ROOT BUILD_ROOT                  fails for a source above the limit of its folder (build_lines.toml), and for a source
                                                       that does not compile without a precompiled header
build_lines.py SOURCE_ROOT BUILD_ROOT --list [PREFIX]  prints the lines of each source, most first, and their sum
build_lines.py SOURCE_ROOT BUILD_ROOT --headers FILE   prints which headers the lines of a source come from

Only preprocessed lines that are not empty count. A source that has compiled is compiled again only after its preprocessed text has changed."""
import collections
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib

import commands

FOLDERS = ("dataplane/", "controlplane/", "pmd/", "cli/", "telemetry/")
# Programs that are built only if their libraries are installed. Their sources have limits, and are not in the sum.
OPTIONAL = ("cli/card_check/",)
LINE_MARKER = re.compile(r'# \d+ "(.*?)"')


def preprocessor(command):
    """Returns the command that preprocesses the source that `command` compiles."""
    words = [word for word in shlex.split(command) if os.path.basename(word) != "ccache"]
    kept, skip = [], False
    for at, word in enumerate(words):
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MQ") or (word == "-include" and words[at + 1] != "rte_config.h"):
            skip = True
        elif word not in ("-c", "-MD", "-fpch-preprocess", "-fpch-deps"):
            kept.append(word)
    return [*kept, "-E"]


def preprocessed(entry):
    done = subprocess.run(preprocessor(entry["command"]), cwd=entry["directory"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{entry['file']}: {done.stderr[:2000]}")
    return done.stdout


def lines_by_header(entry):
    lines, header = collections.Counter(), None
    for line in preprocessed(entry).splitlines():
        if marker := LINE_MARKER.match(line):
            header = marker[1]
        elif line.strip():
            lines[header] += 1
    return lines


def count_lines(text):
    return sum(bool(line.strip()) and not LINE_MARKER.match(line) for line in text.splitlines())


def first_error(entry, text):
    """Returns the compiler's first error for preprocessed text, or None."""
    words = [word for word in preprocessor(entry["command"]) if word != "-E" and not word.endswith(".cc") and not word.startswith("-O")]
    done = subprocess.run([*words, "-w", "-fpreprocessed", "-fsyntax-only", "-x", "c++-cpp-output", "-"], cwd=entry["directory"], input=text,
                          capture_output=True, text=True)
    return None if done.returncode == 0 else next((line for line in done.stderr.splitlines() if "error" in line), "fails")


def sources(root, build):
    """Yields (source, entry of the compilation database) of each object of the product, without tests and generated sources."""
    for entry in commands.entries(build):
        source = os.path.relpath(os.path.join(entry["directory"], entry["file"]), root)
        if source.startswith(FOLDERS) and source.endswith(".cc") and not entry["output"].startswith("tests/"):
            yield source, entry


def measured(root, build, prefix=""):
    """Returns (lines, source) of each source, most lines first."""
    chosen = [(source, entry) for source, entry in sources(root, build) if source.startswith(prefix)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = pool.map(lambda pair: count_lines(preprocessed(pair[1])), chosen)
        return sorted(((count, source) for count, (source, _) in zip(counts, chosen)), reverse=True)


def check(root, build, known):
    """Returns (lines, source, error or None, digest) of each source. `known` has the digests of sources that have compiled before."""
    def check_one(pair):
        source, entry = pair
        text = preprocessed(entry)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return count_lines(text), source, None if digest in known else first_error(entry, text), digest

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(check_one, sources(root, build)))


def compiled_before(path):
    try:
        with open(path, encoding="utf-8") as file:
            return set(json.load(file))
    except (OSError, ValueError):
        return set()


def limit_of(source, limits):
    """Returns the limit of the innermost folder that has one."""
    folder = os.path.dirname(source)
    while folder and folder not in limits:
        folder = os.path.dirname(folder)
    return limits.get(folder, 0)


def main():
    root, build = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    if sys.argv[3:4] == ["--headers"]:
        entry = next(entry for source, entry in sources(root, build) if source == sys.argv[4])
        for header, count in lines_by_header(entry).most_common(60):
            print(f"{count:7}  {header}")
        return 0
    if sys.argv[3:4] == ["--list"]:
        found = measured(root, build, sys.argv[4] if len(sys.argv) > 4 else "")
        for count, source in found:
            print(f"{count:7}  {source}")
        print(f"{sum(count for count, source in found if not source.startswith(OPTIONAL)):7}  {len(found)} objects")
        return 0
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "build_lines.toml"), "rb") as file:
        limits = tomllib.load(file)
    memory = os.path.join(build, "compiled-without-pch.json")
    found = check(root, build, compiled_before(memory))
    with open(memory, "w", encoding="utf-8") as file:
        json.dump([digest for _, _, error, digest in found if error is None], file)
    total = sum(count for count, source, *_ in found if not source.startswith(OPTIONAL))
    long = [f"{source} has {count} preprocessed lines, more than {limit_of(source, limits['lines'])}" for count, source, *_ in found
            if count > limit_of(source, limits["lines"])]
    if total > limits["total"]:
        long.append(f"All sources together have {total} preprocessed lines, more than {limits['total']}")
    if long:
        long.append("Include smaller headers, or declare what is only referred to: --headers SOURCE says where the lines come from.")
    broken = [f"{source} does not compile without a precompiled header: {error}" for _, source, error, _ in found if error]
    print("1..2")
    for number, (name, wrong) in enumerate([("sources_read_no_more_than_their_folder_may", long), ("sources_include_what_they_use", broken)], 1):
        print(f"{'not ok' if wrong else 'ok'} {number} {name}")
        for line in wrong[:40]:
            print(f"# {line}")
    print("# " + json.dumps({"figure": "product_build_lines", "value": round(total / 1e6, 2), "unit": "million", "objects": sum(not source.startswith(OPTIONAL) for _, source, *_ in found), "goal": 9}))
    return 1 if long or broken else 0


if __name__ == "__main__":
    sys.exit(main())
