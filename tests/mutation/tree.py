# SPDX-License-Identifier: Apache-2.0
"""The mutated tree: a copy of the project beside its build, in which sources hold mutants. Files are generated once, and regenerated only when they change."""
import hashlib
import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import points as P

SUPPORT = "tests/mutation/support"
# Most of the time goes to compiling, and nearly everything includes a mutated header: without optimization and debug information it takes a third of
# the time. AddressSanitizer notices dropped releases and reads beyond a bound.
OPTIONS = ["-Db_sanitize=address", "-Dwerror=false", "-Dwarning_level=0", "-Db_lundef=false", "-Doptimization=0", "-Ddebug=false"]
# Inserted before the first folder of tests: everything linked with googletest from there on has the listener.
LISTENED = "subdir('golden')"
LISTENER = f"gtest_dep = declare_dependency(dependencies: gtest_dep, include_directories: sluice_inc, sources: files('{SUPPORT.removeprefix('tests/')}/reached.cc'))"
SWITCH = re.compile(r"sluice::mutation::(?:on|moved|moved_in_constexpr)\((\d+)")


class Problem(Exception):
    """An error that is reported as a sentence, without a traceback."""


def write_if_changed(path, content):
    try:
        with open(path, "rb") as file:
            if file.read() == content:
                return False
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    return True


class Tree:
    def __init__(self, root, work, jobs, say):
        self.root, self.work, self.jobs, self.say = root, work, jobs, say
        self.source = os.path.join(work, "sluice")
        self.build = os.path.join(self.source, "build")
        self.log = os.path.join(work, "build.log")

    def tracked(self):
        listed = subprocess.run(["git", "-C", self.root, "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True)
        if listed.returncode == 0:
            return [f for f in listed.stdout.splitlines() if os.path.isfile(os.path.join(self.root, f))]
        return [os.path.relpath(os.path.join(d, f), self.root) for d, _, names in os.walk(self.root) if "/build" not in d for f in names]

    def copy(self, mutated):
        """Updates the copy from the project; `mutated`: {file: content} of files that differ. Times of files are kept, so that ninja rebuilds only what changed."""
        for name in self.tracked():
            source, target = os.path.join(self.root, name), os.path.join(self.source, name)
            with open(source, "rb") as file:
                content = file.read()
            if name == "tests/meson.build":
                if content.count(LISTENED.encode()) != 1:
                    raise Problem(f"tests/meson.build has no line \"{LISTENED}\" before which the listener of mutation testing could be inserted.")
                content = content.replace(LISTENED.encode(), f"{LISTENER}\n{LISTENED}".encode())
            changed = write_if_changed(target, mutated.get(name, content))
            if changed and name not in mutated:
                shutil.copystat(source, target)
        beside = os.path.join(os.path.dirname(self.root), "shared")
        link = os.path.join(self.work, "shared")
        if os.path.isdir(beside) and not os.path.islink(link):
            os.symlink(beside, link)

    def configure(self):
        if os.path.exists(os.path.join(self.build, "build.ninja")):
            subprocess.run(["ninja", "-C", self.build, "build.ninja"], capture_output=True)
            return
        environment = dict(os.environ, CC="clang", CXX="clang++")
        if shutil.which("mold"):
            environment.update(CC_LD="mold", CXX_LD="mold")
        done = subprocess.run(["meson", "setup", self.build, self.source, *OPTIONS], capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise Problem("The mutated tree cannot be configured:\n" + done.stdout[-2000:] + done.stderr[-1000:])

    def introspect(self, what):
        return json.loads(subprocess.run(["meson", "introspect", self.build, what], capture_output=True, text=True, check=True).stdout)

    def programs(self, names):
        """Returns {name: (path, argument...)} of the googletest programs of these tests."""
        return {test["name"]: tuple(test["cmd"]) for test in self.introspect("--tests") if test["name"] in names and test["protocol"] == "gtest"}

    def units(self):
        """Returns {source: compiler's arguments} of the copy, by name relative to the project."""
        with open(os.path.join(self.build, "compile_commands.json"), encoding="utf-8") as file:
            entries = json.load(file)
        return {os.path.relpath(os.path.realpath(os.path.join(e["directory"], e["file"])), os.path.realpath(self.source)):
                P.flags_of(e["command"], e["directory"]) for e in entries}

    def rejected_by(self, output):
        """Returns the numbers of the mutants on the lines of the compiler's errors; None for a line without a mutant."""
        numbers, unknown = set(), []
        for name, line in set(re.findall(r"^(\S+?):(\d+):\d+: (?:fatal )?error:", output, re.M)):
            with open(os.path.normpath(os.path.join(self.build, name)), encoding="utf-8") as file:
                lines = file.read().split("\n")
            found = []
            for reach in (0, 1, 3, 8):  # an expression of several lines
                found = SWITCH.findall("\n".join(lines[max(0, int(line) - 1 - reach):int(line) + reach]))
                if found:
                    break
            numbers.update(map(int, found))
            if not found:
                unknown.append(f"{name}:{line}")
        return numbers, unknown

    def check(self, mutated):
        """Checks the syntax of each mutated source ({name: content}) that was not checked yet: cheaper than a failing build. Returns
        (numbers, unknown)."""
        path = os.path.join(self.work, "checked.json")
        seen = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                seen = json.load(file)
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in mutated.items()}
        units = self.units()
        flags = next(iter(f for n, f in units.items() if n.startswith("pmd/softroce/")), next(iter(units.values())))

        def look(name):
            command = ["clang++", "-fsyntax-only", *[f for f in units.get(name, flags) if not f.startswith("-working-directory")],
                       *([] if name in units else ["-xc++"]), os.path.relpath(os.path.join(self.source, name), self.build)]
            return subprocess.run(command, cwd=self.build, capture_output=True, text=True).stderr

        with ThreadPoolExecutor(self.jobs) as pool:
            output = "".join(pool.map(look, sorted(name for name in digests if seen.get(name) != digests[name])))
        rejected, unknown = self.rejected_by(output)
        if not rejected and not unknown:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(digests, file)
        return rejected, unknown

    def compile(self, programs):
        """Builds the programs, given as commands. Returns (numbers, unknown) of what does not compile; both empty on success."""
        targets = sorted({os.path.relpath(path, self.build) for path, *_ in programs})
        with open(self.log, "w", encoding="utf-8") as log:
            ninja = subprocess.Popen(["nice", "-n", "10", "ninja", "-C", self.build, f"-j{self.jobs}", "-k0", *targets], stdout=log, stderr=subprocess.STDOUT)
            try:
                status = ninja.wait()
            finally:  # also when this program is interrupted
                if ninja.poll() is None:
                    ninja.terminate()
                    ninja.wait()
        if status == 0:
            return set(), []
        with open(self.log, encoding="utf-8") as log:
            output = log.read()
        numbers, unknown = self.rejected_by(output)
        if not numbers:
            raise Problem(f"The mutated tree does not build; see {self.log}:\n" + output[-1500:])
        return numbers, unknown
