# SPDX-License-Identifier: Apache-2.0
"""Four Sluices in a separate network, and conditions that make their alerts fire. To be imported by a program with their paths as its arguments."""
import contextlib
import resource
import signal
import socket
import struct
import subprocess
import sys
import time

from planes import end, free_port
from prometheus_server import exposition, total
from silent_upstream import NFS, SilentUpstream
from sites import SERVER, Site, again_and_again, enter_own_network, over_wire
from wire import Wire, claim, damaging, ethdev, forging, ip, losing

CONFORMANCE, DEPLOY = sys.argv[5:7]
TCP_CLIENTS = 60  # entries for TCP clients
WITHOUT_CONDITION = {
    "SluiceInvariantFailed": "no input makes a check of Sluice's own fail; unit tests show that one that does is counted",
    "SluiceVerbsDeviceDown": "wants an RDMA device that goes: verbs_test.py has one in a guest, without Prometheus, and looks at the counter",
    "SluiceVerbsNotFlushed": "wants an RDMA device that fails: verbs_endings_test.cc has a model of one, and looks at the counter",
    **{f"SluiceRdma{what}": "wants the counters of an RDMA device: exporter_test.cc reads made-up ones"
       for what in ("PacketsLost", "PacketsMissed", "ReceivesMissing", "Congested")},
}

enter_own_network()
upstream = SilentUpstream(free_port())
reverse_port = free_port()
wire = Wire()
served = Site("served", """
[transport]
call_buffers = 2
[host_authentication]
method = "psk"
[[host_authentication.host]]
name = "client"
key_files = ["FOLDER/key"]
[device]
loopback_path = "FABRIC"
[policy]
max_connections_per_client = 16
max_credits = 64
[[export]]
path = "/export"
clients = []
root_squash = false
quota_mib = 17
""")
gateway = Site("gateway", f"""
[device]
loopback_path = "FABRIC"
[forward]
record_buffers = 1
item_buffers = 8
request_cache = 16
[[upstream]]
name = "nas"
address = "127.0.0.1"
port = {upstream.port}
mount_port = {upstream.mount}
programs = ["nfs3"]
""")
reverse = Site("reverse", f"""
[device]
loopback_path = "{gateway.fabric}"
[reverse]
enabled = true
listen_address = "127.0.0.1"
listen_port = {reverse_port}
server = "127.0.0.1"
mount_port = 1
clients = {TCP_CLIENTS}
""")
on_wire = Site("wire", f"""
[device]
driver = "softroce"
ethdev = "{ethdev('server')}"
addresses = ["{SERVER}/24"]
[[export]]
path = "/export"
clients = []
root_squash = false
""")
served.key("key")
SITES = [served, gateway, reverse, on_wire]


def makes(*where, ends=True):
    """Makes a context of a function that causes these alerts, given as (site, alert, ...). `ends`: the alerts end soon after the condition."""
    def made(function):
        function = contextlib.contextmanager(function)
        function.alerts = {(site.metrics, alert) for site, *alerts in where for alert in alerts}
        function.ends = ends
        return function
    return made


@contextlib.contextmanager
def under_load(*words, site=served):
    load = site.load(*words)
    try:
        site.loaded(0)
        yield
    finally:
        end(load)


@contextlib.contextmanager
def standing_still(process):
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def descriptors_for_few(process):
    """Lowers the process's limit of descriptors while the body runs."""
    limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (TCP_CLIENTS, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)


def kill(process):
    process.kill()
    process.communicate()


@makes((served, "SluiceDataPlaneDown", "SluiceConfigurationNotInForce", "SluiceRingFull"))
def a_data_plane_stands_still_and_more_is_wanted_of_it():
    with under_load("--rate", "10", "null"):
        with standing_still(served.data):
            served.reload("max_credits = 64", "max_credits = 7")
            yield
        served.reload()


@makes((served, "SluiceConfigurationWaits"))
def a_key_has_changed_that_only_a_restart_brings_into_force():
    served.reload("call_buffers = 2", "call_buffers = 3")
    yield
    served.reload()


@makes((served, "SluiceNotScraped"))
def a_control_plane_is_gone():
    served.control.terminate()
    served.control.wait()
    yield
    served.start_control()
    served.up()


@makes((served, "SluiceControlPlaneStalls"), ends=False)
def a_control_plane_stands_still():
    with standing_still(served.control):
        time.sleep(2)
    yield


@makes((served, "SluicePlaneRestarts"), ends=False)
def a_data_plane_dies_again_and_again():
    def started():
        return total(exposition(served.metrics), "sluice_plane_start_time_seconds", plane="data")

    def dies():
        before = started()
        served.data.kill()
        served.data.wait()
        served.start_data()
        served.wait("another start", lambda: started() != before)

    with again_and_again(dies):
        yield
    served.up()


@makes((served, "SluiceConnectionsRefused"))
def a_client_wants_more_connections_than_it_may_have():
    served.reload("max_connections_per_client = 16", "max_connections_per_client = 1")
    with under_load("--rate", "10", "null"), again_and_again(served.probe):
        yield
    served.reload()


@makes((served, "SluiceHostsRefused"))
def a_host_has_another_key():
    with again_and_again(lambda: served.probe("--rpcrdma", "2", "--host-name", "client", "--psk", served.key("other-key"))):
        yield


@makes((served, "SluiceProtocolErrors"))
def a_client_sends_nonsense():
    def nonsense():
        subprocess.run([CONFORMANCE, "--fabric", served.fabric, "--row", "V1-031"], capture_output=True, check=True)

    with again_and_again(nonsense):
        yield


@makes((served, "SluiceCallsWait"))
def long_calls_have_few_buffers():
    with under_load("--connections", "16", "--depth", "64", "bulk", "--call-bytes", "65536"):
        yield


@makes((served, "SluiceReactorSaturated", "SluiceExportFull"))
def clients_fill_an_export_and_read_as_fast_as_they_can():
    with under_load("--connections", "4", "nfs3", "--mount-port", served.mount_port(), "--mix", "read=1", "--block", "1048576"):
        yield


def nfs_null(xid):
    call = struct.pack(">10I", xid, 0, 2, NFS, 3, 0, 0, 0, 0, 0)
    return struct.pack(">I", 0x80000000 | len(call)) + call


@contextlib.contextmanager
def tcp_clients(count):
    """Connects `count` TCP clients. The first one sends a call."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", reverse_port))) for _ in range(count)]
        clients[0].sendall(nfs_null(1))
        yield


@makes((reverse, "SluiceReverseServerUnreachable", "SluiceDescriptorsShort"), (gateway, "SluiceDraining"))
def many_tcp_clients_call_a_server_that_is_being_drained():
    assert gateway.ctl("drain", "--no-wait")
    with descriptors_for_few(reverse.data), tcp_clients(TCP_CLIENTS):
        yield
    gateway.ctl("drain", "--stop")


@makes((reverse, "SluiceReverseClientsFull"), ends=False)
def more_tcp_clients_come_than_there_are_entries():
    with tcp_clients(TCP_CLIENTS + 1):
        yield


def load_of_gateway():
    return gateway.load("nfs3", "--mount-port", gateway.mount_port(), "--mix", "read=1", "--block", "65536")


@makes((gateway, "SluiceUpstreamUnreachable"))
def an_upstream_is_away():
    load = load_of_gateway()
    gateway.loaded(0)
    yield
    kill(load)
    upstream.comes()


@contextlib.contextmanager
def refused_calls():
    upstream.refuses = True
    with again_and_again(lambda: load_of_gateway().communicate()):
        yield
    upstream.refuses = False


@makes((gateway, "SluiceUpstreamRepliesForgotten"), ends=False)
def an_upstream_gets_more_calls_than_can_be_remembered():
    with refused_calls():
        yield


@makes((gateway, "SluiceLatencyHigh"))
def an_upstream_is_slow():
    upstream.delay_s = 0.05
    with refused_calls():
        yield
    upstream.delay_s = 0


@makes((gateway, "SluiceUpstreamTimeouts", "SluiceCallStuck", "SluiceUpstreamCallsWait"), (reverse, "SluiceReverseServerSilent"))
def an_upstream_says_nothing_for_a_while():
    load = load_of_gateway()
    gateway.wait("READs", lambda: (shown := gateway.ctl("upstreams")[0])["outstanding"] and shown["waiting"])
    with standing_still(load), tcp_clients(1):  # the client has less patience than the alert
        yield
    kill(load)


@contextlib.contextmanager
def wire_that_harms(harm):
    load = over_wire("nfs3", "--mount-port", on_wire.mount_port())
    try:
        on_wire.loaded(0)
        wire.harm = harm
        yield
    finally:
        wire.harm = None
        end(load)


@makes((on_wire, "SluiceRoceRetransmits", "SluiceRocePacketsMissed"))
def a_wire_loses_packets():
    with wire_that_harms(losing(0.05)):
        yield


@makes((on_wire, "SluiceRocePacketsDamaged"))
def a_wire_damages_packets():
    with wire_that_harms(damaging(0.05)):
        yield


@makes((on_wire, "SluiceRocePacketsForged", "SluiceAddressConflict"))
def a_host_on_the_wire_poses_as_others():
    with wire_that_harms(forging("192.0.2.3")), again_and_again(lambda: wire.send_to_server(claim(SERVER))):
        yield


@makes((on_wire, "SluiceRoceLinkDown"))
def an_interface_is_set_down():
    ip("link", "set", "server", "down")
    try:
        yield
    finally:
        ip("link", "set", "server", "up")


# The alert of the silent upstream takes a minute, so it is checked last, while conditions independent of the gateway are tested.
CONDITIONS = [an_upstream_is_away, an_upstream_gets_more_calls_than_can_be_remembered, an_upstream_is_slow,
              many_tcp_clients_call_a_server_that_is_being_drained, more_tcp_clients_come_than_there_are_entries,
              a_data_plane_stands_still_and_more_is_wanted_of_it,
              a_key_has_changed_that_only_a_restart_brings_into_force, a_control_plane_is_gone,
              a_client_wants_more_connections_than_it_may_have, a_host_has_another_key, a_client_sends_nonsense, long_calls_have_few_buffers,
              clients_fill_an_export_and_read_as_fast_as_they_can, a_wire_loses_packets, a_wire_damages_packets,
              a_host_on_the_wire_poses_as_others, an_interface_is_set_down, a_data_plane_dies_again_and_again, a_control_plane_stands_still,
              an_upstream_says_nothing_for_a_while]
BEGUN_AFTER = {more_tcp_clients_come_than_there_are_entries: an_upstream_says_nothing_for_a_while}
