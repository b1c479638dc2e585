# SPDX-License-Identifier: Apache-2.0
"""Checks citations of sources in pages of documentation: files, folders, and names in files. .github/CONTRIBUTING.md describes their form."""
import os
import re

from lengths import blanked
from tree import FOLDERS

CODE = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)|(?<=\n\n)(?: {4}[^\n]*\n+)+", re.S | re.M)  # fenced and indented blocks
QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"(?:(?:{'|'.join(FOLDERS)})/|\.ci/|\.github/)\S*")
NAME = r"`[\w:~]+(?:\(\))?`"
NAMES_IN_FILE = re.compile(rf"({NAME}(?:(?:,|,?\s+and|,?\s+or)\s+{NAME})*)\s+in\s+`([^`\s]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
SOURCES = (".cc", ".h")


def pages(tree):
    return [name for name in tree.named(".md") if name == "README.md" or name.startswith(("deploy/docs/", ".github/"))]


def exists(tree, path):
    path = path.rstrip("/")
    return path in tree.files or any(name.startswith(path + "/") for name in tree.files)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def code_of(tree, file):
    return blanked(tree.text(file)) if file.endswith(SOURCES) else tree.text(file)


def has(tree, file, name):
    """Returns whether a file has a name: each part of a qualified name as a word, and parentheses after the last part of a function's name."""
    *qualifiers, last = name.removesuffix("()").split("::")
    code = code_of(tree, file)
    wanted = rf"\b{re.escape(last)}\b" + (r"\s*\(" if name.endswith("()") else "")
    return re.search(wanted, code) is not None and all(re.search(rf"\b{part}\b", code) for part in qualifiers if part)


def elsewhere(tree, name):
    return [file for file in tree.named(*SOURCES) if not file.startswith("tests/") and has(tree, file, name)][:3]


def paths(tree, page, text):
    for match in QUOTED.finditer(text):
        path = match[1].split()[0] if match[1].split() else ""
        if PATH.fullmatch(path) and not exists(tree, path):
            yield f"{page}:{line_of(text, match.start())} cites {path}, which does not exist"


def names(tree, page, text):
    for match in NAMES_IN_FILE.finditer(text):
        file = match[2]
        if not PATH.fullmatch(file) or not exists(tree, file):
            continue
        where = f"{page}:{line_of(text, match.start())} cites"
        for name in QUOTED.findall(match[1]):
            if file not in tree.files:
                yield f"{where} {name} in the folder {file}: name the file"
            elif not has(tree, file, name):
                others = elsewhere(tree, name)
                yield f"{where} {name} in {file}, which has none" + (f"; {', '.join(others)} have" if others else "")


def links(tree, page, text):
    for match in LINK.finditer(text):
        if "://" in match[1] or match[1].startswith("mailto:"):
            continue
        if not exists(tree, os.path.normpath(os.path.join(os.path.dirname(page), match[1]))):
            yield f"{page}:{line_of(text, match.start())} links to {match[1]}, which does not exist"


def violations(tree):
    found = []
    for page in pages(tree):
        text = CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), tree.text(page))
        for check in (paths, names, links):
            found += check(tree, page, text)
    return found
