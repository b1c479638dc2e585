#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""build_cost.py BEFORE AFTER [--tier quick] [--slowest N] [--sample N]    compares two builds
build_cost.py BUILD                                                         measures one build
build_cost.py --reference                                                   prints the processor time of one compilation of the reference file, in seconds

Measures the processor time of builds without a compiler cache, and prints one line of JSON. BEFORE and AFTER are configured build directories,
usually of two checkouts. Runs every command of both builds; their compilations alternate, with compilations of a fixed reference file in
between. The cost of a build is its processor time, divided by the time of compiling the reference file as many times as the build has objects.
The figure is the cost of AFTER divided by the cost of BEFORE."""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

PRODUCT = ("sluice-dataplane", "controlplane/sluice-controlplane", "cli/sluicectl", "cli/sluice-bench")
QUICK_SUITES = ("unit", "conformance", "isolation", "fault", "fuzz")
REFERENCES = 40  # compilations of the reference file in a run
REFERENCE = """
#include <functional>
#include <map>
#include <string>
#include <vector>

template <typename Key, typename Value>
class Index {
 public:
  using Visitor = std::function<void(const Key&, const std::vector<Value>&)>;

  void insert(const Key& key, Value value) {
    entries_[key].push_back(std::move(value));
    ++size_;
  }
  const Value* find(const Key& key, std::size_t position) const {
    const auto found = entries_.find(key);
    if (found == entries_.end() || position >= found->second.size()) return nullptr;
    return &found->second[position];
  }
  void visit(const Visitor& visitor) const {
    for (const auto& [key, values] : entries_) visitor(key, values);
  }
  std::size_t size() const { return size_; }

 private:
  std::map<Key, std::vector<Value>> entries_;
  std::size_t size_ = 0;
};

std::size_t reference(const std::string& text) {
  Index<std::string, std::string> index;
  index.insert(text, text + text);
  std::size_t bytes = 0;
  index.visit([&](const std::string& key, const std::vector<std::string>& values) { bytes += key.size() + values.size(); });
  return bytes + index.size() + (index.find(text, 0) != nullptr);
}
"""


def processor_seconds(command, folder):
    """Runs a shell command, and returns the processor time of its processes in seconds."""
    process = subprocess.Popen(command, shell=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                               env={**os.environ, "CCACHE_DISABLE": "1"})
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[:200]} failed in {folder}:\n{said.decode(errors='replace')[-2000:]}")
    return usage.ru_utime + usage.ru_stime


class Build:
    def __init__(self, folder, tier, sample):
        self.folder = os.path.abspath(folder)
        targets = quick_targets(self.folder) if tier == "quick" else PRODUCT
        listed = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", *targets], capture_output=True, text=True, check=True)
        commands = listed.stdout.splitlines()
        self.objects = [c for c in commands if is_object(c)]
        first = commands.index(self.objects[0])
        # Inputs of objects: generated sources and precompiled headers. Archives and programs are linked from
        # objects.
        self.inputs = [c for c in commands if c not in self.objects and not is_link(c)]
        self.links = [c for c in commands[first:] if is_link(c)]
        # A sample of objects evenly spread over the build, from which the cost of all is extrapolated.
        self.measured = self.objects if not sample else [self.objects[i * len(self.objects) // sample] for i in range(min(sample, len(self.objects)))]
        if sample:
            self.links = []
        self.seconds = {}

    def take(self, command):
        self.seconds[command] = processor_seconds(command, self.folder)

    def total(self):
        measured = sum(self.seconds[command] for command in self.measured)
        return measured * len(self.objects) / len(self.measured) + sum(self.seconds[command] for command in [*self.inputs, *self.links])

    def slowest(self, most):
        worst = sorted((c for c in self.seconds), key=self.seconds.get, reverse=True)[:most]
        return [(round(self.seconds[c], 1), output_of(c)) for c in worst]


def output_of(command):
    found = re.search(r" -o (\S+)", command)
    return found[1] if found else command[:80]


def is_object(command):
    return bool(re.search(r" -o \S+\.o .*-c |-c .* -o \S+\.o", command))


def is_link(command):
    return not is_object(command) and bool(re.search(r"-ar csr|^(?:ccache )?\S*(?:g\+\+|clang\+\+|gcc|cc|c\+\+)\s.* -o \S+", command)) and ".gch" not in command \
        and ".pch" not in command


def quick_targets(folder):
    def introspect(what):
        return json.loads(subprocess.run(["meson", "introspect", folder, what], capture_output=True, text=True, check=True).stdout)

    files = {target["id"]: target["filename"] for target in introspect("--targets")}
    wanted = {f"sluice:{suite}" for suite in QUICK_SUITES}
    needed = {file for test in introspect("--tests") if wanted & set(test["suite"]) for target in test["depends"] for file in files[target]}
    return sorted(os.path.relpath(file, folder) for file in needed)


def spread_evenly(lists):
    """Merges the lists. The elements of each list keep their order and are spread evenly over the result."""
    placed = [((number + 0.5) / len(elements), which, element) for which, elements in enumerate(lists) for number, element in enumerate(elements)]
    return [element for _, _, element in sorted(placed, key=lambda entry: entry[:2])]


def measure(builds, workers, references=REFERENCES):
    """Measures the builds, and returns the processor time in seconds of each compilation of the reference file."""
    for build in builds:
        for command in build.inputs:
            build.take(command)
    reference = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(workers) as pool:
        with open(os.path.join(folder, "reference.cc"), "w", encoding="utf-8") as file:
            file.write(REFERENCE)

        def compile_reference(number):
            reference.append(processor_seconds(f"g++ -std=c++20 -O2 -c reference.cc -o {number}.o", folder))

        jobs = spread_evenly([[lambda b=build, c=command: b.take(c) for command in build.measured] for build in builds]
                             + [[lambda n=number: compile_reference(n) for number in range(references)]])
        list(pool.map(lambda job: job(), jobs))
    for build in builds:
        for command in build.links:
            build.take(command)
    return reference


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("builds", nargs="*", metavar="BUILD")
    arguments.add_argument("--reference", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument("--tier", choices=("product", "quick"), default="product", help="targets to build: the four programs, or everything that the quick tier tests")
    arguments.add_argument("--slowest", type=int, default=0, metavar="N", help="also print the N most expensive commands of the last build")
    arguments.add_argument("--workers", type=int, default=os.cpu_count(), help="compilations at a time (default: one per processor)")
    arguments.add_argument("--sample", type=int, default=0, metavar="N", help="compile only N objects of each build, evenly spread, and link nothing")
    chosen = arguments.parse_args()
    if shutil.which("ninja") is None:
        sys.exit("ninja is not installed: run deploy/install-packages.sh product.")
    if chosen.reference or not chosen.builds:
        print(round(statistics.median(measure([], 1, 3)), 3))
        return
    builds = [Build(folder, chosen.tier, chosen.sample) for folder in chosen.builds]
    reference = measure(builds, chosen.workers)
    unit = statistics.median(reference)
    costs = [build.total() / (unit * len(build.objects)) for build in builds]
    print(json.dumps({
        "figure": f"{'product' if chosen.tier == 'product' else 'quick_tier'}_build_cpu_ratio", "value": round(costs[-1] / costs[0], 3),
        "processor_time_ratio": round(builds[-1].total() / builds[0].total(), 3),
        "cost": [round(cost, 2) for cost in costs], "processor_s": [round(build.total(), 1) for build in builds],
        "objects": [len(build.objects) for build in builds], "measured": [len(build.measured) for build in builds], "reference_s": round(unit, 3),
        "reference_spread": [round(min(reference), 3), round(max(reference), 3)]}), flush=True)
    for seconds, output in builds[-1].slowest(chosen.slowest):
        print(f"{seconds:7.1f}  {output}")


if __name__ == "__main__":
    main()
