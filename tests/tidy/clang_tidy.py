#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on all sources of the product. Speaks TAP.

clang_tidy.py SOURCE_ROOT BUILD_ROOT

System headers take most of the time, so the sources of a folder are checked as one translation unit. If that has findings, which may
be caused by the combination, each source is checked alone, and only these findings count. A file without findings is checked again
only after it, a header of the project that it includes, its flags or the configuration has changed. Checks that inspect only the main
file find nothing this way. In .clang-tidy that is misc-unused-using-decls, which tidy.py replaces.

The folders that were changed last are checked first. In a run with a deadline (SLUICE_TEST_DEADLINE, seconds since 1970) no check
begins in the second half of the time that was left at the start. The remaining files are skipped; earlier runs have checked them.

With SLUICE_ANALYZE=1 in the environment each file is checked alone and by the analyzer, which takes long."""
import collections
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import commands
from layers import project_includes
from tree import Tree

FOLDERS = ("dataplane", "controlplane", "pmd", "cli", "telemetry")
ANALYZE = bool(os.environ.get("SLUICE_ANALYZE"))
CHECKS = [] if ANALYZE else ["--checks=-clang-analyzer-*"]
DEADLINE = float(os.environ.get("SLUICE_TEST_DEADLINE") or "inf")
LEFT_OUT = object()
NAMES_A_FILE = ("-o", "-c", "-MF", "-MQ", "-MT")
NOT_FOR_CLANG = ("-MD", "-mmemset-strategy=", "-mmemcpy-strategy=", "-femit-class-debug-always", "-fpch-", "-Winvalid-pch")
PRECOMPILED = re.compile(r"(^| )-include \S+_pch\.h(?= |$)")


def flags_of(command):
    """Returns the flags of a compile command, without the compiler, the files and a precompiled header."""
    words = shlex.split(PRECOMPILED.sub(" ", command))
    while words and not words[0].startswith("-"):  # the compiler, possibly after ccache
        words.pop(0)
    left = [word for before, word in zip([""] + words, words) if before not in NAMES_A_FILE and word not in NAMES_A_FILE]
    return tuple(word for word in left if not word.startswith(NOT_FOR_CLANG))


class ClangTidy:
    def __init__(self, tree, build):
        self.tree, self.build = tree, os.path.abspath(build)
        self.state = os.path.join(self.build, "clang-tidy")
        self.configuration = os.path.join(tree.root, ".clang-tidy")
        self.last_begin = (time.time() + DEADLINE) / 2
        os.makedirs(self.state, exist_ok=True)

    def groups(self):
        """Returns (sources, flags) of each group that can be one translation unit: sources of one folder with the same flags."""
        found = collections.defaultdict(dict)
        known = set()
        for entry in commands.entries(self.build):
            name = os.path.relpath(os.path.join(entry["directory"], entry["file"]), self.tree.root)
            if name.endswith(".cc") and name.split("/")[0] in FOLDERS and name not in known:
                known.add(name)
                found[os.path.dirname(name), flags_of(entry["command"])][name] = None
        age = self.age_of_folders()
        oldest = len(age)
        return sorted(((sorted(names), flags) for (_, flags), names in found.items()),
                      key=lambda group: (age.get(os.path.dirname(group[0][0]), oldest), -len(group[0])))

    def age_of_folders(self):
        """Returns the rank of each folder by its last change, newest first. Empty if there is no history."""
        changed = subprocess.run(["git", "log", "--format=", "--name-only"], cwd=self.tree.root, capture_output=True, text=True).stdout
        return {folder: age for age, folder in enumerate(dict.fromkeys(map(os.path.dirname, changed.splitlines())))}

    def with_headers(self, name):
        """Returns the file and the headers of the project that it includes, directly or indirectly."""
        found, left = set(), [name]
        while left:
            current = left.pop()
            if current not in found and os.path.isfile(os.path.join(self.tree.root, current)):
                found.add(current)
                left += project_includes(self.tree, current)
        return sorted(found)

    def stamp(self, name, flags):
        """Returns the path of the marker file, which exists if the file had no findings with its current contents, headers and flags."""
        with open(self.configuration, "rb") as file:
            digest = hashlib.sha256(file.read() + repr((CHECKS, flags)).encode())
        for part in self.with_headers(name):
            digest.update(f"\n{part}\n{self.tree.text(part)}".encode())
        return os.path.join(self.state, digest.hexdigest())

    def run(self, source, flags):
        done = subprocess.run(["clang-tidy", "--quiet", *CHECKS, f"--config-file={self.configuration}", source, "--", *flags,
                               "-Wno-unknown-warning-option"], cwd=self.build, capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stdout or done.stderr or "clang-tidy fails"

    def together(self, paths, flags):
        with tempfile.NamedTemporaryFile("w", suffix=".cc", dir=self.state, encoding="utf-8") as unit:
            unit.writelines(f'#include "{path}"  // NOLINT(bugprone-suspicious-include)\n' for path in paths)
            unit.flush()
            return self.run(unit.name, flags)

    def look_at(self, paths, flags):
        """Returns the findings of each file."""
        if len(paths) > 1 and not ANALYZE and not self.together(paths, flags):
            return [""] * len(paths)
        return [self.run(path, flags) for path in paths]

    def check(self, group):
        """Returns (name, findings) of each file of a group."""
        names, flags = group
        stamps = {name: self.stamp(name, flags) for name in names}
        left = [name for name in names if not os.path.exists(stamps[name])]
        if time.time() > self.last_begin:
            return [(name, LEFT_OUT if name in left else "") for name in names]
        findings = dict(zip(left, self.look_at([os.path.join(self.tree.root, name) for name in left], flags)))
        for name in left:
            if not findings[name]:
                open(stamps[name], "w", encoding="ascii").close()
        return [(name, findings.get(name, "")) for name in names]

    def findings_of(self, *texts):
        """Returns the findings of look_at() in made-up sources, for the self-tests."""
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, FOLDERS[0], f"{number}.cc") for number in range(len(texts))]
            os.mkdir(os.path.dirname(paths[0]))
            for path, text in zip(paths, texts):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            return self.look_at(paths, ("-std=c++20",))

    def notices_a_finding(self):
        sound, null = self.findings_of("int* one() { return nullptr; }\n", "int* two() { return 0; }\n")
        return sound or ("" if "modernize-use-nullptr" in null else null or "a pointer that is 0 was not noticed")

    def leaves_out_what_there_is_no_time_for(self):
        late = ClangTidy(self.tree, self.build)
        late.last_begin = 0
        with tempfile.TemporaryDirectory(dir=self.tree.root) as folder:
            name = os.path.join(os.path.basename(folder), "new.cc")
            with open(os.path.join(folder, "new.cc"), "w", encoding="utf-8") as file:
                file.write("int* two() { return 0; }\n")
            return "" if late.check(([name], ())) == [(name, LEFT_OUT)] else "a file was checked after the time for it"

    def needs_no_precompiled_header(self):
        flags = flags_of("ccache c++ -fpch-preprocess -include standard_pch.h -include rte_config.h -Winvalid-pch -O3 -o a.o -c a.cc")
        return "" if flags == ("-include", "rte_config.h", "-O3") else f"the flags of the check are {flags}"

    def takes_apart_what_does_not_fit_together(self):
        text = "namespace {{\nint one() {{ return 1; }}\n}}  // namespace\nint {}() {{ return one(); }}\n"
        return "".join(self.findings_of(text.format("two"), text.format("three")))


def main():
    if not shutil.which("clang-tidy"):
        print("1..0 # SKIP clang-tidy is not installed")
        return 0
    tidy = ClangTidy(Tree(sys.argv[1]), sys.argv[2])
    groups = tidy.groups()
    print(f"1..{sum(len(names) for names, _ in groups) + 4}", flush=True)
    failed, number = False, 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        itself = [pool.submit(lambda test=test: [(test.__name__, test())])
                  for test in (tidy.notices_a_finding, tidy.needs_no_precompiled_header, tidy.takes_apart_what_does_not_fit_together,
                           tidy.leaves_out_what_there_is_no_time_for)]
        for done in [*itself, *(pool.submit(tidy.check, group) for group in groups)]:
            for name, findings in done.result():
                number += 1
                if findings is LEFT_OUT:
                    print(f"ok {number} {name} # SKIP no time was left", flush=True)
                    continue
                print(f"{'not ok' if findings else 'ok'} {number} {name}", flush=True)
                failed = failed or bool(findings)
                for line in findings.splitlines():
                    print("# " + line.replace(tidy.tree.root + "/", ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
