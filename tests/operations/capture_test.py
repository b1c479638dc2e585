#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packet captures of a data plane that serves clients, to files, pipes and outputs that fail. Speaks TAP.

capture_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH"""
import collections
import os
import signal
import stat
import subprocess
import sys
import time

from admin_client import ask
from planes import PATIENCE_S, Planes, Skipped, end, missing, run_tap

CONTROL, DATA, CTL, BENCH = sys.argv[1:5]
CLIENT = "192.0.2.2"
MANAGEMENT = "0x00000001"  # queue pair 1, whose packets have no sequence
planes = Planes(CONTROL, DATA, CTL, BENCH)


class Capture:
    """A sluicectl that captures packets; the test reads its standard output."""

    def __init__(self, file, *words, **options):
        self.process = subprocess.Popen([CTL, "--json", "--socket", planes.socket, "capture", file, *words],
                                        stderr=subprocess.PIPE, **{"stdout": subprocess.PIPE, **options})

    def running(self):
        planes.wait("the capture", lambda: status()["state"] == "running" and status()["packets"] > 0)
        return self

    def finish(self):
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err.decode()


def status():
    """Returns the control plane's status of the last capture."""
    return ask(planes.socket, "capture_status")["result"]


def ended():
    """Waits until the data plane has stopped writing, and returns the status of the capture."""
    return planes.wait("the end of the capture", lambda: (s := status())["state"] != "running" and s)


def under_load(test):
    """Wraps the test in a load of a client, none of whose calls may fail."""
    def wrapped():
        load = planes.load("--seconds", str(PATIENCE_S), "--depth", "4", "null")
        planes.loaded()
        test()
        result = end(load)
        assert result["operations"] > 0 and result["errors"] == 0, result
        alive = planes.ctl("status")["data_plane"]
        assert alive["alive"] and alive["pid"] == planes.data.pid, alive
    wrapped.__name__ = test.__name__
    return wrapped


def packets_of(file, *fields, source=None):
    """Returns the fields of each packet, as tshark reads them."""
    words = ["tshark", "-n", "-r", file, "-T", "fields", *(word for field in fields for word in ("-e", field))]
    done = subprocess.run(words, stdin=source, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


@under_load
def tshark_reads_standard_output_and_each_packet_is_there_once_with_todays_date():
    if sentence := missing("tshark"):
        raise Skipped(sentence)
    capture = Capture("-", "--packets", "400")
    packets = packets_of("-", "frame.time_epoch", "ip.src", "ip.dst", "infiniband.bth.destqp", "infiniband.bth.psn",
                         "infiniband.bth.opcode", source=capture.process.stdout)
    capture.process.stdout.close()
    code = capture.process.wait(PATIENCE_S)
    assert code == 0 and len(packets) == 400, (code, len(packets))
    now = time.time()
    assert all(now - 60 < float(packet[0]) < now + 1 for packet in packets), packets[0]
    roce = [packet for packet in packets if packet[1]]  # the link has just come up, so addresses are announced by ARP
    assert len(roce) > 390 and {(p[1], p[2]) for p in roce} == {(CLIENT, "192.0.2.1"), ("192.0.2.1", CLIENT)}, packets[:4]
    # Packets of both sides may be retransmitted, which is counted.
    seen = collections.Counter(tuple(what) for _, *what in roce if what[2] != MANAGEMENT)
    polled, = planes.ctl("devices")["polled"]
    again = sum(polled[name] for name in ("packets_sent_again", "probes", "duplicates", "duplicate_reads", "stale_responses"))
    twice = sum(seen.values()) - len(seen)
    assert twice <= again, f"{twice} packets are there again, and {again} were sent again: {seen.most_common(3)}"


@under_load
def a_file_is_for_its_owner_has_its_limits_and_is_never_replaced():
    file = f"{planes.dir}/limited.pcapng"
    code, out, err = Capture(file, "--mib", "1", "--seconds", str(PATIENCE_S)).finish()
    assert code == 0 and b"byte limit" in out, (code, out, err)
    size = os.path.getsize(file)
    assert 1000 * 1024 < size <= 1 << 20, size
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    for precious in (file, f"/dev/shm/{planes.name}.data"):
        size = os.path.getsize(precious)
        code, _, err = Capture(precious).finish()
        assert code == 1 and "Name a file that does not exist" in err and os.path.getsize(precious) == size, (code, err)
    timed = f"{planes.dir}/timed.pcapng"
    code, out, err = Capture(timed, "--seconds", "1").finish()
    assert code == 0 and b"time limit" in out, (code, out, err)


@under_load
def peer_and_queue_pair_choose_packets():
    if sentence := missing("tshark"):
        raise Skipped(sentence)
    of_peer, of_pair = f"{planes.dir}/peer.pcapng", f"{planes.dir}/pair.pcapng"
    connection = planes.loaded()
    shown = planes.ctl("connections", "show", str(connection["reactor"]), str(connection["connection"]))
    code, _, err = Capture(of_peer, "--peer", "192.0.2.77", "--seconds", "1").finish()
    assert code == 0 and not packets_of(of_peer, "ip.src"), err
    os.unlink(of_peer)
    assert Capture(of_peer, "--peer", CLIENT, "--packets", "20").finish()[0] == 0
    assert len(packets_of(of_peer, "ip.src")) == 20
    assert Capture(of_pair, "--queue-pair", str(shown["queue_pair"]), "--packets", "40").finish()[0] == 0
    ways = {(source, int(number, 16)) for source, number in packets_of(of_pair, "ip.src", "infiniband.bth.destqp")}
    assert (CLIENT, shown["queue_pair"]) in ways and len(ways) == 2, (ways, shown["queue_pair"])
    code, _, err = Capture(f"{planes.dir}/none.pcapng", "--peer", "nonsense").finish()
    assert code == 1 and "not an IP address" in err and not os.path.exists(f"{planes.dir}/none.pcapng"), (code, err)


@under_load
def it_ends_with_its_client_however_that_ends():
    for number in (signal.SIGINT, signal.SIGTERM):
        file = f"{planes.dir}/signal-{number}.pcapng"
        capture = Capture(file, "--seconds", "0", "--mib", "0").running()
        capture.process.send_signal(number)
        code, out, err = capture.finish()
        assert code == 0 and b"stopped" in out, (code, out, err)
        assert ended()["packets"] > 0
    capture = Capture(f"{planes.dir}/killed.pcapng", "--seconds", "0", "--mib", "0").running()
    capture.process.kill()
    capture.finish()
    assert ended()["end"] == "its reader closed the pipe"
    size = os.path.getsize(f"{planes.dir}/killed.pcapng")
    time.sleep(0.2)
    assert os.path.getsize(f"{planes.dir}/killed.pcapng") == size, "it is written still"


@under_load
def another_administrator_ends_it_and_two_do_not_run():
    file = f"{planes.dir}/first.pcapng"
    capture = Capture(file, "--seconds", "0").running()
    second = f"{planes.dir}/second.pcapng"
    code, _, err = Capture(second).finish()
    assert code == 1 and "runs already" in err and not os.path.exists(second), (code, err)
    stopped = planes.run_ctl("capture", "--stop")
    assert stopped.returncode == 0, stopped
    code, out, err = capture.finish()
    assert code == 0 and b"stopped" in out, (code, out, err)
    again = planes.run_ctl("capture", "--stop")
    assert again.returncode == 1 and "No capture runs" in again.stderr, again


@under_load
def a_fifo_that_nobody_opens_or_reads_hurts_nobody():
    fifo = f"{planes.dir}/fifo"
    os.mkfifo(fifo)
    # Without a reader of the FIFO the client waits, and the planes are not involved.
    capture = Capture(fifo, "--seconds", "1")
    time.sleep(0.3)
    assert capture.process.poll() is None and status()["state"] != "running"
    capture.process.send_signal(signal.SIGINT)
    assert capture.finish()[0] != 0
    # With the FIFO open but not read, packets are dropped, and the time limit holds.
    reader = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        while True:
            os.write(reader, bytes(4096))
    except BlockingIOError:
        pass
    capture = Capture(fifo, "--seconds", "1")
    code, _, err = capture.finish()
    assert code == 1 and "lost" in err, (code, err)
    ended()
    os.close(reader)


@under_load
def an_output_that_fails_is_told_and_ends_the_capture():
    code, _, err = Capture("/dev/full", "--seconds", str(PATIENCE_S)).finish()
    assert code == 1 and "No space left" in err, (code, err)
    assert ended()["end"] == "its reader closed the pipe"
    if os.geteuid() != 0:
        return
    full = f"{planes.dir}/full"
    os.mkdir(full)
    script = f"mount -t tmpfs -o size=256k none {full}; exec {CTL} --socket {planes.socket} capture {full}/cut.pcapng --seconds {PATIENCE_S}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 1 and "No space left" in done.stderr and "incomplete" in done.stderr, done
    ended()


def the_data_plane_ends_in_time_during_a_capture_and_says_so():
    # A stopped client does not read, and the data plane exits without waiting for it.
    other = Planes(CONTROL, DATA, CTL, BENCH)
    other.start()
    try:
        file = f"{other.dir}/end.pcapng"
        capture = subprocess.Popen([CTL, "--socket", other.socket, "capture", file, "--seconds", "0"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        other.wait("its header", lambda: os.path.exists(file) and os.path.getsize(file) > 0)
        capture.send_signal(signal.SIGSTOP)
        other.data.terminate()
        assert other.data.wait(PATIENCE_S) == 0
        assert not os.path.exists(f"/dev/shm/{other.name}.capture")
        capture.send_signal(signal.SIGCONT)
        _, err = capture.communicate(timeout=PATIENCE_S)
        assert capture.returncode == 1 and "data plane was stopped" in err, (capture.returncode, err)
        gone = f"{other.dir}/gone.pcapng"
        refused = other.run_ctl("capture", gone)
        assert refused.returncode == 1 and "whether it runs" in refused.stderr and not os.path.exists(gone), refused
    finally:
        other.stop()


def main():
    planes.start()
    try:
        return run_tap([(f.__name__, f) for f in (
            tshark_reads_standard_output_and_each_packet_is_there_once_with_todays_date,
            a_file_is_for_its_owner_has_its_limits_and_is_never_replaced, peer_and_queue_pair_choose_packets,
            it_ends_with_its_client_however_that_ends, another_administrator_ends_it_and_two_do_not_run,
            a_fifo_that_nobody_opens_or_reads_hurts_nobody, an_output_that_fails_is_told_and_ends_the_capture,
            the_data_plane_ends_in_time_during_a_capture_and_says_so)])
    finally:
        planes.stop()


sys.exit(main())
