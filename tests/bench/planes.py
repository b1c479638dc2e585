# SPDX-License-Identifier: Apache-2.0
"""Both planes as processes of the benchmarks."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import planes_of_tests  # noqa: E402


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024


def ask(path, method):
    """Returns the result of one request to the admin socket, or None while no control plane answers."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(path)
            client.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method}).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                part = client.recv(65536)
                if not part:
                    return None
                answer += part
            return json.loads(answer)["result"]
    except OSError:
        return None


class BenchPlanes(planes_of_tests.Planes):
    def __init__(self, build):
        super().__init__("bench", f"{build}/controlplane/sluice-controlplane", f"{build}/sluice-dataplane",
                         f"{build}/cli/sluicectl", f"{build}/cli/sluice-bench")

    def __enter__(self):
        return self

    def __exit__(self, *failed):
        self.stop()
        if failed == (None, None, None):
            shutil.rmtree(self.dir)


class MemifPlanes(BenchPlanes):
    """A data plane on memif with its control plane. Its reactor polls continuously."""

    def __init__(self, build, transport="", policy="max_connections_per_client = 64", metrics="", more=""):
        super().__init__(build)
        self.write_config(f"""segment = "{self.name}"
[reactor]
idle = "spin"
[transport]
{transport}
[device]
driver = "softroce"
ethdev = "{planes_of_tests.memif_ethdev(self.dir, 'server')}"
addresses = ["192.0.2.1/24"]
[[export]]
path = "/export"
clients = []
root_squash = false
[admin]
socket = "{self.socket}"
[metrics]
address = "{metrics}"
[policy]
{policy}
[mount]
port = 0
rpcbind = false
{more}
""")
        self.start()

    def load(self, *words, seconds=0.4):
        """Runs sluice-bench, and returns its report."""
        command = self.over_memif("--seconds", str(seconds), *words)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise planes_of_tests.Failed(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}{done.stdout}")
        return json.loads(done.stdout)

    @contextlib.contextmanager
    def paused(self):
        """Pauses the data plane, for less time than the control plane allows between heartbeats."""
        os.kill(self.data.pid, signal.SIGSTOP)
        os.waitpid(self.data.pid, os.WUNTRACED)
        try:
            yield
        finally:
            os.kill(self.data.pid, signal.SIGCONT)

    def beside(self, side):
        """Returns a side that is measured while the data plane is paused."""
        def measure():
            with self.paused():
                return side()
        return measure
