#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Preprocessed lines of the product's sources: what a compiler reads for each. Speaks TAP.

build_lines.py SOURCE_ROOT BUILD_ROOT                  fails for a source above the limit of its folder (build_lines.toml)
build_lines.py SOURCE_ROOT BUILD_ROOT --list [PREFIX]  prints the lines of each source, most first, and their sum
build_lines.py SOURCE_ROOT BUILD_ROOT --headers FILE   prints which headers the lines of a source come from

Lines that are not empty count. Precompiled headers are left out, so that a source includes what it uses."""
import collections
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib

FOLDERS = ("dataplane/", "controlplane/", "pmd/", "cli/", "telemetry/")
LINE_MARKER = re.compile(r'# \d+ "(.*?)"')


def preprocessor(command):
    """The words that preprocess what `command` compiles."""
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


def lines_by_header(entry):
    done = subprocess.run(preprocessor(entry["command"]), cwd=entry["directory"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{entry['file']}: {done.stderr[:2000]}")
    lines, header = collections.Counter(), None
    for line in done.stdout.splitlines():
        if marker := LINE_MARKER.match(line):
            header = marker[1]
        elif line.strip():
            lines[header] += 1
    return lines


def sources(root, build):
    """(source, entry of the compilation database) of each object of the product, without sources of tests and generated ones."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:
        source = os.path.relpath(os.path.join(entry["directory"], entry["file"]), root)
        if source.startswith(FOLDERS) and source.endswith(".cc") and not entry["output"].startswith("tests/"):
            yield source, entry


def measured(root, build, prefix=""):
    chosen = [(source, entry) for source, entry in sources(root, build) if source.startswith(prefix)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = pool.map(lambda pair: sum(lines_by_header(pair[1]).values()), chosen)
        return sorted(((count, source) for count, (source, _) in zip(counts, chosen)), reverse=True)


def limit_of(source, limits):
    """The limit of the innermost folder that has one."""
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
    found = measured(root, build, sys.argv[4] if len(sys.argv) > 4 else "")
    total = sum(count for count, _ in found)
    if sys.argv[3:4] == ["--list"]:
        for count, source in found:
            print(f"{count:7}  {source}")
        print(f"{total:7}  {len(found)} objects")
        return 0
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "build_lines.toml"), "rb") as file:
        limits = tomllib.load(file)
    wrong = [f"{source} has {count} preprocessed lines, more than {limit_of(source, limits['lines'])}" for count, source in found
             if count > limit_of(source, limits["lines"])]
    if total > limits["total"]:
        wrong.append(f"All sources together have {total} preprocessed lines, more than {limits['total']}")
    print("1..1")
    print(f"{'not ok' if wrong else 'ok'} 1 sources_include_what_they_need")
    for line in wrong[:40]:
        print(f"# {line}")
    if wrong:
        print("# Include smaller headers, or forward-declare: build_lines.py --headers FILE says where the lines come from.")
    print(json.dumps({"figure": "product_build_lines", "value": round(total / 1e6, 2), "unit": "million", "objects": len(found), "goal": 9}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
