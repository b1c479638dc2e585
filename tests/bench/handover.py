# SPDX-License-Identifier: Apache-2.0
"""Counts failures of cross-reactor calls: one of two reactors owns the files, and the other one hands over its calls."""
import json
import subprocess

from planes import BenchPlanes

CLIENTS, CONNECTIONS, DEPTH = 6, 16, 64
SECONDS = 5


class TwoReactors(BenchPlanes):
    """Both planes with two reactors on the loopback driver, which assigns clients to the reactors alternately."""

    def __init__(self, build):
        super().__init__(build)
        self.write_config(f"""segment = "{self.name}"
[reactor]
count = 2
[transport]
max_connections = {CLIENTS * CONNECTIONS}
[device]
loopback_path = "{self.dir}/loopback"
loopback_links = {2 * CLIENTS * CONNECTIONS}
[[export]]
path = "/export"
clients = []
root_squash = false
[admin]
socket = "{self.socket}"
[metrics]
address = ""
[policy]
max_connections_per_client = {CLIENTS * CONNECTIONS}
[mount]
port = 0
rpcbind = false
""")
        self.start()

    def getattrs(self, connections, depth):
        return subprocess.Popen([self.programs["bench"], "--fabric", f"{self.dir}/loopback", "--json", "--seconds", str(SECONDS), "--connections",
                                 str(connections), "--depth", str(depth), "nfs3", "--mount-port", self.mount_port(), "--mix", "getattr=1"],
                                stdout=subprocess.PIPE, text=True)


def handover_system_err(build):
    """Counts GETATTRs that fail while more calls are outstanding than the queue between the reactors holds."""
    with TwoReactors(build) as planes:
        clients = [planes.getattrs(CONNECTIONS, DEPTH) for _ in range(CLIENTS)]
        results = [json.loads(client.communicate()[0]) for client in clients]
        handed_over = sum(reactor["calls_received"] for reactor in planes.ctl("counters")[1:])
    calls, errors = (sum(result[key] for result in results) for key in ("operations", "errors"))
    assert handed_over > 0, "no call was handed over"
    print(json.dumps({"figure": "handover_system_err", "unit": "calls", "value": errors, "goal": 0, "of": calls, "handed_over": handed_over}), flush=True)


TARGETS = []
FIGURES = {"handover_system_err": handover_system_err}
