#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The calls of deploy/install-packages.sh to the package manager and sudo, which scripts replace. Speaks TAP.

packages_test.py SOURCE"""
import os
import subprocess
import sys
import tempfile

SOURCE = sys.argv[1]
sys.path.insert(0, f"{SOURCE}/tests/operations")
from planes import run_tap  # noqa: E402

INSTALLER = f"{SOURCE}/deploy/install-packages.sh"


def names(*lists):
    """Returns the packages of these lists, and the first package of alternatives."""
    found = []
    for name in lists:
        with open(f"{SOURCE}/deploy/{name}.txt", encoding="utf-8") as file:
            lines = [line.split("#")[0].split("|")[0].strip() for line in file]
        found += [line for line in lines if line]
    return found


def install(*words, installed=(), sudo=True, apt=True):
    """Runs the installer on a system that has some packages. Returns the process, and its calls of apt-get and sudo.

    The installer does not run as root here, because it would then write to folders of this machine. run.sh tests that in a separate
    root file system."""
    with tempfile.TemporaryDirectory(prefix="sluice-packages-") as folder:
        def program(name, text):
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                file.write(f"#!/bin/bash\n{text}\n")
            os.chmod(f"{folder}/{name}", 0o755)

        there = "|".join(installed) or "none"
        program("id", "echo 1000")
        program("dpkg-query", f'case "${{@: -1}}" in {there}) echo "install ok installed" ;; *) exit 1 ;; esac')
        if apt:
            program("apt-get", f'echo apt-get "$@" >>{folder}/calls')
        if sudo:
            program("sudo", f'echo sudo "$@" >>{folder}/calls')
        for name in ("bash", "cat", "dirname", "grep", "readlink", "sed", "tr"):
            os.symlink(f"/usr/bin/{name}", f"{folder}/{name}")
        done = subprocess.run(["/usr/bin/bash", INSTALLER, *words], env={"PATH": folder}, capture_output=True, text=True, check=False)
        calls = []
        if os.path.exists(f"{folder}/calls"):
            with open(f"{folder}/calls", encoding="utf-8") as file:
                calls = file.read().splitlines()
        return done, calls


def nothing_is_called_when_all_packages_are_there():
    for words, lists in ((("product",), ("packages",)), (("tests",), ("packages", "packages-test"))):
        done, calls = install(*words, installed=names(*lists), sudo=False)
        assert done.returncode == 0 and not calls, (done, calls)


def the_product_wants_nothing_of_the_tests():
    assert not set(names("packages")) & set(names("packages-test"))
    done, calls = install(installed=names("packages"), sudo=False)
    assert done.returncode == 0 and not calls, (done, calls)
    done, _ = install("tests", installed=names("packages"), sudo=False)
    assert done.returncode == 1 and "libgtest-dev" in done.stderr and "libdpdk-dev" not in done.stderr, done


def an_alternative_that_is_there_suffices():
    there = [name for name in names("packages") if name != "pkg-config"] + ["pkgconf"]
    done, calls = install(installed=there, sudo=False)
    assert done.returncode == 0 and not calls, (done, calls)


def who_is_not_root_is_told_what_sudo_is_for():
    done, calls = install("tests", installed=names("packages"))
    assert done.returncode == 0, done
    assert "sudo" in done.stdout and "install" in done.stdout and "libgtest-dev" in done.stdout, done.stdout
    assert len(calls) == 1 and calls[0].startswith("sudo ") and calls[0].endswith("install-packages.sh tests"), calls


def without_sudo_a_sentence_says_what_is_missing():
    done, calls = install("product", sudo=False)
    assert done.returncode == 1 and not calls, (done, calls)
    assert "no sudo" in done.stderr and "libdpdk-dev" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def without_apt_a_sentence_says_what_is_missing():
    done, _ = install("product", apt=False)
    assert done.returncode == 1 and "apt-get is not available" in done.stderr and "libdpdk-dev" in done.stderr, done


def an_unknown_list_is_refused():
    done, calls = install("everything")
    assert done.returncode == 2 and "usage" in done.stderr and not calls, (done, calls)


TESTS = [nothing_is_called_when_all_packages_are_there, the_product_wants_nothing_of_the_tests, an_alternative_that_is_there_suffices,
         who_is_not_root_is_told_what_sudo_is_for, without_sudo_a_sentence_says_what_is_missing, without_apt_a_sentence_says_what_is_missing,
         an_unknown_list_is_refused]

if __name__ == "__main__":
    sys.exit(run_tap([(test.__name__, test) for test in TESTS]))
