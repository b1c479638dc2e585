#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each check of tidy passes on a small valid project, and detects each fault in it. Speaks TAP.

tidy_test.py SOURCE_ROOT"""
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from planes_of_tests import Skipped, missing, run_tap  # noqa: E402

import commands
import lengths
import layers  # noqa: E402
import tidy
from tree import Tree

ROOT = os.path.abspath(sys.argv[1])
LICENSE = "SPDX-License-Identifier: Apache-2.0"
TABLE = """| id | requirement | shown |
|---|---|---|
| V1-001 | One. | test |
| V1-002 | Two. | not shown: there is no such device |
| A-01 | question | decision |
"""
SOUND = {
    ".clang-format": "BasedOnStyle: Google\n",
    "README.md": "See V1-001 to V1-002. `tests/run.sh SUITE` runs `tests/unit/`; `f()`,\n`S` and `S::g()` in `pmd/cited.h`, [more](deploy/docs/more.md#part),\n"
                 "[abroad](https://example.org/x).\n\n    `pmd/example.h`\n",
    "deploy/docs/more.md": "[Back](../../README.md) to `pmd/device.h`.\n",
    "pmd/cited.h": f"// {LICENSE}\n#pragma once\nint f(int a);\nstruct S {{\n  int g();  // h()\n}};\n",
    "pmd/device.h": f"// {LICENSE}\n#pragma once\n",
    "pmd/device.cc": f"// {LICENSE}\n#include \"pmd/device.h\"\n",
    "dataplane/rpc/message.h": f"// {LICENSE}\n#pragma once\n#include \"dataplane/xdr/cursor.h\"  // A-01\n",
    "tests/unit/rpc/message_test.cc": f"// {LICENSE}\n#include \"dataplane/rpc/message.h\"\nTEST(Message, V1_001_is_read) {{}}\n",
    "tests/run.sh": f"# {LICENSE}\n",
    "tests/conformance/requirements/v1.md": TABLE,
}


class Project:
    """A valid project with the layers of the real one, but without their exceptions, which name files of the real one."""

    def __init__(self):
        self.root = tempfile.mkdtemp()
        for name, text in SOUND.items():
            self.write(name, text)
        with open(os.path.join(ROOT, tidy.LAYERS), encoding="utf-8") as file:
            self.write(tidy.LAYERS, file.read().split("[[exception]]")[0])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root)

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def add(self, name, text):
        with open(os.path.join(self.root, name), encoding="utf-8") as file:
            self.write(name, file.read() + text)

    def findings(self):
        """Returns {name of the check: its findings} of the checks with findings."""
        tree = Tree(self.root)
        checks = tidy.CHECKS if shutil.which("clang-format") else set(tidy.CHECKS) - {tidy.sources_are_formatted}
        return {check.__name__: wrong for check in checks for wrong in [check(tree)] if wrong}


def a_sound_project_passes():
    with Project() as project:
        assert project.findings() == {}, project.findings()


def noticed(check, name, text, expected=None):
    """Returns a test that appends the text to the file, and expects findings of this check alone."""
    def test():
        with Project() as project:
            if name in SOUND or name == tidy.LAYERS:
                project.add(name, text)
            else:
                project.write(name, text)
            findings = project.findings()
            assert list(findings) == [check], findings
            assert any((expected or name) in line for line in findings[check]), findings
    test.__name__ = f"{check}: {expected or name}"
    return test


def include(source, included):
    return noticed("includes_follow_the_layers", source, f"// {LICENSE}\n#pragma once\n#include \"{included}\"\n", f"{source} includes {included}")


def exception(file, included, reason):
    return f"[[exception]]\nfile = \"{file}\"\nincludes = \"{included}\"\nreason = \"{reason}\"\n"


def a_folder_that_is_called_like_a_header_is_no_include():
    with Project() as project:
        project.write("dataplane/service/memory/blocks.cc", f"// {LICENSE}\n")
        project.write("dataplane/service/call.cc", f"// {LICENSE}\n#include <memory>\n")
        assert list(layers.project_includes(Tree(project.root), "dataplane/service/call.cc")) == []


def an_exception_is_for_one_include():
    with Project() as project:
        source = f"// {LICENSE}\n#pragma once\n#include \"dataplane/ulb/nfs3.h\"\n"
        project.write("dataplane/rpcrdma/engine.h", source)
        project.add(tidy.LAYERS, exception("dataplane/rpcrdma/engine.h", "dataplane/ulb/nfs3.h", "known"))
        assert project.findings() == {}, project.findings()
        project.write("dataplane/rpcrdma/other.h", source)
        assert list(project.findings()) == ["includes_follow_the_layers"]


def invariants_are_counted():
    limits = "least = 2\n[lines_per_use]\n\"pmd\" = 4\n"
    use = "void f() { SLUICE_INVARIANT_DEBUG(1, ring_index); }\n"
    with Project() as project:
        project.write(tidy.INVARIANTS, limits)
        project.add("pmd/device.cc", use + use)
        project.write("pmd/comment.cc", f"// {LICENSE}\n// SLUICE_INVARIANT(1, ring_index)\n")
        project.write("pmd/lines.cc", f"// {LICENSE}\n" + "int f();\n" * 20)
        project.write("tests/unit/use.cc", f"// {LICENSE}\n{use}")
        said = project.findings()["invariants_do_not_become_fewer"]
        assert len(said) == 1 and "pmd has 2 uses" in said[0] and "per 4 lines" in said[0], said
        project.write(tidy.INVARIANTS, limits.replace("4", "40"))
        assert project.findings() == {}, project.findings()
        project.write(tidy.INVARIANTS, limits.replace("2", "3").replace("pmd", "pmd/gone"))
        said = project.findings()["invariants_do_not_become_fewer"]
        assert "has 2 uses of SLUICE_INVARIANT, not at least 3" in said[0] and "pmd/gone, which has no sources" in said[1], said


def named_partners_pass():
    with Project() as project:
        project.add("pmd/device.cc", """// Takes a value. Pairs with g(): the value.
int f() { return a.load(std::memory_order_acquire); }
void g() {
  // Pairs with
  // S::f(): the value.
  some_value_with_a_long_name.store(another_value_with_a_long_name,
                                    std::memory_order_release);
  int b =  // pairs with `c`: the value
      a.exchange(2, std::memory_order::acq_rel);
  if (b)
    // Pairs with f().
    std::atomic_thread_fence(std::memory_order_release);
  a.store(3, std::memory_order_relaxed);  // not std::memory_order_release
}
""")
        project.write("tests/unit/orders.cc", f"// {LICENSE}\nint b = a.load(std::memory_order_acquire);\n")
        assert project.findings() == {}, project.findings()


def lines_of(count):
    return "int f(int a,\n      int b) {\n" + "  if (a) { b = '{'; }  // {\n" * (count - 3) + "}\n"


def functions_are_measured():
    text = ("namespace n {\n#define M(x) {\\\n  x\n" + lines_of(71) + "struct S {\n  S()\n      : a_{1},\n        b_(2) {\n    go();\n  }\n  int g() const;\n};\n"
            + lines_of(70) + "}  // namespace n\n")
    found = [(first, lines) for first, lines, _ in lengths.cpp_functions(text)]
    assert found == [(4, 71), (76, 5), (83, 70)], found


def each_source_of_a_unit_has_a_command():
    with tempfile.TemporaryDirectory() as build:
        os.mkdir(os.path.join(build, "x.p"))
        with open(os.path.join(build, "x.p/x-unity0.cpp"), "w", encoding="utf-8") as file:
            file.write(f"#include<{build}/../a/one.cc>\n#include<{build}/../a/two.cc>\n")
        alone = {"directory": build, "file": "../b/three.cc", "command": "c++ -c ../b/three.cc"}
        with open(os.path.join(build, "compile_commands.json"), "w", encoding="utf-8") as file:
            json.dump([{"directory": build, "file": "x.p/x-unity0.cpp", "command": "c++ '-DV=\"1 2\"' -c x.p/x-unity0.cpp", "output": "x.o"}, alone], file)
        one, two, three = commands.entries(build)
    assert (one["file"], two["file"], one["output"]) == ("../a/one.cc", "../a/two.cc", "x.o"), (one, two)
    assert one["command"] == "c++ '-DV=\"1 2\"' -c ../a/one.cc" and three == alone, (one, three)


def long_functions_and_files_are_reported():
    with Project() as project:
        project.write("pmd/long.cc", lines_of(71) + lines_of(70))
        project.write("pmd/file.h", "\n" * 600)
        project.write("pmd/longer.h", "\n" * 601)
        said = tidy.report(Tree(project.root))
        assert [line for line in said if "71 lines: pmd/long.cc:1 " in line] and not [line for line in said if line.startswith("70 lines")], said
        assert "601 lines: pmd/longer.h" in said and not [line for line in said if "pmd/file.h" in line], said


def two_phrases_in_a_thousand_words_pass():
    with Project() as project:
        project.add("pmd/device.cc", "// Sends what nobody sends elsewhere.\n")
        assert project.findings() == {}, project.findings()


TESTS = [
    a_sound_project_passes,
    a_folder_that_is_called_like_a_header_is_no_include,
    noticed("top_level_is_fixed", "notes/today.md", "A note.\n", "notes"),
    noticed("every_source_says_its_license", "pmd/bare.cc", "int x;\n"),
    noticed("every_source_says_its_license", "tests/bare.py", "print()\n"),
    noticed("headers_are_read_once", "pmd/twice.h", f"// {LICENSE}\n// #pragma once\n"),
    noticed("sources_are_formatted", "pmd/device.cc", "int  x;\n"),
    noticed("no_path_of_a_machine", "tests/run.sh", "cat /" + "home/somebody/x\n"),
    noticed("no_path_of_a_machine", "README.md", "In /" + "work/x.\n"),
    include("dataplane/rpcrdma/engine.h", "pmd/softroce/softroce.h"),
    include("dataplane/service/api/service.h", "pmd/verbs/verbs.h"),
    include("dataplane/tcp/sockets.h", "dataplane/reactor/reactor.h"),
    include("pmd/softroce/device.h", "pmd/verbs/device.h"),
    include("controlplane/control_plane.h", "dataplane/reactor/reactor.h"),
    include("dataplane/rpcrdma/engine.cc", "dataplane/ulb/nfs3.h"),
    include("dataplane/rpcrdma/engine.cc", "dataplane/service/cross_reactor_call.h"),
    include("controlplane/config/config.h", "controlplane/cm/agent.h"),
    include("telemetry/exporter.h", "pmd/softroce/device.h"),
    include("dataplane/rpc/message.cc", "tests/unit/rpc/lab.h"),
    noticed("libraries_stay_in_their_folder", "dataplane/xdr/cursor.h", f"// {LICENSE}\n#pragma once\n#include <nlohmann/json.hpp>\n",
            "dataplane/rpc/message.h includes dataplane/xdr/cursor.h, and with it <nlohmann/json.hpp>"),
    noticed("includes_follow_the_layers", "dataplane/xdr/cursor.h", f"// {LICENSE}\n#pragma once\n#include \"../rpc/message.h\"\n", "includes dataplane/rpc/message.h"),
    noticed("includes_follow_the_layers", "dataplane/new/thing.h", f"// {LICENSE}\n#pragma once\n", "no entry"),
    noticed("includes_follow_the_layers", tidy.LAYERS, "\"pmd/a\" = [\"pmd/b\"]\n\"pmd/b\" = []\n", "pmd/b, which is not above it"),
    noticed("includes_follow_the_layers", tidy.LAYERS, exception("pmd/device.cc", "pmd/device.h", "gone"), "is not needed"),
    noticed("includes_follow_the_layers", tidy.LAYERS, exception("pmd/device.cc", "pmd/device.h", ""), "gives no reason"),
    an_exception_is_for_one_include,
    invariants_are_counted,
    named_partners_pass,
    noticed("memory_orders_name_their_partner", "pmd/device.cc", "int b = a.load(std::memory_order_acquire);\n", "pmd/device.cc:3: no comment"),
    noticed("memory_orders_name_their_partner", "pmd/device.cc", "int b = a.exchange(1, std::memory_order_acq_rel);  // the list\n", "memory_order_acq_rel"),
    noticed("memory_orders_name_their_partner", "pmd/device.cc", "// It pairs with another thread.\nint b = a.load(std::memory_order::acquire);\n", "pmd/device.cc:4"),
    noticed("memory_orders_name_their_partner", "pmd/device.cc",
            "// Pairs with f(): the list.\nint c = a;\nint b = a.load(std::memory_order_acquire);\n", "pmd/device.cc:5"),
    noticed("memory_orders_name_their_partner", "pmd/device.cc",
            "int c = a.load(std::memory_order_acquire);  // pairs with f(): the list\nint b = a.load(std::memory_order_acquire);\n", "pmd/device.cc:4"),
    noticed("memory_orders_name_their_partner", "pmd/device.cc", "void f() { std::atomic_thread_fence(std::memory_order_seq_cst); }\n", "atomic_thread_fence"),
    noticed("using_declarations_are_used", "pmd/device.cc", "using std::max;  // max\nusing std::size_t;\nsize_t n;\n", "max"),
    noticed("requirement_tables_are_sound", "tests/conformance/requirements/v1.md", "| V1-001 | Again. | test |\n", "twice"),
    noticed("requirement_tables_are_sound", "tests/conformance/requirements/v1.md", "| V1-003 | Three. | not shown |\n", "how it is shown"),
    noticed("requirement_tables_are_sound", "tests/conformance/requirements/v1.md", "| V1-003 | | test |\n", "empty cell"),
    noticed("requirement_tables_are_sound", "tests/conformance/requirements/v1.md", "| A-1 | question | decision |\n", "is not a valid id"),
    noticed("cited_requirements_exist", "pmd/device.cc", "// V1-003\n", "V1-003"),
    noticed("cited_requirements_exist", "pmd/device.cc", "// V1-" "03\n", "V1-" "03"),
    noticed("cited_requirements_exist", "pmd/device.cc", "// From A-01 to A-02\n", "A-02"),
    noticed("cited_requirements_exist", "README.md", "D2-07\n", "D2-07"),
    noticed("cited_requirements_exist", "tests/unit/rpc/message_test.cc", "TEST(Message, V1_001_V2_002_F_03) {}\n", "V2-002"),
    noticed("cited_requirements_exist", "tests/unit/rpc/message_test.cc", "TEST(Message, V1_001_V1_002_F_03) {}\n", "F-03"),
    noticed("documents_cite_what_is_there", "README.md", "See `pmd/gone.h`.\n", "cites pmd/gone.h"),
    noticed("documents_cite_what_is_there", "README.md", "Run `tests/gone.sh all`.\n", "cites tests/gone.sh"),
    noticed("documents_cite_what_is_there", "README.md", "See `.ci/run`.\n", "cites .ci/run"),
    noticed("documents_cite_what_is_there", "deploy/docs/internals/new.md", "See `dataplane/gone/`.\n", "new.md:1 cites dataplane/gone/"),
    noticed("documents_cite_what_is_there", ".github/CONTRIBUTING.md", "See `pmd/gone.h`.\n", "cites pmd/gone.h"),
    noticed("documents_cite_what_is_there", "README.md", "`f()`, `S` and\n`k()` in `pmd/cited.h`\n", "cites k() in pmd/cited.h"),
    noticed("documents_cite_what_is_there", "README.md", "`f()` in `pmd/device.h`\n", "; pmd/cited.h have"),
    noticed("documents_cite_what_is_there", "README.md", "`T::g()` in `pmd/cited.h`\n", "cites T::g()"),
    noticed("documents_cite_what_is_there", "README.md", "`h()` in `pmd/cited.h`, where a comment has it\n", "cites h()"),
    noticed("documents_cite_what_is_there", "README.md", "`S()` in `pmd/cited.h`, which is no function\n", "cites S()"),
    noticed("documents_cite_what_is_there", "README.md", "`f()` in `pmd/`\n", "name the file"),
    noticed("documents_cite_what_is_there", "README.md", "[x](deploy/docs/gone.md)\n", "links to deploy/docs/gone.md"),
    noticed("documents_cite_what_is_there", "deploy/docs/more.md", "[x](README.md)\n", "links to README.md"),
    noticed("equivalent_mutants_are_of_lines_that_exist", tidy.EQUIVALENT, "file: pmd/device.cc\nline: int gone;\n", "no line 'int gone;'"),
    noticed("equivalent_mutants_are_of_lines_that_exist", tidy.EQUIVALENT, "file: pmd/gone.cc\nline: int gone;\n", "pmd/gone.cc"),
    noticed("comments_are_the_fields_english", "pmd/device.cc", "// Whoever waits is told.\n// It waits no more, and lets go of its turn.\n", "pmd/device.cc:3: 'Whoever'"),
    noticed("comments_are_the_fields_english", "pmd/device.cc", "// Of the latest call.\nint a;\n// What it is.\nint b;\n", "pmd/device.cc:3: no subject"),
    noticed("comment_lines_fit", "pmd/device.cc", f"// {'a' * 108}\n", "pmd/device.cc:3 has 111 columns"),
    two_phrases_in_a_thousand_words_pass,
    each_source_of_a_unit_has_a_command,
    functions_are_measured,
    long_functions_and_files_are_reported,
]


def formatter_wanted(test):
    def wanted():
        if test.__name__.startswith("sources_are_formatted") and (lacks := missing("clang-format")):
            raise Skipped(lacks)
        test()
    return wanted


if __name__ == "__main__":
    sys.exit(run_tap([(test.__name__, formatter_wanted(test)) for test in TESTS]))
