# SPDX-License-Identifier: Apache-2.0
"""What sluice-conformance has found, and the page that says it: for the tests of a kernel's server and client."""
import json
import re

from lab import MTU, PLAIN_GUEST, PLAIN_HOST, ROCE_GUEST, Bench, Guest, build_image, mac

WORDS_SHOWN = 28


class JudgedKernel(Bench):
    """A kernel with rxe and its own NFS server in the guest; of Sluice there is the judge alone."""

    def set_up(self):
        image = build_image()
        self.lab.add_tap("roce")
        self.lab.add_tap("plain", address=f"{PLAIN_HOST}/24")
        self.guest = Guest(self.lab, 1, image, ["roce", "plain"])
        self.guest.sh(f"rdma_link {mac(1, 0)} {ROCE_GUEST}/24 {MTU}\nplain_link {mac(1, 1)} {PLAIN_GUEST}/24\nnfsd_on_rdma")


def read_result(text):
    """The JSON object behind what else a program has said."""
    return json.loads(text[text.index("{\n"):])


def deviations(result):
    return {test["name"]: test for test in result["tests"] if test["outcome"] in ("failed", "unmet")}


def shortened(line):
    words = line.split(" ")
    return line if len(words) <= WORDS_SHOWN else " ".join(words[:WORDS_SHOWN] + ["..."])


def section(test):
    seen = "\n".join(f"    {shortened(line)}" for line in test["seen"][-6:])
    return f"## {test['name']}\n\n{test['level']}. {test['asks']}\n{test['detail']}\n\n{seen}\n"


def page_of(result, introduction):
    found = deviations(result)
    return "\n".join([introduction, *(section(found[name]) for name in found)])


def sections_of(page):
    """Names and texts of the tests that the page tells of."""
    with open(page, encoding="utf-8") as file:
        return dict(re.findall(r"^## (V1_\w+)$(.*?)(?=^## |\Z)", file.read(), re.MULTILINE | re.DOTALL))
