#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Style by tools, not by review. Speaks TAP. tidy.py SOURCE_ROOT BUILD_ROOT"""
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT, BUILD = sys.argv[1:3]
FOLDERS = ("dataplane", "controlplane", "pmd", "cli", "telemetry", "tests", "deploy")
TOP_LEVEL = {"meson.build", "README.md", "LICENSE", *FOLDERS}


def tracked():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
    if len(files) < 2:  # no checkout: what is there
        files = [os.path.relpath(os.path.join(d, f), ROOT) for folder in FOLDERS
                 for d, _, names in os.walk(os.path.join(ROOT, folder)) for f in names]
    return [f for f in files if f and os.path.exists(os.path.join(ROOT, f))]


FILES = tracked()
CODE = [f for f in FILES if f.endswith((".cc", ".h"))]
SCRIPTED = CODE + [f for f in FILES if f.endswith((".py", ".sh", ".x", "meson.build"))]


def text_of(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def top_level_is_fixed():
    return [f for f in {f.split("/")[0] for f in FILES} if not f.startswith(".") and f not in TOP_LEVEL]


def every_source_says_its_license():
    return [f for f in SCRIPTED if "SPDX-License-Identifier: Apache-2.0" not in text_of(f)[:400]]


def sources_are_formatted():
    done = subprocess.run(["clang-format", "--dry-run", "-Werror", *CODE], cwd=ROOT, capture_output=True, text=True)
    return sorted(set(re.findall(r"^(\S+?):\d+", done.stderr, re.M)))


def no_path_of_a_machine():
    pattern = re.compile(r"/(home|root|work)/\w")
    return [f for f in SCRIPTED if pattern.search(text_of(f)) and not f.endswith("tidy.py")]


def headers_compile_alone():
    """Those are known to that a source includes before anything else."""
    proven = {included.group(1) for f in CODE if f.endswith(".cc") for included in [re.search(r'^#include ["<]([^">]+)', text_of(f), re.M)] if included}
    flags = []
    for entry in json.load(open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8")):
        flags += [f for f in re.findall(r"-(?:isystem\s?|I)\S+", entry["command"])]
    unique = " ".join(sorted(set(flags))).split()

    def check(header):
        done = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", "-x", "c++", '-DSLUICE_VERSION=""', *unique, f"-I{ROOT}", "-include",
                               os.path.join(ROOT, header), "/dev/null"], cwd=BUILD, capture_output=True, text=True)
        return None if done.returncode == 0 else f"{header}: {done.stderr.splitlines()[0] if done.stderr else ''}"

    with ThreadPoolExecutor(2) as pool:
        return [r for r in pool.map(check, [f for f in CODE if f.endswith(".h") and f not in proven]) if r]


def includes_point_one_way():
    """Drivers know nothing of RPC; the transport knows no driver; lower folders do not include upper ones."""
    rules = [("pmd/", ("dataplane/", "controlplane/", "cli/", "telemetry/")),
             ("dataplane/xdr/", ("dataplane/rpc", "dataplane/service", "dataplane/reactor", "pmd/", "controlplane/")),
             ("dataplane/rpc/", ("dataplane/rpcrdma", "dataplane/service", "dataplane/reactor", "pmd/", "controlplane/")),
             ("dataplane/rpcrdma/", ("dataplane/reactor", "pmd/loopback", "controlplane/", "cli/")),
             ("dataplane/segment/", ("dataplane/rpcrdma", "dataplane/service", "dataplane/reactor", "controlplane/")),
             ("dataplane/service/", ("dataplane/reactor", "pmd/loopback", "controlplane/", "cli/")),
             ("telemetry/", ("dataplane/reactor", "dataplane/service", "dataplane/rpcrdma", "cli/"))]
    wrong = []
    for name in CODE:
        for folder, forbidden in rules:
            if not name.startswith(folder):
                continue
            for included in re.findall(r'#include "([^"]+)"', text_of(name)):
                if included.startswith(forbidden):
                    wrong.append(f"{name} includes {included}")
    return wrong


def main():
    checks = [top_level_is_fixed, every_source_says_its_license, sources_are_formatted, no_path_of_a_machine,
              includes_point_one_way, headers_compile_alone]
    print(f"1..{len(checks)}")
    failed = False
    for number, check in enumerate(checks, 1):
        wrong = check()
        print(f"{'not ok' if wrong else 'ok'} {number} {check.__name__}", flush=True)
        for line in wrong[:20]:
            print(f"# {line}")
        failed = failed or bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
