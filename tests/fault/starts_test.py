#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The configuration with which a data plane starts, and the start of a control plane beside a running data plane. Speaks TAP.

starts_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH SAMPLE_CONFIG"""
import glob
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from planes_test import CTL, DATA, Planes  # noqa: E402,F401
from planes_of_tests import PATIENCE_S, end, finish, run_tap  # noqa: E402

planes = Planes(1)
SAMPLE_TEXT = planes.without_hosts


def write(port=20049, callers=64, more=""):
    """Writes a configuration with these values for keys that take effect only at a start."""
    text = SAMPLE_TEXT
    for old, new in (("port = 20049 ", f"port = {port} "), ("callback_clients = 64 ", f"callback_clients = {callers} ")):
        assert old in text, old
        text = text.replace(old, new)
    planes.write_config(text + more)


def kill(*processes):
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)


def pending():
    status = planes.ctl("status")
    return status and sorted(status["configuration"]["pending"])


def wait_for_port(port):
    """Waits until the data plane serves, and the control plane has this port."""
    planes.wait(f"port {port}", lambda: (s := planes.ctl("status")) and s["port"] == port and s["data_plane"]["alive"] and
                s["configuration"]["in_force"] and s["configuration"]["pending"] == [])


def load(seconds=PATIENCE_S):
    """Starts a load on the port of the control plane. A data plane with another port refuses it."""
    return planes.bench("--port", str(planes.ctl("status")["port"]), "--seconds", str(seconds), "nfs3", "--mount-port", planes.mount_port())


def serves():
    return finish(load(0.3))["errors"] == 0


def said(text):
    return text in planes.text_of_log()


def a_data_plane_without_a_control_plane_waits_and_ends_with_a_sentence():
    kill(planes.data, planes.control)
    done = subprocess.run([DATA, "--segment", planes.name, "--wait", "1"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1 and f"No control plane has published a configuration in segment '{planes.name}'" in done.stdout, done
    assert "Start it with: sluice-controlplane --config FILE." in done.stdout, done


def both_planes_begin_with_the_changed_file_whichever_starts_first():
    for port, order in ((20050, (planes.start_data, planes.start_control)), (20051, (planes.start_control, planes.start_data))):
        write(port)
        for start in order:
            start()
        wait_for_port(port)
        assert serves()
        kill(planes.control, planes.data)
    write()
    planes.start()
    assert serves()


def a_control_plane_keeps_to_the_data_plane_that_it_finds():
    client = load()
    planes.loaded()
    kill(planes.control)
    write(20050, 32, more='[[export]]\npath = "/added"\nclients = []\n')
    planes.start_control()
    planes.wait("what the file has for later", lambda: pending() == ["forward.callback_clients", "transport.port"])
    assert said("transport.port changes only with a restart of the data plane")
    assert planes.ctl("status")["port"] == 20049
    planes.wait("the rest in force", lambda: "/added" in [e["path"] for e in planes.ctl("exports")])
    assert end(client)["errors"] == 0
    assert serves()


def with_a_new_data_plane_the_changed_keys_come_into_force():
    kill(planes.data)
    planes.start_data()
    wait_for_port(20050)
    assert planes.control.poll() is None
    assert said("A data plane starts, so changed keys take effect. The control plane restarts itself")
    assert serves()


def a_file_that_is_broken_by_then_keeps_no_data_plane_from_its_start():
    write(20051, 32)
    assert planes.ctl("config", "reload")["restart_both_planes"] == ["transport.port"]
    assert pending() == ["transport.port"]
    planes.write_config("[transport]\ncredits = 0\n")
    kill(planes.data)
    planes.start_data()
    planes.up()
    assert pending() == ["transport.port"] and planes.ctl("status")["port"] == 20050
    assert serves()
    write(20051, 32)
    kill(planes.data)
    planes.start_data()
    wait_for_port(20051)
    assert serves()


def keys_that_are_as_before_again_want_no_restart():
    write(20051, 16)
    planes.ctl("config", "reload")
    assert pending() == ["forward.callback_clients"]
    write(20051, 32)
    planes.ctl("config", "reload")
    assert pending() == []


def a_stopped_control_plane_answers_a_data_plane_when_it_is_continued():
    planes.control.send_signal(signal.SIGSTOP)
    kill(planes.data)
    planes.start_data()
    planes.wait("its threads", lambda: planes.data.poll() is None and glob.glob(f"/proc/{planes.data.pid}/task/*"))
    planes.control.send_signal(signal.SIGCONT)
    planes.up()
    assert serves()


def a_log_that_nobody_reads_keeps_no_data_plane():
    kill(planes.data)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(writer, True)
    planes.data = subprocess.Popen([DATA, "--segment", planes.name], stdout=writer, stderr=writer)
    os.close(writer)
    planes.up()  # "Serving on port" and each configuration in force are lines of the log
    for _ in range(3):
        generation = planes.ctl("status")["configuration"]["generation"]
        planes.ctl("config", "reload")
        planes.wait("it in force", lambda: (s := planes.ctl("status")["configuration"])["in_force"] and s["generation"] > generation)
    assert serves()
    planes.data.terminate()
    assert planes.data.wait(PATIENCE_S) == 0
    os.close(reader)
    planes.start_data()
    planes.up()


def main():
    try:
        planes.start()
        return run_tap([(f.__name__, f) for f in (
            a_data_plane_without_a_control_plane_waits_and_ends_with_a_sentence,
            both_planes_begin_with_the_changed_file_whichever_starts_first, a_control_plane_keeps_to_the_data_plane_that_it_finds,
            with_a_new_data_plane_the_changed_keys_come_into_force, a_file_that_is_broken_by_then_keeps_no_data_plane_from_its_start,
            keys_that_are_as_before_again_want_no_restart, a_stopped_control_plane_answers_a_data_plane_when_it_is_continued,
            a_log_that_nobody_reads_keeps_no_data_plane)])
    finally:
        planes.stop()


if __name__ == "__main__":
    sys.exit(main())
