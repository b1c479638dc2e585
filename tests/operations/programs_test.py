#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The behaviour of every program on signals and a full output, and the paths that MOUNT accepts. Speaks TAP.

programs_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH SLUICE_CONFORMANCE"""
import fcntl
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

from planes import PATIENCE_S, Planes, run_tap

CONTROL, DATA, CTL, BENCH, CONFORMANCE = sys.argv[1:6]
planes = Planes(CONTROL, DATA, CTL, BENCH)
REAL_TIME = [signal.SIGRTMIN + 3, signal.SIGRTMAX]
IGNORED = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR,
           signal.Signals(16), signal.SIGXFSZ, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT,
           *REAL_TIME]


def alive(process):
    """Returns whether the process runs after 50 ms, because a signal takes effect only when the process is scheduled next."""
    time.sleep(0.05)
    return process.poll() is None


def count(text):
    return planes.text_of_log().count(text)


def signals_without_a_meaning_end_no_plane():
    for process in (planes.control, planes.data):
        for number in IGNORED:
            process.send_signal(number)
            assert alive(process), f"{process.args[0]} ended by signal {number}: {process.returncode}"
    planes.up()


def a_hang_up_is_a_reload_for_the_control_plane_and_a_line_in_the_log_for_the_data_plane():
    planes.data.send_signal(signal.SIGHUP)
    planes.wait("the data plane's line", lambda: count("SIGHUP was ignored") == 1 or not alive(planes.data))
    assert alive(planes.data), f"ended: {planes.data.returncode}"
    generation = planes.ctl("status")["configuration"]["generation"]
    planes.control.send_signal(signal.SIGHUP)
    planes.wait("a reload", lambda: planes.ctl("status")["configuration"]["generation"] > generation)
    planes.up()


def in_a_terminal(*command):
    """Starts a program as the leader of a session with a new terminal; returns the process and the terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                               preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(theirs)
    return process, ours


def a_closed_terminal_and_a_closed_pipe_end_no_plane():
    other = Planes(CONTROL, DATA, CTL, BENCH)
    control, control_terminal = in_a_terminal(CONTROL, "--config", other.config)
    data, data_terminal = in_a_terminal(DATA, "--segment", other.name)
    other.control, other.data = control, data
    try:
        other.up()
        os.close(control_terminal)
        os.close(data_terminal)
        time.sleep(0.3)
        assert alive(control) and alive(data), (control.returncode, data.returncode)
        other.up()
        assert other.run_ctl("config", "reload").returncode == 0, "its lines of the log go nowhere"
        assert alive(control) and alive(data), (control.returncode, data.returncode)
    finally:
        other.stop()


def fatal_signals_end_a_plane_in_order():
    for number in (signal.SIGTERM, signal.SIGINT):
        other = Planes(CONTROL, DATA, CTL, BENCH)
        other.start()
        try:
            for process in (other.data, other.control):
                process.send_signal(number)
                assert process.wait(PATIENCE_S) == 0, (number, process.returncode)
        finally:
            other.stop()


def a_load_reports_when_its_terminal_hangs_up():
    load = planes.load("--seconds", str(PATIENCE_S), "--json", "null")
    planes.wait("a connection", lambda: planes.ctl("connections"))
    load.send_signal(signal.SIGHUP)
    out, err = load.communicate(timeout=PATIENCE_S)
    assert load.returncode == 0 and '"operations"' in out, (load.returncode, out, err)


def full(*command, seconds=PATIENCE_S):
    """Runs a program whose standard output is a full device."""
    with open("/dev/full", "w", encoding="utf-8") as device:
        return subprocess.run(command, stdout=device, stderr=subprocess.PIPE, text=True, check=False, timeout=seconds)


def output_that_cannot_be_written_is_an_error():
    ctl = [CTL, "--socket", planes.socket]
    commands = [[*ctl, *words.split()] for words in (
        "status", "--json status", "reactors", "procedures", "devices", "credits", "properties", "topology", "memory", "counters", "version",
        "connections", "exports", "exports stats", "upstreams", "upstreams stats", "config show", "config reload",
        "events", "events --follow", "log-level info", "drain --stop", "top", "top --turns 1", "debug dump",
        "exports add /full", "exports remove /full")]
    commands.append([*ctl, "config", "check", planes.config])
    commands += [[program, option] for program in (CONTROL, DATA, CTL, BENCH, CONFORMANCE) for option in ("--help", "--version")]
    commands += [[CONFORMANCE, "--list"], planes.over_memif("probe"), planes.over_memif("--seconds", "1", "--json", "null"),
                 planes.over_memif("--seconds", "1", "null")]
    for command in commands:
        done = full(*command)
        assert done.returncode not in (0, -signal.SIGPIPE), (command, done)
        assert "Standard output could not be written" in done.stderr, (command, done)
    planes.up()


def string(text):
    data = text.encode()
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def mnt(path):
    """Returns status and handle of MNT over UDP."""
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.settimeout(PATIENCE_S)
        client.connect(("127.0.0.1", int(planes.mount_port())))
        client.send(struct.pack(">10I", 7, 0, 2, 100005, 3, 1, 0, 0, 0, 0) + string(path))
        results = client.recv(65536)[24:]
    [status] = struct.unpack(">I", results[:4])
    return status, results[8:40] if status == 0 else None


def mount_takes_all_spellings_and_looks_for_directories():
    status, handle = mnt("/export")
    assert status == 0
    for path in ("/export/", "//export", "/export/.", "/./export//"):
        assert mnt(path) == (0, handle), (path, mnt(path))
    for path in ("/export/pvc-1234", "/export/..", "/export/../export", "/exports", "export"):
        assert mnt(path) == (2, None), (path, mnt(path))
    assert mnt("/export/" + "x" * 300) == (63, None)


def no_hint_names_the_driver_that_runs():
    shown = planes.ctl("devices")
    assert shown["polled"] and "hint" not in shown, shown


def revived(test):
    """Wraps a test so that planes that an earlier test ended are restarted."""
    def run():
        if planes.control.poll() is not None:
            planes.start_control()
        if planes.data.poll() is not None:
            planes.start_data()
        planes.up()
        test()
    return run


def main():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # programs that nohup has started ignore it, and so do their children
    planes.start()
    try:
        return run_tap([(f.__name__, revived(f)) for f in (
            signals_without_a_meaning_end_no_plane, a_hang_up_is_a_reload_for_the_control_plane_and_a_line_in_the_log_for_the_data_plane,
            a_load_reports_when_its_terminal_hangs_up, mount_takes_all_spellings_and_looks_for_directories,
            no_hint_names_the_driver_that_runs, output_that_cannot_be_written_is_an_error, a_closed_terminal_and_a_closed_pipe_end_no_plane,
            fatal_signals_end_a_plane_in_order)])
    finally:
        planes.stop()


sys.exit(main())
