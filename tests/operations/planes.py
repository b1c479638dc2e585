# SPDX-License-Identifier: Apache-2.0
"""Both planes on memif, with a client on the same machine."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import planes_of_tests as common  # noqa: E402
from admin_client import check_names  # noqa: E402
from planes_of_tests import PATIENCE_S, Skipped, end, finish, free_port, missing, need, run_tap  # noqa: E402,F401


class Planes(common.Planes):
    def __init__(self, control, data, ctl, bench, extra=""):
        super().__init__("operations", control, data, ctl, bench)
        self.metrics = f"127.0.0.1:{free_port()}"
        self.extra = extra
        self.write_config()

    def write_config(self, replace=None, extra=None):
        text = f"""segment = "{self.name}"
log_level = "info"
[reactor]
idle = "backoff"
[transport]
credits = 64
[device]
driver = "softroce"
ethdev = "{common.memif_ethdev(self.dir, 'server')}"
addresses = ["192.0.2.1/24"]
[admin]
socket = "{self.socket}"
[metrics]
address = "{self.metrics}"
[events]
file = "{self.dir}/events"
[mount]
port = 0
rpcbind = false
[[export]]
path = "/export"
clients = []
root_squash = false
quota_mib = 512
{self.extra if extra is None else extra}"""
        for old, new in (replace or {}).items():
            assert old in text, old
            text = text.replace(old, new)
        super().write_config(text)

    def run_ctl(self, *words):
        """Runs sluicectl, and checks the keys of its JSON output."""
        done = super().run_ctl(*words)
        if "--json" in words and done.returncode == 0:
            for document in done.stdout.splitlines() if {"events", "slow"} & set(words) else [done.stdout]:
                check_names(json.loads(document))
        return done

    def load(self, *words):
        return subprocess.Popen(self.over_memif(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def nfs_load(self, *words, seconds=PATIENCE_S):
        """Starts a load with typical verbs and weights; end() ends it."""
        return self.load("--seconds", str(seconds), *words, "nfs3", "--mount-port", self.mount_port(), "--file-mib", "16", "--block",
                         "65536", "--mix", "read=3,write=1,getattr=6")
