# SPDX-License-Identifier: Apache-2.0
"""Checks the includes between folders against layers.toml."""
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
        """Returns the entry of the folder itself, or of the nearest parent with "/**"."""
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
        """Yields findings for entries that name a later or missing entry, because such a list could contain a cycle."""
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


# Template libraries that add seconds to the compilation of a source.
HEAVY_LIBRARIES = ("nlohmann/", "fmt/", "spdlog/", "toml++/", "CLI/", "prometheus/", "tbb/", "CivetServer")


def heavy_headers(tree):
    """Returns the headers of the product that include such a library, directly or indirectly, each with the library."""
    headers = [name for name in tree.named(".h") if not name.startswith("tests/")]
    found = {}
    for name in headers:
        for included in re.findall(r"^[ \t]*#[ \t]*include[ \t]*<([^>]+)>", tree.text(name), re.M):
            if included.startswith(HEAVY_LIBRARIES):
                found[name] = included
    while more := {name: found[included] for name in headers if name not in found for included in project_includes(tree, name) if included in found}:
        found.update(more)
    return found


def exposed_libraries(tree):
    """Returns findings for files that get such a library from a header of another folder."""
    heavy = heavy_headers(tree)
    return [f"{name} includes {included}, and with it <{heavy[included]}>" for name in tree.code if not name.startswith("tests/")
            for included in project_includes(tree, name) if included in heavy and os.path.dirname(included) != os.path.dirname(name)]


def project_includes(tree, name):
    """Yields the includes of a file within the project, as paths from its root. Generated headers, which have no folder, are left out."""
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
