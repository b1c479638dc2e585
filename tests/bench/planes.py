# SPDX-License-Identifier: Apache-2.0
"""Both planes as processes, to be measured."""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import planes_of_tests  # noqa: E402


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024


class MemifPlanes(planes_of_tests.Planes):
    """A data plane on memif with its control plane."""

    def __init__(self, build, transport="", policy="max_connections_per_client = 64", metrics=""):
        super().__init__("bench", f"{build}/controlplane/sluice-controlplane", f"{build}/sluice-dataplane",
                         f"{build}/cli/sluicectl", f"{build}/cli/sluice-bench")
        self.write_config(f"""segment = "{self.name}"
[reactor]
idle = "spin"
[transport]
{transport}
[device]
driver = "softroce"
ethdev = "{planes_of_tests.memif_ethdev(self.dir, 'server')}"
addresses = ["192.0.2.1/24"]
[admin]
socket = "{self.socket}"
[metrics]
address = "{metrics}"
[policy]
{policy}
[mount]
port = 20049
rpcbind = false
""")
        self.start()

    def load(self, *words):
        return json.loads(subprocess.run(self.over_memif("--seconds", "1", *words), capture_output=True, text=True, check=True).stdout)
