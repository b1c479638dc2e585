#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over everything that is delivered. Speaks TAP. clang_tidy.py SOURCE_ROOT BUILD_ROOT

A file that was clean is not looked at again until it, a header of the project that it includes, its command or the configuration
changes. The analyzer, which takes long, runs with SLUICE_ANALYZE=1 in the environment only."""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from layers import project_includes
from tree import Tree

TREE, BUILD = Tree(sys.argv[1]), os.path.abspath(sys.argv[2])
FOLDERS = ("dataplane", "controlplane", "pmd", "cli", "telemetry")
STATE = os.path.join(BUILD, "clang-tidy")
CONFIGURATION = os.path.join(TREE.root, ".clang-tidy")
CHECKS = [] if os.environ.get("SLUICE_ANALYZE") else ["--checks=-clang-analyzer-*"]
GCC_ONLY = ("-mmemset-strategy=", "-mmemcpy-strategy=")


def sources():
    """(name, command) of each; leaves the commands where clang-tidy looks for them, without what clang does not know."""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    for entry in commands:
        entry["command"] = " ".join(word for word in entry["command"].split(" ") if not word.startswith(GCC_ONLY))
    with open(os.path.join(STATE, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(commands, file)
    found = {}
    for entry in commands:
        name = os.path.relpath(os.path.join(entry["directory"], entry["file"]), TREE.root)
        if name.endswith(".cc") and name.split("/")[0] in FOLDERS:
            found[name] = entry["command"]
    return sorted(found.items())


def with_headers(name):
    """The file and those of the project that it includes."""
    found, left = set(), [name]
    while left:
        current = left.pop()
        if current not in found and os.path.exists(os.path.join(TREE.root, current)):
            found.add(current)
            left += project_includes(TREE, current)
    return sorted(found)


def stamp_of(name, command):
    """Where it is noted that all this was clean."""
    with open(CONFIGURATION, "rb") as file:
        digest = hashlib.sha256(file.read() + repr((CHECKS, command)).encode())
    for part in with_headers(name):
        digest.update(f"\n{part}\n{TREE.text(part)}".encode())
    return os.path.join(STATE, digest.hexdigest())


def clang_tidy(*arguments):
    done = subprocess.run(["clang-tidy", "--quiet", *CHECKS, *arguments], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout or done.stderr or "fails"


def check(item):
    name, command = item
    stamp = stamp_of(name, command)
    if os.path.exists(stamp):
        return name, ""
    findings = clang_tidy("-p", STATE, "--extra-arg=-Wno-unknown-warning-option", os.path.join(TREE.root, name))
    if not findings:
        open(stamp, "w", encoding="ascii").close()
    return name, findings


def notices_a_finding():
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "null.cc")
        with open(source, "w", encoding="utf-8") as file:
            file.write("int* none() { return 0; }\n")
        said = clang_tidy(f"--config-file={CONFIGURATION}", source, "--", "-std=c++20")
    return "" if "modernize-use-nullptr" in said else said or "a pointer that is 0 was not noticed"


def main():
    if not shutil.which("clang-tidy"):
        print("1..0 # SKIP clang-tidy is not installed")
        return 0
    os.makedirs(STATE, exist_ok=True)
    items = sources()
    print(f"1..{len(items) + 1}", flush=True)
    failed = False
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = [("notices_a_finding", notices_a_finding())]
        for number, (name, findings) in enumerate((result for part in (results, pool.map(check, items)) for result in part), 1):
            print(f"{'not ok' if findings else 'ok'} {number} {name}", flush=True)
            failed = failed or bool(findings)
            for line in findings.splitlines():
                print("# " + line.replace(TREE.root + "/", ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
