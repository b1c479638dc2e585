#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Both planes as processes: what happens when one of them is killed. Speaks TAP.

planes_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH SAMPLE_CONFIG"""
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import planes_of_tests  # noqa: E402
from planes_of_tests import PATIENCE_S, end, finish, run_test  # noqa: E402

CONTROL, DATA, CTL, BENCH, SAMPLE = sys.argv[1:6]


class Planes(planes_of_tests.Planes):
    def __init__(self, version, psk=False):
        super().__init__("fault", CONTROL, DATA, CTL, BENCH)
        self.version = version
        self.fabric = f"/dev/shm/{self.name}-loopback"
        self.leftovers.append(self.fabric)
        text = open(SAMPLE, encoding="utf-8").read()
        for key, value in (("segment", self.name), ("loopback_path", self.fabric), ("socket", self.socket)):
            text = re.sub(rf'^{key} = ".*?"', f'{key} = "{value}"', text, flags=re.M)
        text = text.replace('address = "127.0.0.1:9464"', 'address = ""').replace("port = 20048", "port = 0")
        text = text.replace("rpcbind = true", "rpcbind = false")
        if psk:
            text = text.replace('method = "none"', 'method = "psk"').replace("required = false", "required = true")
            text = text.replace("timeout_s = 10", "timeout_s = 5")
        self.without_hosts = text
        self.write_config(text + (self.host("sluice-bench", "key") + self.host("other", "other-key") if psk else ""))

    def key(self, name):
        path = f"{self.dir}/{name}"
        if not os.path.exists(path):
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
                file.write(f"the {name} of this test")
        return path

    def host(self, name, *keys, more=""):
        return f"\n[[host_authentication.host]]\nname = \"{name}\"\nkey_files = {[self.key(key) for key in keys]}\n{more}\n"

    def add(self, text):
        self.without_hosts += "\n" + text
        self.write_config(self.without_hosts)

    def reload_hosts(self, text):
        self.write_config(self.without_hosts + text)
        return self.ctl("config", "reload")

    def bench(self, *arguments, version=None):
        return subprocess.Popen([BENCH, "--fabric", self.fabric, "--rpcrdma", str(version or self.version), "--json", *arguments],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def load(self, seconds=PATIENCE_S):
        return self.bench("--seconds", str(seconds), "nfs3", "--verify", "--mount-port", self.mount_port())

    def calls(self):
        counters = self.ctl("counters")
        return counters[0]["calls_received"] if counters else 0


def killing_the_control_plane_under_load_loses_no_call(planes):
    load = planes.load()
    planes.wait("load", lambda: planes.calls() > 2000)
    planes.control.send_signal(signal.SIGKILL)
    planes.control.wait()
    unreachable = subprocess.run([CTL, "--socket", planes.socket, "status"], capture_output=True, text=True)
    assert unreachable.returncode == 3 and "sluice-controlplane" in unreachable.stderr, unreachable
    time.sleep(1)  # serves without a control plane
    result = end(load)
    assert result["errors"] == 0 and result["mismatches"] == 0 and result["operations"] > 2000, result


def a_new_control_plane_takes_over_and_no_client_notices(planes):
    # Without a control plane a connection request waits until the next control plane answers it.
    probe = planes.bench("probe")
    time.sleep(0.2)
    assert probe.poll() is None
    planes.start_control()
    assert finish(probe)["answer"] == "ok"
    planes.up()
    load = planes.load()
    planes.loaded()
    planes.control.send_signal(signal.SIGKILL)
    planes.control.wait()
    planes.start_control()
    # The control plane may have been killed before the connection had all its credits, which the next one grants.
    connections = planes.wait("the table rebuilt, and all credits granted",
                              lambda: [c for c in planes.ctl("connections") or [] if c["credits"] == 64])
    assert connections[0]["state"] == "open", connections
    assert connections[0]["version"] == planes.version, connections
    if planes.version == 2:
        properties = planes.ctl("properties")
        assert properties[0]["client"]["receive_buffer_bytes"] == 4096, properties
    assert end(load)["errors"] == 0


def killed_clients_leave_their_places(planes):
    for _ in range(34):  # the fabric has room for 32 devices
        load = planes.load()
        planes.loaded(10)
        load.kill()
        load.communicate()
        planes.wait("no connection", lambda: planes.ctl("connections") == [])
    assert finish(planes.bench("probe"))["answer"] == "ok"


def a_killed_data_plane_is_noticed_and_comes_back_with_the_same_root(planes):
    load = planes.load()
    planes.loaded()
    planes.data.send_signal(signal.SIGKILL)
    planes.data.wait()
    _, said = load.communicate(timeout=PATIENCE_S)
    assert load.returncode == 3 and "The connection was lost" in said, (load.returncode, said)
    planes.wait("its death", lambda: not planes.ctl("status")["data_plane"]["alive"])
    planes.start_data()
    planes.up()
    assert finish(planes.load(1))["errors"] == 0


def a_second_plane_of_each_kind_is_refused_with_a_sentence(planes):
    for command in ([CONTROL, "--config", planes.config], [DATA, "--segment", planes.name]):
        second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert second.returncode == 1 and "Stop it first" in second.stdout + second.stderr, second


def bad_configuration_starts_nothing(planes):
    bad = f"{planes.dir}/bad.toml"
    with open(bad, "w", encoding="utf-8") as file:
        file.write("[transport]\ncredits = 0\n")
    done = subprocess.run([CONTROL, "--config", bad], capture_output=True, text=True)
    assert done.returncode == 2 and "bad.toml:2: credits" in done.stderr, done


def is_refused(planes, *arguments):
    bench = planes.bench(*arguments, "probe")
    _, err = bench.communicate(timeout=PATIENCE_S)
    assert bench.returncode == 3 and "lost during host authentication" in err, err


def hosts_have_to_show_who_they_are(planes):
    assert finish(planes.bench("--psk", planes.key("key"), "probe"))["version"] == 2
    load = planes.bench("--psk", planes.key("key"), "--seconds", "1", "nfs3", "--verify", "--mount-port", planes.mount_port())
    assert finish(load)["errors"] == 0
    assert finish(planes.bench("--psk", planes.key("other-key"), "--host-name", "other", "probe"))["version"] == 2
    is_refused(planes, "--psk", planes.key("wrong-key"))
    is_refused(planes, "--psk", planes.key("other-key"))
    is_refused(planes, "--psk", planes.key("key"), "--host-name", "other")
    is_refused(planes, "--psk", planes.key("key"), "--host-name", "stranger")
    silent = planes.bench("probe")
    _, err = silent.communicate(timeout=PATIENCE_S)
    assert silent.returncode == 3, err
    old = planes.bench("probe", version=1)
    out, _ = old.communicate(timeout=PATIENCE_S)
    assert json.loads(out)["answer"] == "RDMA_ERROR ERR_VERS", out
    planes.wait("no connection", lambda: planes.ctl("connections") == [])


def a_key_is_rotated_by_reloads_without_a_failure(planes):
    old, new = planes.key("key"), planes.key("new-key")
    load = planes.bench("--psk", old, "--seconds", str(PATIENCE_S), "null")
    planes.loaded()
    is_refused(planes, "--psk", new)
    assert planes.reload_hosts(planes.host("sluice-bench", "key", "new-key"))["in_force"] == ["host_authentication.host.other",
                                                                                             "host_authentication.host.sluice-bench"]
    for offered in (["--psk", old], ["--psk", new], ["--psk", new, "--psk", old]):
        assert finish(planes.bench(*offered, "probe"))["version"] == 2
    planes.reload_hosts(planes.host("sluice-bench", "new-key"))
    is_refused(planes, "--psk", old)
    for offered in (["--psk", new], ["--psk", old, "--psk", new]):
        assert finish(planes.bench(*offered, "probe"))["version"] == 2
    assert end(load)["errors"] == 0
    # A configuration that cannot be read changes nothing.
    os.chmod(new, 0o644)
    refused = planes.run_ctl("config", "reload")
    assert refused.returncode != 0 and "can be read by others" in refused.stderr, refused
    os.chmod(new, 0o600)
    assert finish(planes.bench("--psk", new, "probe"))["version"] == 2


def an_authenticated_host_is_in_its_class_whatever_its_address(planes):
    classes = "\n[[client_class]]\nname = \"here\"\nclients = [\"0.0.0.0/0\", \"::/0\"]\nmax_credits = 3\n" \
              "[[client_class]]\nname = \"gold\"\nmax_credits = 5\n"
    gold = classes + planes.host("sluice-bench", "key", more='class = "gold"')
    planes.reload_hosts(gold + planes.host("other", "other-key"))
    loads = [planes.bench("--psk", planes.key("key"), "--seconds", str(PATIENCE_S), "null"),
             planes.bench("--psk", planes.key("other-key"), "--host-name", "other", "--seconds", str(PATIENCE_S), "null")]

    def shown():
        return sorted((c.get("host", ""), c["class"], c["credits"]) for c in planes.ctl("connections") or [])

    both = [("other", "here", 3), ("sluice-bench", "gold", 5)]
    planes.wait("both in their classes", lambda: shown() == both)
    planes.reload_hosts(gold + planes.host("other", "other-key") + "# the same again\n")
    time.sleep(1)  # longer than the interval of the credit policy
    assert shown() == both
    planes.control.send_signal(signal.SIGKILL)
    planes.control.wait()
    planes.start_control()
    planes.up()
    planes.ctl("config", "reload")
    time.sleep(1)
    assert shown() == both
    planes.reload_hosts(gold + planes.host("other", "other-key", more='class = "gold"'))
    planes.wait("another class", lambda: shown() == [("other", "gold", 5), ("sluice-bench", "gold", 5)])
    for load in loads:
        assert end(load)["errors"] == 0


def an_export_is_for_the_hosts_that_it_names(planes):
    hosts = planes.host("sluice-bench", "key") + planes.host("other", "other-key")
    everybody = planes.without_hosts

    def export_for(names):
        assert "\nhosts = []" in everybody
        planes.without_hosts = everybody.replace("\nhosts = []", f"\nhosts = {json.dumps(names)}")
        assert planes.reload_hosts(hosts)["in_force"] == ["export./export"]
        assert planes.ctl("exports")[0]["hosts"] == names

    def is_served(name, key):
        bench = planes.bench("--psk", planes.key(key), "--host-name", name, "--seconds", "0.2", "nfs3", "--verify", "--mount-port",
                             planes.mount_port())
        out, err = bench.communicate(timeout=PATIENCE_S)
        assert bench.returncode == 0 or "whether root of this client may write" in err, err
        return bench.returncode == 0 and json.loads(out)["errors"] == 0

    planes.reload_hosts(hosts)
    export_for(["sluice-bench"])
    assert is_served("sluice-bench", "key") and not is_served("other", "other-key")
    export_for(["other"])
    assert is_served("other", "other-key") and not is_served("sluice-bench", "key")
    planes.without_hosts = everybody
    planes.reload_hosts(hosts)
    assert is_served("other", "other-key") and is_served("sluice-bench", "key")


def each_port_has_its_services(planes):
    """The upstream need not answer, because NULL of Sluice's own program is served at every port."""
    def asks(port, *what):
        done = planes.bench("--port", str(port), "--seconds", "0.2", *what)
        out, err = done.communicate(timeout=PATIENCE_S)
        return out if done.returncode == 0 else err

    mounts = ("nfs3", "--mount-port", planes.mount_port())
    assert json.loads(asks(20050, "null"))["operations"] > 0
    assert json.loads(asks(20049, *mounts))["operations"] > 0
    refused = asks(20050, *mounts)
    assert "does not serve NFS version 3 at this port" in refused, refused
    assert "refused the connection" in asks(20051, "null") or "does not answer" in asks(20051, "null"), asks(20051, "null")
    shown, = planes.ctl("upstreams")
    assert shown["listen_port"] == 20050, shown


class Tap:
    def __init__(self, count):
        self.number = self.failed = 0
        print(f"1..{count}")

    def run(self, planes, tests, what):
        before = self.failed
        try:
            planes.start_control()
            planes.start_data()
            planes.up()
            for test in tests:
                self.number += 1
                self.failed += not run_test(self.number, f"{test.__name__} {what}", functools.partial(test, planes))
        finally:
            planes.stop()
            if self.failed > before:
                planes.log.seek(0)
                print("# " + planes.log.read()[-4000:].replace("\n", "\n# "))


def main():
    both = [killing_the_control_plane_under_load_loses_no_call,
            a_new_control_plane_takes_over_and_no_client_notices,
            killed_clients_leave_their_places,
            a_killed_data_plane_is_noticed_and_comes_back_with_the_same_root]
    once = [bad_configuration_starts_nothing, a_second_plane_of_each_kind_is_refused_with_a_sentence]
    hosts = [hosts_have_to_show_who_they_are, a_key_is_rotated_by_reloads_without_a_failure,
             an_authenticated_host_is_in_its_class_whatever_its_address, an_export_is_for_the_hosts_that_it_names]
    ports = [killing_the_control_plane_under_load_loses_no_call, a_new_control_plane_takes_over_and_no_client_notices,
             each_port_has_its_services]
    tap = Tap(len(once) + 2 * len(both) + len(hosts) + len(ports))
    tap.run(Planes(1), once + both, "v1")
    tap.run(Planes(2), both, "v2")
    tap.run(Planes(2, psk=True), hosts, "V2_062")
    two_ports = Planes(1)
    two_ports.add('[[upstream]]\nname = "nobody"\naddress = "127.0.0.1"\nport = 9\nprograms = ["nfs4"]\nlisten_port = 20050\n')
    tap.run(two_ports, ports, "two_ports")
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main())
