# SPDX-License-Identifier: Apache-2.0
"""Both planes as processes, to be measured."""
import json
import os
import re
import subprocess
import time

QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024


def memif_ethdev(folder, role):
    return f"net_memif0,role={role},id=0,socket={folder}/memif.sock,socket-abstract=no,bsize=8192,rsize=10"


class MemifPlanes:
    """A data plane on memif with its control plane; client() is the command of a sluice-bench that speaks to it."""

    def __init__(self, build, folder, transport="", policy="max_connections_per_client = 64", metrics=""):
        self.build, self.folder, self.name = build, folder, f"sluice-bench-{os.getpid()}"
        with open(f"{folder}/sluice.toml", "w", encoding="utf-8") as file:
            file.write(f"""segment = "{self.name}"
[reactor]
idle = "spin"
[transport]
{transport}
[device]
driver = "softroce"
ethdev = "{memif_ethdev(folder, 'server')}"
addresses = ["192.0.2.1/24"]
[admin]
socket = "{folder}/admin"
[metrics]
address = "{metrics}"
[policy]
{policy}
[mount]
port = 20049
rpcbind = false
""")
        self.start_control()
        self.data = subprocess.Popen([f"{build}/sluice-dataplane", "--segment", self.name], **QUIET)
        for _ in range(300):
            done = subprocess.run([f"{build}/cli/sluicectl", "--socket", f"{folder}/admin", "--json", "exports"],
                                  capture_output=True, text=True)
            if done.returncode == 0 and json.loads(done.stdout):
                return
            time.sleep(0.1)
        raise RuntimeError("the planes did not start")

    def start_control(self):
        self.control = subprocess.Popen([f"{self.build}/controlplane/sluice-controlplane", "--config", f"{self.folder}/sluice.toml"],
                                        **QUIET)

    def client(self, *words):
        return [f"{self.build}/cli/sluice-bench", "--device", "softroce", "--ethdev", memif_ethdev(self.folder, "client"),
                "--address", "192.0.2.2/24", "--server", "192.0.2.1", "--json", *words]

    def load(self, *words):
        return json.loads(subprocess.run(self.client("--seconds", "1", *words), capture_output=True, text=True, check=True).stdout)

    def close(self):
        for process in (self.data, self.control):
            process.terminate()
            process.wait()
        if os.path.exists(f"/dev/shm/{self.name}"):
            os.unlink(f"/dev/shm/{self.name}")
