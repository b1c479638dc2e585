#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One owner of segment and admin socket: planes that are stopped, continued, started together or refused. Speaks TAP.

owners_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH SAMPLE_CONFIG"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from planes_test import BENCH, CONTROL, CTL, DATA, Planes  # noqa: E402
from planes_of_tests import PATIENCE_S, Failed, Skipped, end, finish, run_tap  # noqa: E402

STOP_IT = "Stop it first"
NEW_PID_NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]

planes = Planes(1)


def control_pid():
    status = planes.ctl("status")
    return status and status["control_plane"]["pid"]


def generation():
    return planes.ctl("status")["configuration"]["generation"]


def run(*command):
    """Runs a plane that exits without a signal."""
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def is_refused(done, why=STOP_IT):
    assert done.returncode == 1 and why in done.stdout + done.stderr, done


def variant(name, replace):
    """Writes a modified copy of the configuration file and returns its path."""
    with open(planes.config, encoding="utf-8") as file:
        text = file.read()
    for old, new in replace.items():
        assert old in text, old
        text = text.replace(old, new)
    path = f"{planes.dir}/{name}.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def need_pid_namespaces():
    if run(*NEW_PID_NAMESPACE, "true").returncode != 0:
        raise Skipped("PID namespaces are not permitted here.")


def has_answer_of(second):
    """True if the admin socket is answered by `second`. A stopped control plane does not answer, although the kernel accepts the connection."""
    try:
        done = subprocess.run([CTL, "--socket", planes.socket, "--json", "status"], capture_output=True, text=True, timeout=1, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and json.loads(done.stdout)["control_plane"]["pid"] == second.pid


def a_stopped_control_plane_has_a_successor_and_ends_when_it_is_continued():
    load = planes.load()
    planes.loaded()
    for _ in range(20):
        first = planes.control
        first.send_signal(signal.SIGSTOP)
        planes.start_control()
        second = planes.control
        planes.wait("the second or its end", lambda: second.poll() is not None or has_answer_of(second))
        first.send_signal(signal.SIGCONT)
        if second.poll() is None:
            break
        # A control plane that resumes in the middle of its work keeps the segment.
        planes.control = first
        planes.wait("the first at work", lambda: control_pid() == first.pid)
        assert "in the middle of a write" in planes.text_of_log(), planes.text_of_log()[-1000:]
    else:
        raise Failed("The first control plane was in the middle of a write each time.")
    assert first.wait(timeout=PATIENCE_S) == 1
    assert f"Another control plane (process {second.pid}) has taken over segment '{planes.name}'" in planes.text_of_log()
    assert second.poll() is None and control_pid() == second.pid
    is_refused(run(CONTROL, "--config", planes.config))
    connections = planes.ctl("connections")
    assert len(connections) == 1 and connections[0]["state"] == "open", connections
    assert planes.ctl("status")["connections"] == 1
    planes.ctl("config", "reload")
    planes.wait("the data plane's consent", lambda: planes.ctl("status")["configuration"]["in_force"])
    assert end(load)["errors"] == 0


def a_stopped_data_plane_keeps_its_segment_and_its_clients():
    load = planes.load()
    planes.loaded()
    planes.data.send_signal(signal.SIGSTOP)
    planes.wait("no heartbeat", lambda: not planes.ctl("status")["data_plane"]["alive"])
    is_refused(run(DATA, "--segment", planes.name), "its heartbeat has stopped")
    planes.data.send_signal(signal.SIGCONT)
    planes.wait("its heartbeat", lambda: planes.ctl("status")["data_plane"]["alive"])
    is_refused(run(DATA, "--segment", planes.name))
    calls = planes.calls()
    planes.wait("more calls", lambda: planes.calls() > calls + 1000)
    assert end(load)["errors"] == 0


def the_admin_socket_of_another_segment_is_left_alone():
    before = os.stat(planes.socket).st_ino
    other = variant("other", {f'segment = "{planes.name}"': f'segment = "{planes.name}-other"'})
    is_refused(run(CONTROL, "--config", other), "serves the admin socket")
    assert not os.path.exists(f"/dev/shm/{planes.name}-other.control")
    assert os.stat(planes.socket).st_ino == before and control_pid() == planes.control.pid


def of_control_planes_started_together_one_stays():
    for _ in range(5):
        planes.control.kill()
        planes.control.wait()
        started = [planes.run(CONTROL, "--config", planes.config) for _ in range(6)]
        planes.wait("all but one ended", lambda: sum(p.poll() is None for p in started) <= 1)
        left = [p for p in started if p.poll() is None]
        assert len(left) == 1 and all(p.returncode == 1 for p in started if p not in left), [p.poll() for p in started]
        planes.control = left[0]
        planes.wait("its answer", lambda: control_pid() == left[0].pid)


def a_refused_start_changes_nothing():
    before = generation()
    exports = planes.ctl("exports")
    planes.control.terminate()
    planes.control.wait()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bad = variant("bad", {'[metrics]\naddress = ""': f'[metrics]\naddress = "127.0.0.1:{taken.getsockname()[1]}"',
                              'path = "/export"': 'path = "/somewhere-else"'})
        is_refused(run(CONTROL, "--config", bad), "Cannot serve metrics on")
    assert os.listdir(os.path.dirname(planes.socket)).count("admin.sock") == 0
    planes.start_control()
    planes.up()
    assert generation() == before + 1
    planes.wait("the same exports", lambda: planes.ctl("exports") == exports)


def a_killed_predecessor_that_nobody_reaps_is_in_nobodys_way():
    zombie = planes.control
    zombie.kill()
    planes.start_control()
    planes.wait("the next", lambda: planes.control.poll() is not None or control_pid() == planes.control.pid)
    assert planes.control.poll() is None, planes.text_of_log()[-1000:]
    zombie.wait()
    zombie = planes.data
    zombie.kill()
    planes.start_data()
    planes.wait("the next", lambda: planes.data.poll() is not None or planes.ctl("status")["data_plane"]["pid"] == planes.data.pid)
    assert planes.data.poll() is None, planes.text_of_log()[-1000:]
    zombie.wait()
    planes.up()


def planes_in_another_pid_namespace_are_seen():
    need_pid_namespaces()
    is_refused(run(*NEW_PID_NAMESPACE, CONTROL, "--config", planes.config))
    is_refused(run(*NEW_PID_NAMESPACE, DATA, "--segment", planes.name))
    changes = planes.ctl("counters")[0]["control_plane_changes"]
    for _ in range(2):  # each is process 1 of a PID namespace, as in containers
        planes.control.kill()
        planes.control.wait()
        planes.control = planes.run(*NEW_PID_NAMESPACE, CONTROL, "--config", planes.config)
        planes.wait("the next", lambda: planes.control.poll() is not None or control_pid() == 1)
        is_refused(run(CONTROL, "--config", planes.config))
        changes += 1
        planes.wait("the reactor to see it", lambda: planes.ctl("counters")[0]["control_plane_changes"] == changes)
    planes.control.kill()
    planes.control.wait()
    planes.start_control()
    planes.wait("the last", lambda: control_pid() == planes.control.pid)
    assert finish(planes.load(1))["errors"] == 0


def clients_in_other_pid_namespaces_are_served_and_their_ends_noticed():
    need_pid_namespaces()
    command = [*NEW_PID_NAMESPACE, BENCH, "--fabric", planes.fabric, "--json", "--seconds", str(PATIENCE_S), "null"]
    for _ in range(18):  # more than the fabric has slots; each is process 1 of a PID namespace
        client = planes.run(*command)
        planes.wait("calls", lambda: [c for c in planes.ctl("connections") if c["calls"] > 10])
        client.kill()
        client.wait()
        planes.wait("no connection", lambda: planes.ctl("connections") == [])
    first = planes.load()
    planes.loaded()
    second = planes.run(*command)
    planes.wait("both", lambda: len([c for c in planes.ctl("connections") if c["calls"] > 10]) == 2)
    second.kill()
    second.wait()
    planes.wait("its end", lambda: len(planes.ctl("connections")) == 1)
    assert end(first)["errors"] == 0


def a_dev_shm_without_room_for_the_loopback_file_is_said_at_start():
    if os.geteuid() != 0:
        raise Skipped("Only root may have a /dev/shm of its own.")
    other = variant("full", {f'segment = "{planes.name}"': f'segment = "{planes.name}-full"', planes.fabric: f"{planes.fabric}-full",
                             planes.socket: f"{planes.dir}/full.sock"})
    script = f"""mount -t tmpfs -o size=100m none /dev/shm
{CONTROL} --config {other} & control=$!
{DATA} --segment {planes.name}-full; echo status $?
kill $control; wait $control; echo control $?; ls -A /dev/shm"""
    done = run("unshare", "-m", "sh", "-c", script)
    assert re.search(r"Cannot allocate \d+ MiB for the loopback fabric .*Free space", done.stdout), done
    assert "status 1\n" in done.stdout and "control 0\n" in done.stdout, done


class TwoUsers:
    """Planes of two users of one group, in a folder as the units set it up: only the group creates files there, and each user
    can remove only files that it owns."""
    control_user, data_user, group = 23451, 23452, 23450

    def __init__(self):
        if os.geteuid() != 0:
            raise Skipped("Only root can become other users.")
        self.folder = f"/dev/shm/{planes.name}-two"
        self.segment = f"{self.folder}/segment"
        self.fabric = f"{self.folder}/loopback"
        os.mkdir(self.folder)
        os.chown(self.folder, 0, self.group)
        os.chmod(self.folder, 0o3770)
        os.chmod(planes.dir, 0o755)
        admin = f"{planes.dir}/two"
        os.makedirs(admin, exist_ok=True)
        os.chown(admin, self.control_user, self.group)
        self.socket = f"{admin}/admin.sock"
        self.config = variant("two", {f'segment = "{planes.name}"': f'segment = "{self.segment}"', planes.fabric: self.fabric,
                                      planes.socket: self.socket})
        self.control = self.data = None

    def __enter__(self):
        self.start_control()
        self.start_data()
        planes.wait("both", lambda: (s := self.status()) and s["data_plane"]["alive"] and s["configuration"]["in_force"])
        return self

    def __exit__(self, *_):
        for plane in (self.data, self.control):
            plane.terminate()
            plane.wait()
        shutil.rmtree(self.folder)

    def as_user(self, user):
        return ["setpriv", f"--reuid={user}", f"--regid={self.group}", "--clear-groups"]

    def start_data(self):
        self.data = planes.run(*self.as_user(self.data_user), "env", f"RUNTIME_DIRECTORY={self.folder}", DATA, "--segment", self.segment)

    def start_control(self):
        self.control = planes.run(*self.as_user(self.control_user), CONTROL, "--config", self.config)

    def ctl(self, *words):
        done = run(CTL, "--socket", self.socket, "--json", *words)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def status(self):
        return self.ctl("status")

    def is_up(self):
        status = self.status()
        return status and status["control_plane"]["pid"] == self.control.pid and status["data_plane"]["pid"] == self.data.pid and \
            status["data_plane"]["alive"]


def planes_of_two_users_work_together_and_neither_writes_the_others_file_or_traces_it():
    with TwoUsers() as two:
        for user, part, other in ((two.control_user, "data", two.data), (two.data_user, "control", two.control)):
            path = f"{two.segment}.{part}"
            for what in (f"cat {path} > /dev/null && ! echo x >> {path}", f"! truncate -s 0 {path}", f"! rm -f {path}",
                         f"! cat /proc/{other.pid}/environ", f"! kill {other.pid}"):
                done = run(*two.as_user(user), "sh", "-c", what)
                assert done.returncode == 0, done
        two.control.kill()
        two.control.wait()
        two.start_control()
        planes.wait("the next", two.is_up)
        two.data.kill()
        two.data.wait()
        two.start_data()
        planes.wait("the next", two.is_up)


def a_plane_that_cuts_its_file_short_ends_alone():
    with TwoUsers() as two:
        os.truncate(f"{two.segment}.data", 0)
        assert two.data.wait(timeout=PATIENCE_S) != 0
        planes.wait("its end", lambda: (s := two.status()) and not s["data_plane"]["alive"])
        assert two.control.poll() is None
        planes.wait("a sentence", lambda: f"{two.segment}.data was truncated. Restart sluice-dataplane" in planes.text_of_log())
        two.start_data()
        planes.wait("the next", two.is_up)

        load = subprocess.Popen([BENCH, "--fabric", two.fabric, "--json", "--seconds", str(PATIENCE_S), "null"], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        try:
            planes.wait("load", lambda: [c for c in two.ctl("connections") or [] if c["calls"] > 1000])
            os.truncate(f"{two.segment}.control", 0)
            assert two.control.wait(timeout=PATIENCE_S) != 0
            planes.wait("a sentence or its end", lambda: two.data.poll() is not None or
                        f"part of segment '{two.segment}' was truncated. Existing connections continue" in planes.text_of_log())
            time.sleep(1)  # serves without a control plane
            assert two.data.poll() is None and end(load)["errors"] == 0
        finally:
            load.kill()
        is_refused(run(*two.as_user(two.control_user), CONTROL, "--config", two.config), "Stop it first, then start both planes")


def a_stop_is_graceful_and_leaves_no_socket():
    for plane in (planes.data, planes.control):
        begin = time.monotonic()
        plane.terminate()
        assert plane.wait(timeout=PATIENCE_S) == 0
        print(f"# {'data' if plane is planes.data else 'control'} plane: stopped in {(time.monotonic() - begin) * 1000:.0f} ms")
    assert not os.path.exists(planes.socket) and not os.path.exists(planes.fabric)


def main():
    try:
        planes.start()
        return run_tap([(f.__name__, f) for f in (
            a_stopped_control_plane_has_a_successor_and_ends_when_it_is_continued,
            a_stopped_data_plane_keeps_its_segment_and_its_clients, the_admin_socket_of_another_segment_is_left_alone,
            of_control_planes_started_together_one_stays, a_refused_start_changes_nothing,
            a_killed_predecessor_that_nobody_reaps_is_in_nobodys_way, planes_in_another_pid_namespace_are_seen,
            clients_in_other_pid_namespaces_are_served_and_their_ends_noticed, a_dev_shm_without_room_for_the_loopback_file_is_said_at_start,
            planes_of_two_users_work_together_and_neither_writes_the_others_file_or_traces_it, a_plane_that_cuts_its_file_short_ends_alone, a_stop_is_graceful_and_leaves_no_socket)])
    finally:
        planes.stop()


if __name__ == "__main__":
    sys.exit(main())
