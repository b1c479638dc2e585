# SPDX-License-Identifier: Apache-2.0
"""Sluices in all roles with clients of both versions, and what happens to them. To be imported by a program with their paths as its arguments.

    client, version 1 - \\
    client, version 2 - - wire - server, exports in memory
    client, version 1 - \\
    client, version 2 - - gateway - TCP - reverse gateway - RDMA - store, exports in memory"""
import contextlib
import time

from planes import PATIENCE_S, end, free_port
from sites import SERVER, Site, again_and_again, enter_own_network, over_wire
from wire import Wire, ethdev, losing

MIX = ("--depth", "4", "--block", "32768", "--mix", "read=3,write=1,getattr=6")
EXPORT = '[[export]]\npath = "/export"\nclients = []\nroot_squash = false\nquota_mib = 256\n'


class Load:
    def __init__(self):
        enter_own_network()
        self.wire = Wire()
        self.sites = []
        self.server = self.site("server", f"""
[device]
driver = "softroce"
ethdev = "{ethdev('server')}"
addresses = ["{SERVER}/24"]
[host_authentication]
method = "psk"
[[host_authentication.host]]
name = "client"
key_files = ["FOLDER/key"]
[[client_class]]
name = "batch"
clients = ["192.0.2.3"]
{EXPORT}""")
        self.server.key("key")
        self.store = self.site("store", f'[device]\nloopback_path = "FABRIC"\n{EXPORT}')

    def site(self, name, more):
        self.sites.append(Site(name, more))
        return self.sites[-1]

    def start(self):
        """Each behind the one that it asks for the exports."""
        for site in (self.server, self.store):
            site.start()
        port = free_port()
        self.reverse = self.site("reverse", f"""
[device]
loopback_path = "{self.store.fabric}"
[reverse]
ingress = "tcp"
listen_address = "127.0.0.1"
listen_port = {port}
server = "127.0.0.1"
mount_port = {self.store.mount_port()}
""")
        self.reverse.start()
        self.gateway = self.site("gateway", f"""
[device]
loopback_path = "FABRIC"
[[upstream]]
name = "nas"
address = "127.0.0.1"
port = {port}
mount_port = {self.reverse.mount_port()}
programs = ["nfs3"]
""")
        self.gateway.start()

    def clients(self, seconds):
        """Of the server, and of the gateway. They are there for longer."""
        seconds += PATIENCE_S
        nfs = ("nfs3", "--mount-port", self.server.mount_port(), *MIX)
        yield over_wire("--rate", "400", *nfs, seconds=seconds)
        yield over_wire("--rpcrdma", "2", "--rate", "200", *nfs, address="192.0.2.3", seconds=seconds)
        forwarded = ("nfs3", "--mount-port", self.gateway.mount_port(), *MIX)
        yield self.gateway.load("--rate", "300", *forwarded, seconds=seconds)
        yield self.gateway.load("--rpcrdma", "2", "--rate", "100", *forwarded, seconds=seconds)

    def run(self, seconds):
        """Six parts of equal length. Returns when it began and ended."""
        part_s = seconds / 6
        begun = time.time()
        with contextlib.ExitStack() as stack:
            def until_the_end(load):
                stack.callback(end, load)

            for load in self.clients(seconds):
                until_the_end(load)
            time.sleep(part_s)
            long_calls = over_wire("--connections", "4", "--depth", "16", "bulk", "--call-bytes", "32768", address="192.0.2.5")
            time.sleep(part_s)
            end(long_calls)
            self.wire.harm = losing(0.002)
            time.sleep(part_s)
            self.wire.harm = None
            # A host that has another key comes again and again.
            stranger = ("--rpcrdma", "2", "--host-name", "client", "--psk", self.server.key("other-key"), "probe")
            with again_and_again(lambda: over_wire(*stranger, address="192.0.2.4").communicate()):
                time.sleep(part_s)
            self.reverse.data.kill()
            self.reverse.data.wait()
            time.sleep(part_s / 4)
            self.reverse.start_data()
            time.sleep(1.75 * part_s)
            return begun, time.time()

    def stop(self):
        for site in self.sites:
            site.stop()
