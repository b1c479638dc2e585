#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The threads of a control plane with all services. Speaks TAP.

threads_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH"""
import json
import os
import sys

from planes import common, free_port, run_tap
from prometheus_server import exposition, total

MOST_THREADS = 8
NAMES = {"sluice-controlp", "services", "log", "tasks"}
HOSTS = [f"host{number}.invalid" for number in range(8)]
CONFIG = """segment = "{name}"
[reactor]
idle = "backoff"
[device]
driver = "softroce"
ethdev = "{ethdev}"
addresses = ["192.0.2.1/24"]
[forward]
record_buffers = 8
item_buffers = 8
[admin]
socket = "{socket}"
[metrics]
address = "127.0.0.1:{metrics}"
[page]
address = "127.0.0.1:{page}"
[events]
file = "{dir}/events"
[mount]
port = 0
rpcbind = false
{more}
[[upstream]]
name = "over-rdma"
address = "192.0.2.2"
transport = "rdma"
port = 20049
listen_port = {listen}
programs = ["nfs4"]
connections = 1
"""
GATEWAY = """[kerberos]
enabled = true
port = {kerberos}
[locks]
enabled = true
port = 0
rpcbind = false
state = "{dir}/locks"
[[upstream]]
name = "over-tcp"
address = {hosts}
programs = ["nfs3", "nlm4"]
connections = 1"""
REVERSE = """[reverse]
enabled = true
listen_port = {kerberos}
server = "192.0.2.3"
[[upstream]]
name = "over-tcp"
address = {hosts}
programs = ["nfs4"]
connections = 1"""


class Planes(common.Planes):
    def __init__(self, *programs):
        super().__init__("threads", *programs)
        self.ports = {name: free_port() for name in ("metrics", "page", "kerberos", "listen")}

    def configure(self, more):
        values = {"name": self.name, "dir": self.dir, "socket": self.socket, "ethdev": common.memif_ethdev(self.dir, "server"),
                  "hosts": json.dumps(HOSTS), **self.ports}
        self.write_config(CONFIG.format(more=more.format(**values), **values))

    def tasks_started(self):
        return total(exposition(f"127.0.0.1:{self.ports['metrics']}"), "sluice_tasks_total", event="started")

    def threads(self):
        names = []
        for thread in os.listdir(f"/proc/{self.control.pid}/task"):
            with open(f"/proc/{self.control.pid}/task/{thread}/comm", encoding="utf-8") as file:
                names.append(file.read().strip())
        return sorted(names)


planes = Planes(*sys.argv[1:5])


def check_threads(more, names):
    """Starts a control plane, and checks its threads after each kind of task has run, because the threads of tasks remain."""
    planes.configure(more)
    planes.start_control()
    planes.wait("the control plane", lambda: planes.ctl("status"))
    before = planes.tasks_started()
    assert planes.ctl("topology") and planes.ctl("config", "reload") is not None
    assert planes.run_ctl("config", "check", planes.config).returncode == 0
    planes.wait("the tasks", lambda: planes.tasks_started() >= max(before, len(HOSTS)) + 3)
    threads = planes.threads()
    planes.stop()
    assert len(threads) <= MOST_THREADS and set(threads) == names, threads


def a_gateway_with_all_services_has_at_most_eight_named_threads():
    check_threads(GATEWAY, NAMES | {"locks"})


def a_reverse_gateway_has_at_most_eight_named_threads():
    check_threads(REVERSE, NAMES)


try:
    sys.exit(run_tap([(test.__name__, test) for test in (a_gateway_with_all_services_has_at_most_eight_named_threads,
                                                         a_reverse_gateway_has_at_most_eight_named_threads)]))
finally:
    planes.stop()
