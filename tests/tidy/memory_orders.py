# SPDX-License-Identifier: Apache-2.0
"""Each acquire and release operation of the product names its partner: which function or member it pairs with, and what the pair publishes."""
import re

import lengths

OPERATION = re.compile(r"\bmemory_order(?:_|::)(?:acquire|release|acq_rel)\b|\batomic_thread_fence\b|\b__ATOMIC_(?:ACQUIRE|RELEASE|ACQ_REL)\b")
# A function or a member, in the same sentence.
PARTNER = re.compile(r"\bpairs with\b(?:[^.:]|::)*?(?:\w\(\)|`\w+`)", re.I)
COMMENT = re.compile(r"\s*//[/!]?<? ?")
END_OF_STATEMENT = (";", "{", "}", ":")


def comments_at(lines, code, at):
    """Returns the comments of the statement in line `at`: before it, and behind its lines up to that one. `code` is without comments."""
    first = at
    while first > 0 and code[first - 1].strip() and not code[first - 1].rstrip().endswith(END_OF_STATEMENT):
        first -= 1
    while first > 0 and COMMENT.match(lines[first - 1]):
        first -= 1
    return " ".join(COMMENT.sub("", line[line.find("//"):], count=1) for line in lines[first:at + 1] if "//" in line)


def violations(tree):
    """Returns the operations without a partner. Does not find those in macros."""
    wrong = []
    for name in tree.code:
        if name.startswith("tests/") or not OPERATION.search(tree.text(name)):
            continue
        lines, code = tree.text(name).split("\n"), lengths.blanked(tree.text(name)).split("\n")
        wrong += [f"{name}:{at + 1}: no comment 'pairs with FUNCTION(): ...' for {found[0]}" for at, line in enumerate(code)
                  if (found := OPERATION.search(line)) and not PARTNER.search(comments_at(lines, code, at))]
    return wrong
