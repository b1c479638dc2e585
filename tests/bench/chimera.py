# SPDX-License-Identifier: Apache-2.0
"""chimera, an NFS server in user space, with its memfs backend. No package has it, so SLUICE_CHIMERA in the environment is the path
of its daemon."""
import json
import os
import shlex

import peer

VARIABLE = "SLUICE_CHIMERA"


def daemon():
    return os.environ.get(VARIABLE, "")


def lacks():
    """Returns the reason why chimera cannot run on this machine as a sentence, or None."""
    if not daemon():
        return f"{VARIABLE} does not name chimera's daemon, which is in no package."
    if not os.access(daemon(), os.X_OK) or os.path.isdir(daemon()):
        return f"{VARIABLE} names {daemon()}, which is not a program."
    return peer.lacks()


class Chimera(peer.Peer):
    """One thread serves NFS. The size of a block of memfs is the default, 64 KiB."""

    NAME, NFS_PORT, MOUNT_PORT, EXPORT = "chimera", 2049, 20048, "/mem"

    def start_script(self, on_cpu):
        config = {"server": {"threads": 1, "nfs_port": self.NFS_PORT, "state_dir": self.dir},
                  "mounts": {"mem": {"module": "memfs", "path": "/"}},
                  "exports": {self.EXPORT: {"path": "/mem"}}}
        with open(f"{self.dir}/chimera.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        return f"exec {on_cpu} {shlex.quote(daemon())} -c {self.dir}/chimera.json"
