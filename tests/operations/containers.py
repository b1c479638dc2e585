# SPDX-License-Identifier: Apache-2.0
"""Podman containers with separate storage, in a separate mount namespace."""
import os
import resource
import subprocess

from planes import Skipped

# Podman's storage and volumes are mounted in the namespace, so nothing is left behind. Podman requires a cgroup2 tree, which not every
# machine has at that path.
HOLDER = "mount --make-rprivate /; mount -t tmpfs tmpfs /dev/shm; umount -l /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; echo ready; exec sleep infinity"


class Podman:
    def __init__(self, folder):
        self.folder = folder
        self.running = []
        os.makedirs(folder)
        self.holder = subprocess.Popen(["unshare", "--mount", "sh", "-c", HOLDER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            raise Skipped(f"This machine allows no mount namespace with cgroup2: {self.holder.stderr.read()}")
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.options = ["--network", "none", "--cgroups", "disabled", "--ulimit", f"nofile={files}:{files}", "--ulimit", "nproc=4096:4096"]

    def command(self, *words):
        return ["nsenter", f"--target={self.holder.pid}", "--mount", "podman", f"--root={self.folder}/root", f"--runroot={self.folder}/run",
                "--storage-driver=vfs", "--cgroup-manager=cgroupfs", *words]

    def call(self, *words):
        return subprocess.run(self.command(*words), capture_output=True, text=True, check=False)

    def done(self, *words):
        called = self.call(*words)
        assert called.returncode == 0, called
        return called.stdout

    def start(self, name, image, *options):
        with open(f"{self.folder}/{name}.log", "w", encoding="utf-8") as log:
            self.running.append(subprocess.Popen(self.command("run", "--name", name, *self.options, *options, image), stdout=log, stderr=log))

    def log(self, name):
        with open(f"{self.folder}/{name}.log", encoding="utf-8") as file:
            return file.read()

    def stop(self):
        self.call("stop", "--all", "--time", "20")
        for process in self.running:
            process.wait()
        self.call("rm", "--all", "--force", "--volumes")
        self.holder.kill()
        self.holder.communicate()
