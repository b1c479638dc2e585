#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over everything that is delivered. Speaks TAP. clang_tidy.py SOURCE_ROOT BUILD_ROOT

A file that was clean is not looked at again until it, a header of the project or the configuration changes. The analyzer, which
takes long, runs with SLUICE_ANALYZE=1 in the environment only."""
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
FOLDERS = ("dataplane", "controlplane", "pmd", "cli", "telemetry")
STATE = os.path.join(BUILD, "clang-tidy")
CHECKS = [] if os.environ.get("SLUICE_ANALYZE") else ["--checks=-clang-analyzer-*"]
GCC_ONLY = ("-mmemset-strategy=", "-mmemcpy-strategy=")


def sources():
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    for entry in commands:
        entry["command"] = " ".join(word for word in entry["command"].split(" ") if not word.startswith(GCC_ONLY))
    with open(os.path.join(STATE, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(commands, file)
    found = {}
    for entry in commands:
        path = os.path.abspath(os.path.join(entry["directory"], entry["file"]))
        name = os.path.relpath(path, ROOT)
        if name.endswith(".cc") and name.split("/")[0] in FOLDERS:
            found[name] = entry["command"]
    return sorted(found.items())


def context():
    """What every file's result depends on besides itself."""
    digest = hashlib.sha256(open(os.path.join(ROOT, ".clang-tidy"), "rb").read() + repr(CHECKS).encode())
    for folder in FOLDERS:
        for where, _, names in sorted(os.walk(os.path.join(ROOT, folder))):
            for name in sorted(names):
                if name.endswith(".h"):
                    digest.update(open(os.path.join(where, name), "rb").read())
    return digest.digest()


def check(item):
    name, command = item
    digest = hashlib.sha256(CONTEXT + command.encode() + open(os.path.join(ROOT, name), "rb").read()).hexdigest()
    stamp = os.path.join(STATE, digest)
    if os.path.exists(stamp):
        return name, ""
    done = subprocess.run(["clang-tidy", "--quiet", "-p", STATE, "--extra-arg=-Wno-unknown-warning-option", *CHECKS,
                           os.path.join(ROOT, name)], capture_output=True, text=True)
    if done.returncode == 0:
        open(stamp, "w", encoding="ascii").close()
        return name, ""
    return name, done.stdout or done.stderr


CONTEXT = context()
os.makedirs(STATE, exist_ok=True)
ITEMS = sources()
print(f"1..{len(ITEMS)}", flush=True)
failed = 0
with ThreadPoolExecutor(os.cpu_count()) as pool:
    for number, (name, findings) in enumerate(pool.map(check, ITEMS), 1):
        print(f"{'not ok' if findings else 'ok'} {number} {name}", flush=True)
        failed += bool(findings)
        for line in findings.splitlines():
            print("# " + line.replace(ROOT + "/", ""))
sys.exit(1 if failed else 0)
