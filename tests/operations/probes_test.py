#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The USDT probes of dataplane/base/probes.h are in the program and in the manual, with their arguments. Speaks TAP.

probes_test.py SOURCE DATAPLANE probes|no-probes"""
import re
import subprocess
import sys

from planes import Skipped, need, run_tap

SOURCE, DATA, BUILT = sys.argv[1:4]
PROBE = re.compile(r"^(?:\[\[gnu::always_inline\]\] )?inline void (\w+)\((.*?)\) noexcept \{\s*SLUICE_PROBE\((.*?)\);\s*\}", re.M | re.S)


def text(path):
    with open(f"{SOURCE}/{path}", encoding="utf-8") as file:
        return file.read()


def declared():
    """Returns the argument names of each probe."""
    found = {}
    for name, parameters, passed in PROBE.findall(text("dataplane/base/probes.h")):
        names = [parameter.split()[-1] for parameter in parameters.split(",")]
        assert [name, *names] == [word.strip() for word in passed.split(",")], f"{name} passes {passed} of {parameters}"
        found[name] = names
    assert len(found) > 5 and len(found) == text("dataplane/base/probes.h").count("inline void "), found
    return found


def in_program():
    """Returns (name, arguments) of each place of a probe, from the ELF notes."""
    notes = subprocess.run(["readelf", "-n", "-W", DATA], capture_output=True, text=True, check=True).stdout
    return re.findall(r"Provider: sluice\s+Name: (\w+)\s+.*\s+Arguments: ?(.*)", notes)


def the_program_has_each_probe_with_its_arguments():
    if BUILT == "no-probes":
        raise Skipped("This build has no probes: run deploy/install-packages.sh product and configure it again.")
    places = in_program()
    assert {name for name, _ in places} == set(declared()), (places, declared())
    for name, arguments in places:
        # One argument looks like 4@%eax or -8@16(%rbx).
        assert len(re.findall(r"-?[1248]@", arguments)) == len(declared()[name]), (name, arguments)


def a_probe_that_is_not_enabled_is_a_nop_without_a_semaphore():
    if BUILT == "no-probes":
        raise Skipped("This build has no probes: run deploy/install-packages.sh product and configure it again.")
    notes = subprocess.run(["readelf", "-n", "-W", DATA], capture_output=True, text=True, check=True).stdout
    places = re.findall(r"Provider: sluice\s+Name: \w+\s+Location: 0x(\w+), Base: 0x\w+, Semaphore: 0x(\w+)", notes)
    assert len(places) >= len(declared()), notes
    for location, semaphore in places:
        assert int(semaphore, 16) == 0, semaphore
        at = int(location, 16)
        code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", f"--start-address={at}", f"--stop-address={at + 4}", DATA],
                              capture_output=True, text=True, check=True).stdout
        assert re.search(rf"^\s+{at:x}:\s+nop\b", code, re.M), code


def the_book_lists_each_probe_with_its_arguments():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", text("deploy/docs/internals/debugging.md").split("## Probes")[1].split("\n## ")[0], re.M)
    assert {name: re.findall(r"\w+", arguments) for name, arguments in rows} == declared(), rows


need("readelf", "objdump")
sys.exit(run_tap([(f.__name__, f) for f in (
    the_program_has_each_probe_with_its_arguments, a_probe_that_is_not_enabled_is_a_nop_without_a_semaphore,
    the_book_lists_each_probe_with_its_arguments)]))
