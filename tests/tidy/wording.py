# SPDX-License-Identifier: Apache-2.0
"""Checks the wording of comments. Phrases of this list, and comments without a subject, often indicate that a comment lacks the name of a
thing or the verb for an action.

wording.py SOURCE_ROOT [FOLDER]    prints the phrases, and the comments without a subject"""
import collections
import os
import re
import sys

# Persons where a machine or a program is meant, and what only persons do.
PERSONS = r"who|whom|whoever|nobody|somebody|anybody|is told|are told|was told|were told|minds|lets? go|gives? way|has gone|have gone|is gone|are gone|wants? (?:a|an|the|to)|asks for"
# Words that refer to something that the comment does not name.
RIDDLES = (r"likewise|whatever|elsewhere|meanwhile|at hand|the one that|those of|those that|no more|any more|as it is|of its own|of their own|in turn|stands? for|comes? about|goes? on|"
           r"there is to|that there (?:is|are)|so (?:long|many|much|often|few)(?! as\b)|made again|asked again|at once")
PHRASE = re.compile(rf"\b(?:{PERSONS}|{RIDDLES})\b", re.I)
# A block that begins with one of these has no subject: a preposition, a conjunction or a pronoun takes its place.
BEGINNING = re.compile(r"(?:Of|In|At|By|As|To|From|For|With|Beside|Behind|Until|While|Where|When(?!ever)|Or|That|Those|What|Whatever|Who|Whoever|Whose|Which|How|More|Most|Its|Theirs|"
                       r"The same|One that|Room)\b(?! (?:number|size|version) )")
LINE = re.compile(r"^\s*//[/!]?<?(?: |$)")
TRAILING = re.compile(r"///< ")
LICENSE = re.compile(r"SPDX-License-Identifier: \S+ ?")

PHRASES_PER_1000_WORDS = 2
BLOCKS_WITHOUT_SUBJECT = 0.03
COLUMNS = 110
LEAST_WORDS = 3  # shorter blocks are headings


def blocks(text):
    """Yields (line, text) of each run of comment lines, and of each comment behind code with the lines that continue it."""
    lines, at = text.split("\n"), 0
    while at < len(lines):
        first, words = at, []
        if LINE.match(lines[at]):
            while at < len(lines) and LINE.match(lines[at]):
                words.append(LINE.sub("", lines[at], count=1))
                at += 1
        elif trailing := TRAILING.search(lines[at]):
            words.append(lines[at][trailing.end():])
            at += 1
            while at < len(lines) and re.match(r"\s+///< ", lines[at]):
                words.append(TRAILING.split(lines[at], maxsplit=1)[1])
                at += 1
        else:
            at += 1
            continue
        block = LICENSE.sub("", " ".join(words)).strip()
        if len(block.split()) >= LEAST_WORDS:
            yield first + 1, block


class Count:
    def __init__(self):
        self.words = self.blocks = 0
        self.phrases, self.headless = [], []  # places

    def add(self, place, block):
        self.words += len(block.split())
        self.blocks += 1
        self.phrases += [f"{place}: '{found[0]}' in: {block[:100]}" for found in PHRASE.finditer(block)]
        if BEGINNING.match(block):
            self.headless.append(f"{place}: no subject: {block[:100]}")


def counts(tree):
    """Returns the counts of each folder with sources."""
    found = collections.defaultdict(Count)
    for name in tree.code:
        for line, block in blocks(tree.text(name)):
            found[os.path.dirname(name)].add(f"{name}:{line}", block)
    return found


def comments_are_the_fields_english(tree):
    wrong = []
    for folder, count in sorted(counts(tree).items()):
        if len(count.phrases) > PHRASES_PER_1000_WORDS * max(count.words, 1000) / 1000:
            wrong += [f"{folder} has {1000 * len(count.phrases) / count.words:.1f} odd phrases for 1,000 words, such as", *count.phrases[:3]]
        if len(count.headless) > max(1, BLOCKS_WITHOUT_SUBJECT * count.blocks):
            wrong += [f"{folder} has {len(count.headless)} of {count.blocks} comments without a subject, such as", *count.headless[:3]]
    return wrong


def comment_lines_fit(tree):
    return [f"{name}:{number} has {len(line)} columns" for name in tree.code for number, line in enumerate(tree.text(name).split("\n"), 1)
            if len(line) > COLUMNS and "//" in line and "://" not in line and "NOLINT" not in line]


def report(tree):
    """Yields the figures of all folders together, as lines of JSON."""
    found = counts(tree)
    words, amount = sum(c.words for c in found.values()), sum(c.blocks for c in found.values())
    phrases, headless = sum(len(c.phrases) for c in found.values()), sum(len(c.headless) for c in found.values())
    yield f'{{"figure": "words_per_1000", "value": {1000 * phrases / max(words, 1):.1f}, "goal": {PHRASES_PER_1000_WORDS}}}'
    yield f'{{"figure": "comments_without_subject", "value": {headless / max(amount, 1):.3f}, "goal": {BLOCKS_WITHOUT_SUBJECT}}}'


def main():
    from tree import Tree
    for folder, count in sorted(counts(Tree(sys.argv[1])).items()):
        if folder.startswith(sys.argv[2] if len(sys.argv) > 2 else ""):
            print(*count.phrases, *count.headless, sep="\n", end="\n" if count.phrases or count.headless else "")


if __name__ == "__main__":
    main()
