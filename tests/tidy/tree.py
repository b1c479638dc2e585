# SPDX-License-Identifier: Apache-2.0
"""Lists and reads the files of the project, for the checks of this folder."""
import functools
import os
import subprocess

FOLDERS = ("dataplane", "controlplane", "pmd", "cli", "telemetry", "tests", "deploy")


class Tree:
    def __init__(self, root):
        self.root = os.path.abspath(root)
        listed = subprocess.run(["git", "ls-files"], cwd=self.root, capture_output=True, text=True).stdout.split("\n")
        if len(listed) < 2:  # without a checkout, all files of the folder
            listed = self._walk()
        self.files = [name for name in listed if name and os.path.isfile(os.path.join(self.root, name))]
        self.code = self.named(".cc", ".h")

    def _walk(self):
        found = []
        for where, folders, names in os.walk(self.root):
            folders[:] = [f for f in folders if f != ".git" and not f.startswith(("build", "__pycache__"))]
            found += [os.path.relpath(os.path.join(where, name), self.root) for name in names]
        return sorted(found)

    def named(self, *endings):
        return [name for name in self.files if name.endswith(endings)]

    @functools.lru_cache(maxsize=None)
    def text(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as file:
            return file.read()
