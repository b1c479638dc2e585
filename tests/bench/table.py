#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the output of run.py into the columns 'ratio' and 'absolute' of a page's table of figures.

table.py PAGE < RESULTS    (PAGE: tests/bench/figures.md or deploy/docs/figures.md)

Figures with fewer pairs than a comparison requires are not changed."""
import json
import re
import sys

from pairs import PAIRS

PLACEMENTS = ("near", "far", "one core", "memory")
IS_RESULT = re.compile(r'\{"figure"')  # lines of results among other output


def readable(number, unit):
    """Formats seconds, bytes and counts with three digits: 1.84 million/s, 9.6 GB/s."""
    if unit in ("ns", "us", "ms", "s", "MiB") or unit.startswith("ns "):
        return f"{number:.3g} {unit.split()[0]}" if number < 1000 else f"{number / 1000:.3g} us" if unit.startswith("ns") else f"{number:.0f} {unit}"
    if unit.startswith("bytes"):
        for scale, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1, "B")):
            if number >= scale:
                return f"{number / scale:.3g} {name}{unit.removeprefix('bytes')}"
    if number >= 1e6:
        return f"{number / 1e6:.3g} million/s"
    return f"{float(f'{number:.3g}'):,.0f}/s"


def cells(result):
    ratios, absolutes = [], []
    here = [placement for placement in PLACEMENTS if placement in result]
    for placement in here:
        of = result[placement]
        name = f"{placement} " if len(here) > 1 or placement in ("near", "far") else ""
        ratios.append(f"{name}**{of['ratio']:.3g}** ({of['quartiles'][0]:.3g} to {of['quartiles'][1]:.3g})")
        absolutes.append(f"{readable(of['value'], result['unit'])} : {readable(of['baseline'], result['unit'])}")
    return ", ".join(ratios), ", ".join(absolutes)


def complete(result):
    if "failed" in result or "skipped" in result or not any(placement in result for placement in PLACEMENTS):
        return False
    return "memory" in result or sum(result[placement]["pairs"] for placement in PLACEMENTS if placement in result) >= PAIRS


def filled(text, results):
    """Returns the text with the rows of these results updated."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        parts = line.split(" | ")
        result = results.get(parts[0].removeprefix("| `").removesuffix("`"))
        if line.startswith("| `") and result and len(parts) == 5:
            lines[number] = " | ".join([*parts[:2], *cells(result), parts[4]])
    return "\n".join(lines)


def main():
    results = {result["figure"]: result for result in map(json.loads, filter(IS_RESULT.match, sys.stdin)) if complete(result)}
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(filled(text, results))


if __name__ == "__main__":
    main()
