# SPDX-License-Identifier: Apache-2.0
"""Results of sluice-conformance, and the page that documents them, for the tests of a kernel's server and client."""
import json
import os
import re

from lab import MTU, PLAIN_GUEST, PLAIN_HOST, ROCE_GUEST, Bench, Guest, Skipped, build_image, mac

HEADER = "| test | level | required | finding |\n|---|---|---|---|\n"


def need_the_kernel_of_the_page():
    """Skips a test that compares a kernel with its page, if the guest has another kernel."""
    if os.environ.get("SLUICE_GUEST_KERNEL", "6.1") != "6.1":
        raise Skipped("The page describes Linux 6.1.")


class JudgedKernel(Bench):
    """A kernel with rxe and its own NFS server in the guest. The judge is the only part of Sluice."""

    def set_up(self):
        image = build_image()
        self.lab.add_tap("roce")
        self.lab.add_tap("plain", address=f"{PLAIN_HOST}/24")
        self.guest = Guest(self.lab, 1, image, ["roce", "plain"])
        self.guest.sh(f"rdma_link {mac(1, 0)} {ROCE_GUEST}/24 {MTU}\nplain_link {mac(1, 1)} {PLAIN_GUEST}/24\nnfsd_on_rdma")


def read_result(text):
    """Returns the JSON object at the end of a program's output."""
    return json.loads(text[text.index("{\n"):])


def deviations(result):
    return {test["name"]: test for test in result["tests"] if test["outcome"] in ("failed", "unmet")}


def row(test):
    cells = [f"`{test['name']}`", test["level"], test["asks"], test["detail"]]
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |\n"


def page_of(result, introduction):
    found = deviations(result)
    return introduction + "\n" + HEADER + "".join(row(found[name]) for name in found)


def rows_of(page):
    """Returns the names of the tests in the page's table, each with the rest of its row."""
    with open(page, encoding="utf-8") as file:
        return dict(re.findall(r"^\| `(V1_\w+)` (.*)$", file.read(), re.MULTILINE))
