# SPDX-License-Identifier: Apache-2.0
"""Reads the tables of requirements (requirements/*.md): rows V1 and V2, decisions A and D2, failures F, published RFCs X."""
import os
import re

ID = re.compile(r"(?:V[12]-\d{3}|(?:D2|[AFX])-\d{2})")
# Ways to show a row without a test; the reason follows the colon.
OTHERWISE = re.compile(r"(design|documentation|not applicable|not shown): \S")


class Tables:
    def __init__(self, folder):
        self.ids = set()
        self.rows = {}  # row of V1 or V2 -> 'test', or another way and its reason
        self.problems = []
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".md"):
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    self._read(f"{name}:{number}", line.strip())

    def _read(self, where, line):
        if not line.startswith("|"):
            return
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not re.match(r"[A-Z]\d?-\d", cells[0]):
            return
        name, shown = cells[0], cells[-1]
        if not ID.fullmatch(name):
            self.problems.append(f"{where} {name} is not a valid id")
            return
        if name in self.ids:
            self.problems.append(f"{where} {name} is defined twice")
        elif not all(cells):
            self.problems.append(f"{where} {name} has an empty cell")
        elif name.startswith("V") and shown != "test" and not OTHERWISE.match(shown):
            self.problems.append(f"{where} {name} does not say how it is shown: '{shown}'")
        elif name.startswith("V"):
            self.rows[name] = shown
        self.ids.add(name)
