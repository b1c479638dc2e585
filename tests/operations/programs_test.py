#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The behaviour of every program on signals and a full output, and the paths that MOUNT accepts. Speaks TAP.

programs_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH SLUICE_CONFORMANCE"""
import fcntl
import os
import pathlib
import pty
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

from planes import PATIENCE_S, Planes, run_tap
from planes_of_tests import memif_ethdev

CONTROL, DATA, CTL, BENCH, CONFORMANCE = sys.argv[1:6]
planes = Planes(CONTROL, DATA, CTL, BENCH)
PAGE = pathlib.Path(__file__).parents[2] / "deploy/docs/running.md"
REAL_TIME = [signal.SIGRTMIN + 3, signal.SIGRTMAX]
IGNORED = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR,
           signal.Signals(16), signal.SIGXFSZ, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT,
           *REAL_TIME]


def alive(process):
    """Returns whether the process runs after 50 ms, because a signal takes effect only when the process is scheduled next."""
    time.sleep(0.05)
    return process.poll() is None


def documented():
    """Returns the effects of each signal, as the page says: on a data plane, on a control plane and on the other programs."""
    effects = {}
    for row in re.findall(r"^\| (SIG.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        names, *cells = row.split(" | ")
        numbers = [signal.Signals(16) if name == "SIGSTKFLT" else signal.Signals[name] for name in re.findall(r"SIG[A-Z0-9]+", names)]
        numbers += range(signal.SIGRTMIN, signal.SIGRTMAX + 1) if "real-time signals" in names else []
        assert len(cells) == 3 and not effects.keys() & set(numbers), row
        effects |= {int(number): [cells[0] if cell == "the same" else cell for cell in cells] for number in numbers}
    return effects


def dispositions(process):
    """Returns the sets of signals that a process ignores and handles."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    masks = [int(re.search(rf"^{field}:\s+(\w+)$", status, re.MULTILINE)[1], 16) for field in ("SigIgn", "SigCgt")]
    return [{number for number in signal.valid_signals() if mask >> (number - 1) & 1} for mask in masks]


def the_page_has_every_signal_and_the_planes_do_what_it_says():
    effects = documented()
    assert effects.keys() == signal.valid_signals(), effects.keys() ^ signal.valid_signals()
    for column, process in enumerate((planes.data, planes.control)):
        ignored, handled = dispositions(process)
        said = {number: cells[column] for number, cells in effects.items()}
        assert ignored == {number for number, effect in said.items() if effect.startswith("ignored")}, ignored
        assert handled - {signal.SIGBUS} == {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}, handled


def a_hang_up_ends_no_data_plane_that_waits_for_its_control_plane():
    other = Planes(CONTROL, DATA, CTL, BENCH)
    try:
        other.start_data()
        planes.wait("the handler", lambda: signal.SIGHUP in dispositions(other.data)[1])
        for _ in range(3):
            other.data.send_signal(signal.SIGHUP)
            assert alive(other.data), other.data.returncode
        other.start_control()
        other.up()
    finally:
        other.stop()


def state_of(process):
    return pathlib.Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]


def suspended_planes_go_on():
    for process in (planes.data, planes.control):
        planes.wait("the process to be suspended", lambda stopped=process: stopped.send_signal(signal.SIGSTOP) or state_of(stopped) == "T")
        process.send_signal(signal.SIGCONT)
    planes.up()


def signals_that_report_a_defect_end_a_plane():
    for number in [number for number, cells in documented().items() if cells[0].startswith("end with a core file")]:
        other = Planes(CONTROL, DATA, CTL, BENCH)
        other.start()
        try:
            for process in (other.data, other.control):
                process.send_signal(number)
                assert process.wait(PATIENCE_S) == -number, (number, process.returncode)
        finally:
            other.stop()


def full_pipe():
    """Returns both ends of a pipe that takes no more bytes."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while os.write(writer, b"x" * 4096):
            pass
    except BlockingIOError:
        os.set_blocking(writer, True)
    return reader, writer


def judge_of_clients(folder, output, *words):
    """Starts sluice-conformance as a server, and returns it when it listens. One that a signal has ended leaves its socket behind."""
    pathlib.Path(folder, "memif.sock").unlink(missing_ok=True)
    process = subprocess.Popen([CONFORMANCE, "--device", "softroce", "--ethdev", memif_ethdev(folder, "server"), "--listen", "192.0.2.1/24", "--calm", "--json",
                                *words], stdout=output, stderr=subprocess.PIPE, text=True)
    while (line := process.stderr.readline()) and "Listening" not in line:
        pass
    return process


def a_program_writes_what_it_has_at_the_first_signal_and_ends_at_once_at_the_second():
    other = Planes(CONTROL, DATA, CTL, BENCH)
    starts = {"sluice-bench": lambda output: subprocess.Popen(planes.over_memif("--seconds", str(PATIENCE_S), "null"), stdout=output, stderr=subprocess.PIPE),
              "sluice-conformance": lambda output: judge_of_clients(other.dir, output)}
    for program, start in starts.items():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process = start(subprocess.PIPE)
            planes.wait("the handlers", lambda of=process, wanted=number: wanted in dispositions(of)[1])
            process.send_signal(number)
            out, err = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0 and len(out) > 2, (program, number, process.returncode, err)
            reader, writer = full_pipe()
            process = start(writer)
            try:
                planes.wait("the handlers", lambda of=process, wanted=number: wanted in dispositions(of)[1])
                process.send_signal(number)
                planes.wait("the first signal", lambda of=process, wanted=number: wanted not in dispositions(of)[1])
                process.send_signal(number)
                assert process.wait(PATIENCE_S) == -number, (program, number, process.returncode)
            finally:
                process.kill()
                os.close(reader)
                os.close(writer)
    other.stop()


def a_view_that_waits_for_its_next_update_ends_at_the_second_interrupt_at_the_latest():
    with subprocess.Popen([CTL, "--socket", planes.socket, "top", "--interval", "100000"], stdout=subprocess.PIPE) as view:
        assert view.stdout.readline().startswith(b"sluice ")
        view.send_signal(signal.SIGINT)
        planes.wait("the first signal", lambda: view.poll() is not None or signal.SIGINT not in dispositions(view)[1])
        view.send_signal(signal.SIGINT)
        assert view.wait(PATIENCE_S) in (0, -signal.SIGINT), view.returncode


def programs_without_a_reason_to_go_on_end_by_the_signal():
    """A follower of events has written all that it has, and has nothing to finish."""
    for number, (_, _, effect) in documented().items():
        if not effect.startswith(("end the program", "ends the program", "end. ", "as SIGTERM")):
            continue
        follower = subprocess.Popen([CTL, "--socket", planes.socket, "events", "--follow"], stdout=subprocess.DEVNULL)
        follower.send_signal(number)
        assert follower.wait(PATIENCE_S) == -number, (number, follower.returncode)


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
    served = planes.ctl("counters")[0]["calls_received"]
    load = planes.load("--seconds", str(PATIENCE_S), "--json", "null")
    # A load has its handlers before its first call.
    planes.wait("calls of the load", lambda: planes.ctl("counters")[0]["calls_received"] > served + 1000)
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
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The children of a process that nohup or a shell has started in the background ignore these signals.
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    planes.start()
    try:
        return run_tap([(f.__name__, revived(f)) for f in (
            the_page_has_every_signal_and_the_planes_do_what_it_says, a_hang_up_ends_no_data_plane_that_waits_for_its_control_plane,
            suspended_planes_go_on, signals_that_report_a_defect_end_a_plane, programs_without_a_reason_to_go_on_end_by_the_signal,
            a_program_writes_what_it_has_at_the_first_signal_and_ends_at_once_at_the_second,
            a_view_that_waits_for_its_next_update_ends_at_the_second_interrupt_at_the_latest,
            signals_without_a_meaning_end_no_plane, a_hang_up_is_a_reload_for_the_control_plane_and_a_line_in_the_log_for_the_data_plane,
            a_load_reports_when_its_terminal_hangs_up, mount_takes_all_spellings_and_looks_for_directories,
            no_hint_names_the_driver_that_runs, output_that_cannot_be_written_is_an_error, a_closed_terminal_and_a_closed_pipe_end_no_plane,
            fatal_signals_end_a_plane_in_order)])
    finally:
        planes.stop()


sys.exit(main())
