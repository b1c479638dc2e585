# SPDX-License-Identifier: Apache-2.0
"""Checks which folder includes which against layers.toml."""
import os
import re
import tomllib

from tree import FOLDERS


class Layers:
    def __init__(self, path):
        with open(path, "rb") as file:
            read = tomllib.load(file)
        self.allowed = read["layers"]
        self.exceptions = {(e["file"], e["includes"]): e.get("reason", "") for e in read.get("exception", [])}

    def entry_of(self, folder):
        """The entry of the folder itself, or of the nearest parent with "/**"."""
        if folder in self.allowed:
            return folder
        while folder:
            if folder + "/**" in self.allowed:
                return folder + "/**"
            folder = os.path.dirname(folder)
        return None

    def permits(self, name, included):
        folder, target = os.path.dirname(name), os.path.dirname(included)
        if folder == target:
            return True
        for value in self.allowed[self.entry_of(folder)]:
            if value in (target, included):
                return True
            if value.endswith("/**") and f"{target}/".startswith(value[:-2]):
                return True
        return False

    def disorder(self):
        """Entries that name a later or missing entry: such a list could contain a cycle."""
        seen = []
        for key, values in self.allowed.items():
            for value in values:
                target = os.path.dirname(value) if value.endswith(".h") else value
                if target.endswith("/**"):
                    known = any(f"{folder}/".startswith(target[:-2]) for folder in [*seen, key])
                else:
                    known = target in seen
                if not known:
                    yield f"layers.toml: {key} names {value}, which is not above it"
            seen.append(key)


def project_includes(tree, name):
    """Includes of a file within the project, as paths from its root. Generated headers have no folder."""
    for included in re.findall(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', tree.text(name), re.M):
        beside = os.path.normpath(os.path.join(os.path.dirname(name), included))
        if included.startswith(tuple(folder + "/" for folder in FOLDERS)):
            yield included
        elif os.path.isfile(os.path.join(tree.root, beside)):
            yield beside


def violations(tree, path):
    layers = Layers(path)
    wrong = list(layers.disorder())
    used = set()
    for name in tree.code:
        if layers.entry_of(os.path.dirname(name)) is None:
            wrong.append(f"{name}: layers.toml has no entry for its folder")
            continue
        for included in project_includes(tree, name):
            if layers.permits(name, included):
                continue
            if (name, included) in layers.exceptions:
                used.add((name, included))
            else:
                wrong.append(f"{name} includes {included}")
    wrong += [f"layers.toml: the exception for {name} and {included} is not needed"
              for name, included in layers.exceptions if (name, included) not in used]
    wrong += [f"layers.toml: the exception for {name} gives no reason"
              for (name, _), reason in layers.exceptions.items() if not reason]
    return wrong
