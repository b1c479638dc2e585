#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice-conformance judges the Linux kernel's server, and the page that documents its deviations is correct. Speaks TAP.

conformance_test.py SLUICE_CONFORMANCE PAGE [--write]      (--write: regenerates the page)"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from judged import JudgedKernel, deviations, need_the_kernel_of_the_page, page_of, rows_of  # noqa: E402
from lab import ETHDEV, PLAIN_GUEST, ROCE_GUEST, ROCE_HOST, Failed, need_lab, run_tests  # noqa: E402

CONFORMANCE, PAGE = sys.argv[1:3]
LONGEST_S = 900
ATTEMPTS = 3  # an emulated kernel on a busy machine may answer after a test's timeout
# The kernel closes such a connection with a delay, so the next call is sometimes answered before.
LATE_END = "After an error the server ended the connection"
INTRODUCTION = """# The Linux kernel's server, judged

What `sluice-conformance` finds at the NFS server of a Linux kernel, `{kernel}`, over its Soft RoCE, in version 1, the only one that it speaks:

| tests passed | tests of a MUST that failed | not met: a SHOULD, a decision, or a connection that ended after a correct error |
|---|---|---|
| {passed} | {failed} | {unmet} |

`tests/interop/conformance_test.py SLUICE_CONFORMANCE PAGE --write` makes this page. The suite `interop` fails when the server behaves differently, except
for late ends of connections, which depend on timing. [Judging another implementation](conformance.md) describes the tests; `sluice-conformance --row NAME` runs
one of them and prints its messages.
"""


class KernelServer(JudgedKernel):
    """Linux's NFS server over rxe in the guest. The judge is the only part of Sluice."""

    def judged(self, *words):
        done = subprocess.run(self.lab.netns(CONFORMANCE, "--device", "softroce", "--ethdev", ETHDEV, "--address", f"{ROCE_HOST}/24", "--server", ROCE_GUEST,
                                             "--mount-host", PLAIN_GUEST, "--mount-port", "20048", "--json", *words),
                              capture_output=True, text=True, timeout=LONGEST_S, check=False)
        if done.returncode not in (0, 1):
            raise Failed(f"exit status {done.returncode}: {done.stderr[-2000:]}")
        return json.loads(done.stdout)


def odd_ones(result, documented):
    """Returns the names of tests for which page and server differ."""
    found = {name for name, test in deviations(result).items() if LATE_END not in test["detail"]}
    judged = {test["name"] for test in result["tests"]}
    return (documented & judged) ^ found


def the_page_says_what_linux_does_otherwise(bench):
    need_the_kernel_of_the_page()
    result = bench.judged("--rpcrdma", "1")
    if len(result["tests"]) < 100 or result["skipped"]:
        raise Failed(f"{len(result['tests'])} tests, {result['skipped']} skipped")
    if "--write" in sys.argv:
        with open(PAGE, "w", encoding="utf-8") as page:
            page.write(page_of(result, INTRODUCTION.format(kernel=bench.sh("uname -rv").strip(), **result)))
    documented = {name for name, text in rows_of(PAGE).items() if LATE_END not in text}
    if unknown := documented - {test["name"] for test in result["tests"]}:
        raise Failed(f"the page has tests that there are not: {unknown}")
    odd = odd_ones(result, documented)
    for _ in range(1, ATTEMPTS):
        if not odd:
            break
        result = bench.judged("--rpcrdma", "1", *(word for name in sorted(odd) for word in ("--row", name)))
        odd = odd_ones(result, documented)
    if odd:
        raise Failed(json.dumps({"the page": sorted(odd & documented), "the server": [test for test in result["tests"] if test["name"] in odd]}, indent=1))


def linux_has_no_version_2(bench):
    result = bench.judged("--rpcrdma", "2")
    if result["skipped"] != len(result["tests"]) or "version 2" not in result["tests"][0]["detail"]:
        raise Failed(json.dumps(deviations(result)))


if __name__ == "__main__":
    need_lab()
    sys.exit(run_tests(KernelServer(), [the_page_says_what_linux_does_otherwise, linux_has_no_version_2]) != 0)
