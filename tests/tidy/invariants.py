# SPDX-License-Identifier: Apache-2.0
"""A ratchet for invariants (dataplane/base/invariant.h): the product keeps as many as it has, and new code comes with its own."""
import os
import re
import tomllib

import lengths

DEFINED_IN = "dataplane/base/invariant.h"
USE = re.compile(r"\bSLUICE_INVARIANT(?:_DEBUG)?\(")


def count(tree, folder=""):
    """Returns (uses, lines) of the product's sources in the folder and the folders below it."""
    uses = lines = 0
    for name in tree.code:
        if name.startswith("tests/") or name == DEFINED_IN or (folder and not name.startswith(folder + "/")):
            continue
        uses += len(USE.findall(lengths.blanked(tree.text(name))))
        lines += tree.text(name).count("\n")
    return uses, lines


def violations(tree, limits):
    """Returns what contradicts the file of limits; without the file, nothing does."""
    if not os.path.isfile(os.path.join(tree.root, limits)):
        return []
    with open(os.path.join(tree.root, limits), "rb") as file:
        wanted = tomllib.load(file)
    wrong = []
    uses, _ = count(tree)
    if uses < wanted["least"]:
        wrong.append(f"the product has {uses} uses of SLUICE_INVARIANT, not at least {wanted['least']}")
    for folder, most in wanted["lines_per_use"].items():
        uses, lines = count(tree, folder)
        if lines == 0:
            wrong.append(f"{limits} names {folder}, which has no sources")
        elif lines > most * uses:
            wrong.append(f"{folder} has {uses} uses of SLUICE_INVARIANT in {lines} lines, not one per {most} lines")
    return wrong
