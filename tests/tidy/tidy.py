#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the style checks that require no compiler, and reports lengths and wording. Speaks TAP.

tidy.py SOURCE_ROOT"""
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conformance"))
import citations
import invariants
import layers
import lengths
import memory_orders
import wording
from tables import Tables
from tree import FOLDERS, Tree

TOP_LEVEL = {"meson.build", "README.md", "LICENSE", *FOLDERS}
LAYERS = "tests/tidy/layers.toml"
INVARIANTS = "tests/tidy/invariants.toml"
EQUIVALENT = "tests/mutation/equivalent.txt"
TABLES = "tests/conformance/requirements"
LONGEST_FUNCTION = 70
LONGEST_FILE = 600


class Lacking(Exception):
    """A check cannot run on this machine; the message says why."""


def scripted(tree):
    return tree.named(".cc", ".h", ".py", ".sh", ".x", "meson.build")


def top_level_is_fixed(tree):
    return sorted(f for f in {f.split("/")[0] for f in tree.files} if not f.startswith(".") and f not in TOP_LEVEL)


def every_source_says_its_license(tree):
    return [f for f in scripted(tree) if "SPDX-License-Identifier: Apache-2.0" not in tree.text(f)[:400]]


def headers_are_read_once(tree):
    """Precompiled headers are exempt, because only the compiler's command line names them."""
    return [f for f in tree.named(".h") if not f.endswith("_pch.h") and not re.search(r"^#pragma once$", tree.text(f), re.M)]


def sources_are_formatted(tree):
    if not shutil.which("clang-format"):
        raise Lacking("clang-format is not installed")

    def check(names):
        done = subprocess.run(["clang-format", "--dry-run", "-Werror", *names], cwd=tree.root, capture_output=True, text=True)
        return re.findall(r"^(\S+?):\d+", done.stderr, re.M)

    shares = [tree.code[i::os.cpu_count()] for i in range(os.cpu_count())]
    with ThreadPoolExecutor(len(shares)) as pool:
        return sorted({name for found in pool.map(check, filter(None, shares)) for name in found})


def no_path_of_a_machine(tree):
    pattern = re.compile(r"/(?:home|root|work)/\w")
    return [f for f in scripted(tree) + tree.named(".md") if pattern.search(tree.text(f))]


def includes_follow_the_layers(tree):
    return layers.violations(tree, os.path.join(tree.root, LAYERS))


def libraries_stay_in_their_folder(tree):
    return layers.exposed_libraries(tree)


def requirement_tables_are_sound(tree):
    return Tables(os.path.join(tree.root, TABLES)).problems


def cited_requirements_exist(tree):
    """Checks both forms: V1-057 in prose, and V1_057 in the names of tests. Both ends of a range are checked."""
    known = Tables(os.path.join(tree.root, TABLES)).ids
    pattern = re.compile(r"(?<![A-Za-z0-9])(?:(V[12]|D2)[-_](\d+)|([AFX])[-_](\d{2}))(?![0-9A-Za-z])")
    wrong = []
    for name in scripted(tree) + tree.named(".md"):
        for number, line in enumerate(tree.text(name).split("\n"), 1):
            for match in pattern.finditer(line):
                cited = "-".join(part for part in match.groups() if part)
                if cited not in known:
                    wrong.append(f"{name}:{number} cites {cited}, which no table has")
    return wrong


def documents_cite_what_is_there(tree):
    return citations.violations(tree)


def invariants_do_not_become_fewer(tree):
    return invariants.violations(tree, INVARIANTS)


def memory_orders_name_their_partner(tree):
    return memory_orders.violations(tree)


def using_declarations_are_used(tree):
    """Checks only source files, because the declarations of a header may be meant for its users."""
    return [f"{name} does not use {used}" for name in tree.named(".cc")
            for used in re.findall(r"^[ \t]*using (?!namespace\b)[\w:]*::(\w+);", tree.text(name), re.M)
            if len(re.findall(rf"\b{used}\b", lengths.blanked(tree.text(name)))) < 2]


def equivalent_mutants_are_of_lines_that_exist(tree):
    """The mutation suite refuses lines that do not exist too, but only after everything else has run."""
    if EQUIVALENT not in tree.files:
        return []
    cited = re.findall(r"^file: (.*)\nline: (.*)$", tree.text(EQUIVALENT), re.M)
    return [f"{EQUIVALENT}: {name} has no line '{line}'" for name, line in cited
            if name not in tree.files or line not in (" ".join(there.split()) for there in tree.text(name).split("\n"))]


def report(tree):
    """Returns the lines of a report on lengths and wording, which does not fail."""
    measured = tree.code + tree.named(".py")
    files = sorted(((tree.text(f).count("\n"), f) for f in measured), reverse=True)
    long_files = [f"{lines} lines: {f}" for lines, f in files if lines > LONGEST_FILE]
    functions = sorted(((lines, f, first, header) for f in measured for first, lines, header in lengths.functions(f, tree.text(f))),
                       reverse=True)
    long_functions = [f"{lines} lines: {f}:{first} {header[:60]}" for lines, f, first, header in functions if lines > LONGEST_FUNCTION]
    return [f"{len(long_functions)} of {len(functions)} functions have more than {LONGEST_FUNCTION} lines", *long_functions,
            f"{len(long_files)} of {len(files)} files have more than {LONGEST_FILE} lines", *long_files, *wording.report(tree)]


CHECKS = [top_level_is_fixed, every_source_says_its_license, headers_are_read_once, sources_are_formatted, no_path_of_a_machine, includes_follow_the_layers, libraries_stay_in_their_folder,
          invariants_do_not_become_fewer, memory_orders_name_their_partner, using_declarations_are_used, requirement_tables_are_sound, cited_requirements_exist, documents_cite_what_is_there,
          equivalent_mutants_are_of_lines_that_exist, wording.comments_are_the_fields_english, wording.comment_lines_fit]


def main():
    tree = Tree(sys.argv[1])
    print(f"1..{len(CHECKS)}")
    failed = False
    for number, check in enumerate(CHECKS, 1):
        try:
            wrong = check(tree)
        except Lacking as lacking:
            print(f"ok {number} {check.__name__} # SKIP {lacking}", flush=True)
            continue
        print(f"{'not ok' if wrong else 'ok'} {number} {check.__name__}", flush=True)
        for line in wrong[:20]:
            print(f"# {line}")
        failed = failed or bool(wrong)
    for line in report(tree):
        print(f"# {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
