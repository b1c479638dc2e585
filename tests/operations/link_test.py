#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""softroce on a kernel interface that loses its carrier, changes, and is deleted and created again, under load. Speaks TAP.

link_test.py CONTROLPLANE DATAPLANE SLUICECTL BENCH"""
import errno
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from planes import PATIENCE_S, end, need, run_tap
from sites import Site
from wire import ethdev, ip

IN_NAMESPACE = "SLUICE_LINK_IN_NAMESPACE"
MTU = 4300
SERVER, CLIENT, KERNEL = "192.0.2.1", "192.0.2.2", "192.0.2.3"
SERVER6, KERNEL6 = "2001:db8::1", "2001:db8::3"


def enter_own_network():
    need("unshare", "ip", root_for="a network namespace of its own")
    if IN_NAMESPACE not in os.environ:
        os.environ[IN_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    ip("link", "set", "lo", "up")


def create(end_of_wire, mtu=MTU):
    """Creates an interface whose other end is a port of the switch."""
    ip("link", "add", end_of_wire, "mtu", str(mtu), "type", "veth", "peer", "name", f"{end_of_wire}-port", "mtu", str(MTU))
    ip("link", "set", f"{end_of_wire}-port", "master", "switch", "up")
    ip("link", "set", end_of_wire, "up")


def lay_wire():
    ip("link", "add", "switch", "mtu", str(MTU), "type", "bridge", "forward_delay", "0")
    ip("link", "set", "switch", "up")
    ip("address", "add", f"{KERNEL}/24", "dev", "switch")
    ip("address", "add", f"{KERNEL6}/64", "dev", "switch", "nodad")
    create("server")
    create("client")


SITE = None


def ready():
    """Returns whether /readyz has status 200, and its text."""
    try:
        with urllib.request.urlopen(f"http://{SITE.metrics}/readyz", timeout=5) as page:
            return page.status == 200, page.read().decode()
    except urllib.error.HTTPError as error:
        return False, error.read().decode()


def counters():
    return SITE.ctl("devices")["polled"][0]


def unready_because(part):
    good, why = ready()
    return not good and part in why


def log_has(part):
    return part in SITE.text_of_log()


def events(name):
    done = SITE.run_ctl("--json", "events")
    return done.stdout.count(f'"{name}"')


def load(*words, seconds=PATIENCE_S):
    """Starts a client at the other end of the wire."""
    return subprocess.Popen([SITE.programs["bench"], "--device", "softroce", "--ethdev", ethdev("client"), "--address", f"{CLIENT}/24",
                             "--server", SERVER, "--json", "--seconds", str(seconds), *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish_load(client):
    end(client)
    SITE.wait("the connection's end", lambda: SITE.ctl("connections") == [])


def serves(mtu=4200):
    """Returns true if a new client connects and receives its replies."""
    client = load("--mtu", str(mtu), "null", seconds=1)
    client.communicate(timeout=PATIENCE_S)
    return client.returncode == 0


def refusal(kind, family, address):
    """Returns the error that a client of the kernel's stack gets from a port without a service."""
    with socket.socket(family, kind) as client:
        client.settimeout(PATIENCE_S)
        try:
            client.connect((address, 2049))
            client.send(b"call")
            client.recv(1)
        except OSError as error:
            return error.errno
    return 0


def clients_that_do_not_use_rdma_are_refused_at_once():
    """mount without proto=rdma tries TCP, and UDP for rpcbind."""
    SITE.wait("readiness", lambda: ready()[0])
    for family, address in ((socket.AF_INET, SERVER), (socket.AF_INET6, SERVER6)):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            error = refusal(kind, family, address)
            assert error == errno.ECONNREFUSED, (family, kind, os.strerror(error))
    SITE.wait("the counter", lambda: counters()["refusals_sent"] >= 4)


def the_carrier_goes_and_comes_back():
    SITE.wait("readiness", lambda: ready()[0])
    before = counters()
    ip("link", "set", "server-port", "down")
    SITE.wait("it is not ready", lambda: unready_because("no link"))
    SITE.wait("the counter", lambda: counters()["port_down"] == before["port_down"] + 1)
    assert log_has("has no link. Check cable, switch and peer")
    SITE.wait("the event", lambda: events("device_down") == 1)
    ip("link", "set", "server-port", "up")
    SITE.wait("readiness again", lambda: ready()[0])
    SITE.wait("the counter", lambda: counters()["port_up"] == before["port_up"] + 1)
    SITE.wait("the event", lambda: events("device_up") == 1)
    assert serves()


def a_changed_mac_address_is_followed_by_connections():
    client = load("null")
    SITE.loaded()
    ip("link", "set", "server", "address", "02:00:00:00:00:77")
    SITE.wait("the counter", lambda: counters()["mac_changes"] == 1)
    calls = SITE.loaded()["calls"]
    SITE.wait("calls of the same connection", lambda: SITE.loaded()["calls"] > calls + 1000)
    finish_load(client)
    assert log_has("The MAC address of the interface server has changed")


def an_interface_that_is_deleted_and_created_again_is_served_on_without_a_restart():
    process = SITE.data.pid
    ip("link", "del", "server")
    SITE.wait("it is not ready", lambda: unready_because("was removed"))
    assert not serves()
    create("server")
    SITE.wait("readiness again", lambda: ready()[0])
    SITE.wait("service", serves)
    assert SITE.data.pid == process and SITE.data.poll() is None
    assert counters()["port_reopened"] == 1, counters()
    assert log_has("The interface server was deleted. Sluice opens it again when it returns"), SITE.text_of_log()


def a_client_goes_on_when_the_interface_is_replaced_at_once():
    client = load("null")
    before = SITE.loaded()
    reopened = counters()["port_reopened"]
    started = time.monotonic()
    ip("link", "del", "server")
    create("server")
    SITE.wait("the port", lambda: counters()["port_reopened"] == reopened + 1)
    calls = SITE.loaded()["calls"]
    SITE.wait("calls", lambda: SITE.loaded()["calls"] > calls)
    print(f"# link_recovery_s {time.monotonic() - started:.2f}")
    after = SITE.loaded()
    assert after["connection"] == before["connection"], (before, after)
    finish_load(client)


def the_mtu_of_the_interface_bounds_the_configured_one():
    assert not log_has("less than mtu")
    ip("link", "set", "server", "mtu", "1500")
    SITE.wait("the counter", lambda: counters()["mtu_changes"] == 1)
    assert log_has("The interface server has an MTU of 1500, which is less than mtu = 4200 in [device]")
    assert not serves() and events("connection_refused") == 1
    assert serves(mtu=1500)
    ip("link", "set", "server", "mtu", str(MTU))
    SITE.wait("the counter", lambda: counters()["mtu_changes"] == 2)
    assert serves()


def an_interface_with_a_small_mtu_at_start_is_warned_of_and_served():
    SITE.stop()
    SITE.log.truncate(0)
    ip("link", "set", "server", "mtu", "1500")
    SITE.start()
    assert log_has("The interface server has an MTU of 1500, which is less than mtu = 4200 in [device]")
    assert serves(mtu=1500)


def route_between(tap, client_port, server, client):
    """Makes the kernel the router between a tap interface and a client's interface. A bridge cannot connect a tap device of DPDK, because
    the device has the MAC address of its interface, and a bridge keeps the frames to addresses of its ports."""
    for interface, address in ((tap, server), (client_port, client)):
        ip("link", "set", interface, "up")
        ip("route", "replace", f"{address}/32", "dev", interface)
        set_ipv4(f"conf/{interface}/proxy_arp", 1)
        set_ipv4(f"neigh/{interface}/proxy_delay", 0)
    set_ipv4("ip_forward", 1)


def set_ipv4(name, value):
    with open(f"/proc/sys/net/ipv4/{name}", "w", encoding="ascii") as file:
        file.write(str(value))


def a_tap_interface_is_served_and_opened_again_when_it_was_deleted():
    server, client = "198.51.100.1", "198.51.100.2"
    site = Site("tap", f"""
[device]
driver = "softroce"
ethdev = "net_tap0,iface=sluicetap"
addresses = ["{server}/24"]
mtu = 1500
[[export]]
path = "/export"
clients = []
""")
    ip("link", "add", "far", "type", "veth", "peer", "name", "far-port")
    ip("link", "set", "far", "up")

    def count(name):
        return site.ctl("devices")["polled"][0][name]

    def is_served():
        done = subprocess.run([site.programs["bench"], "--device", "softroce", "--ethdev", ethdev("far"), "--address", f"{client}/24", "--server", server,
                               "--mtu", "1500", "--json", "--seconds", "1", "null"], capture_output=True, text=True, timeout=PATIENCE_S)
        return done.returncode == 0

    try:
        site.start()
        route_between("sluicetap", "far-port", server, client)
        site.wait("service", is_served)
        downs = count("port_down")
        ip("link", "set", "sluicetap", "down")
        site.wait("the counter", lambda: count("port_down") > downs)
        route_between("sluicetap", "far-port", server, client)
        site.wait("service with the carrier", is_served)
        process = site.data.pid
        ip("link", "del", "sluicetap")
        site.wait("the port", lambda: count("port_reopened") == 1)
        route_between("sluicetap", "far-port", server, client)
        site.wait("service by the new interface", is_served)
        assert site.data.pid == process and site.data.poll() is None
    finally:
        site.stop()
        ip("link", "del", "far")


def main():
    global SITE
    enter_own_network()
    lay_wire()
    SITE = Site("link", f"""
[device]
driver = "softroce"
ethdev = "{ethdev('server')}"
addresses = ["{SERVER}/24", "{SERVER6}/64"]
[[export]]
path = "/export"
clients = []
root_squash = false
""")
    try:
        SITE.start()
        return run_tap([(f.__name__, f) for f in TESTS if len(sys.argv) < 6 or f.__name__ in sys.argv[5:]])
    finally:
        SITE.stop()


TESTS = [clients_that_do_not_use_rdma_are_refused_at_once, the_carrier_goes_and_comes_back, a_changed_mac_address_is_followed_by_connections,
         an_interface_that_is_deleted_and_created_again_is_served_on_without_a_restart,
         a_client_goes_on_when_the_interface_is_replaced_at_once, the_mtu_of_the_interface_bounds_the_configured_one,
         an_interface_with_a_small_mtu_at_start_is_warned_of_and_served, a_tap_interface_is_served_and_opened_again_when_it_was_deleted]

if __name__ == "__main__":
    sys.exit(main())
