#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An unmodified Linux kernel as NFS/RDMA client of Sluice. Speaks TAP.

linux_client_test.py CONTROLPLANE DATAPLANE SLUICECTL RPING_PEER SLUICE_BENCH PERFTEST_PEER [NAME...]   (NAME: only those tests)"""
import contextlib
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lab import ETHDEV, EXPORT, MTU, PLAIN_HOST, ROCE_GUEST, ROCE_HOST, ROCE_OTHER, Bench, Failed, Planes, build_image, mac, need_lab, run_tests  # noqa: E402

MOUNT = (f"mount -t nfs -o proto=rdma,port=20049,vers=3,nolock,mountproto=tcp,mountaddr={PLAIN_HOST},mountport=20048 "
         f"{ROCE_HOST}:/export /mnt/nfs")
SNAP = 256  # bytes of each packet that the long captures keep; enough for all headers


class ClientBench(Bench):
    """The guest, the planes, and the state that the tests share."""

    def __init__(self, control, data, ctl, rping_peer, sluice_bench, perftest_peer):
        self.programs = control, data, ctl
        self.perftest_peer = perftest_peer
        self.rping_peer = rping_peer
        self.sluice_bench = sluice_bench
        self.captures = []
        super().__init__()

    def set_up(self):
        image = build_image()
        self.lab.add_tap("roce")
        self.lab.add_tap("plain", address=f"{PLAIN_HOST}/24")
        self.planes = Planes(self.lab, *self.programs)
        self.planes.start()
        self.connect_guest(image)


def mount_and_unmount(b):
    b.sh(MOUNT + "\ngrep -q 'proto=rdma' /proc/mounts\numount /mnt/nfs\n" + MOUNT)


def tree_is_read_back(b):
    b.sh("""
rm -rf /tmp/tree; mkdir /tmp/tree
for i in $(seq 40); do mkdir -p /tmp/tree/d$((i % 7)); head -c $((i * i * 97)) /dev/urandom > /tmp/tree/d$((i % 7))/f$i; done
for n in 1 511 1023 4095 4096 4097 65535 65536 65537 1048576 3145729; do head -c $n /dev/urandom > /tmp/tree/size$n; done
cp -r /tmp/tree /mnt/nfs/tree
drop_caches
cd /tmp/tree && find . -type f | sort | xargs sha256sum > /tmp/sums
test -s /tmp/sums
cd /mnt/nfs/tree && sha256sum -c /tmp/sums > /tmp/checked || { grep -v OK /tmp/checked; exit 1; }
cd /; test "$(find /mnt/nfs/tree | wc -l)" = "$(find /tmp/tree | wc -l)"
rm -r /mnt/nfs/tree; test ! -e /mnt/nfs/tree""")


def one_mebibyte_io(b):
    b.sh("""
head -c 8388608 /dev/urandom > /tmp/big
dd if=/tmp/big of=/mnt/nfs/big bs=1M oflag=direct
dd if=/mnt/nfs/big of=/tmp/back bs=1M iflag=direct
cmp /tmp/big /tmp/back
dd if=/tmp/big of=/mnt/nfs/odd bs=1023 count=9 oflag=direct
dd if=/mnt/nfs/odd of=/tmp/back bs=4096 iflag=direct
head -c $((1023 * 9)) /tmp/big | cmp - /tmp/back""")


def random_io(b):
    print("# " + b.sh("random_io /mnt/nfs/random 30 4711").strip())


def ten_thousand_files(b):
    b.sh("""
mkdir /mnt/nfs/many; names create /mnt/nfs/many 10000; drop_caches
test "$(ls /mnt/nfs/many | wc -l)" = 10000
test "$(ls /mnt/nfs/many | sort -u | wc -l)" = 10000
rm -r /mnt/nfs/many""")


def long_symlinks(b):
    b.sh("""
target=$(printf 'x%.0s' $(seq 1000))
ln -s $target /mnt/nfs/link
drop_caches
test "$(readlink /mnt/nfs/link)" = "$target"
rm /mnt/nfs/link""")


def rename_storm(b):
    b.sh("""
mkdir -p /mnt/nfs/a /mnt/nfs/b; echo content > /mnt/nfs/a/0
names rename /mnt/nfs/a /mnt/nfs/b 500
test "$(cat /mnt/nfs/a/500)" = content; test "$(ls /mnt/nfs/a /mnt/nfs/b | grep -c 500)" = 1
names link /mnt/nfs/a/500 /mnt/nfs/b 50
test "$(stat -c %h /mnt/nfs/a/500)" = 51
rm -r /mnt/nfs/a /mnt/nfs/b""")


def fio_with_verification(b):
    b.sh("""
cd /tmp
fio --name=mixed --directory=/mnt/nfs --size=16m --rw=randrw --bs=4k --iodepth=8 --ioengine=libaio --direct=1 --verify=crc32c \
  --verify_fatal=1 --number_ios=3000 --output=/tmp/fio.log || { cat /tmp/fio.log; exit 1; }
fio --name=stream --directory=/mnt/nfs --size=32m --rw=write --bs=1m --ioengine=psync --direct=1 --verify=crc32c --verify_fatal=1 \
  --do_verify=1 --output=/tmp/fio.log || { cat /tmp/fio.log; exit 1; }
rm /mnt/nfs/mixed* /mnt/nfs/stream*""")


def remount(b):
    b.sh("echo kept > /mnt/nfs/kept; umount /mnt/nfs\n" + MOUNT + "\ntest \"$(cat /mnt/nfs/kept)\" = kept")


def one_percent_loss(b):
    b.sh(f"lossy $(card {mac(1, 0)}) 1")
    try:
        tree_is_read_back(b)
        print("# " + b.sh("random_io /mnt/nfs/lossy 10 4712", 400).strip())
    finally:
        b.sh(f"lossless $(card {mac(1, 0)})")


def control_plane_killed(b):
    with b.under_random_io("/mnt/nfs/across", 4713):
        b.lab.kill(b.planes.control)
        b.sends("roce")
        b.planes.start_control()
        b.lab.wait("the new control plane is up", b.planes.up)
    remount(b)  # the new control plane handles the end of an old connection, and a new request


def data_plane_killed(b):
    """The data of the memory export is lost with its process. But a hard mount has to continue with the new process, and handles of lost
    files have to be answered by an error."""
    with b.while_it_runs("until stop_requested; do stat -f /mnt/nfs > /dev/null; done"):
        b.sends("roce", 50)
        b.lab.kill(b.planes.data)
        b.planes.start_data()
        b.sends("roce", 50)
    b.sh("cat /mnt/nfs/kept 2> /tmp/why && exit 1; grep -qE 'No such file|Stale' /tmp/why; "
         "echo again > /mnt/nfs/again; drop_caches; test \"$(cat /mnt/nfs/again)\" = again")


def rping_peer(b, role, port, rounds, size):
    """Starts our side of rping, at a separate address on the same link."""
    log = f"{b.lab.dir}/rping-{role}-{size}"
    process = b.lab.start(b.rping_peer, role, ETHDEV, f"{ROCE_OTHER}/24", ROCE_GUEST, str(port), str(rounds), str(size), log=log)
    return process, log


def rping(b, role):
    for number, size in enumerate((64, 4096, 5000, 60000)):
        port = 7174 + number
        if role == "client":
            listens = f"listens-{port}"
            job = b.guest.begin(f"timeout 300 rping -s -a {ROCE_GUEST} -p {port} -C 20 -S {size} -V & peer=$!\n"
                                f"until rdma resource show cm_id | grep -q 'state LISTEN.*:{port}'; do kill -0 $peer || exit 1; usleep 50000; done\n"
                                f"touch /mnt/host/{listens}; wait $peer")
            b.lab.wait("the guest listens", lambda: os.path.exists(f"{b.guest.dir}/{listens}"))
        ours, log = rping_peer(b, role, port, 20, size)
        if role == "server":
            b.lab.wait("our side listens", lambda: "listening" in open(log, encoding="utf-8").read() or ours.poll() is not None)
            # At its end rping closes its event channel while its thread may still read from it, which the thread reports as a failure.
            job = b.guest.begin(f"timeout 300 rping -c -a {ROCE_OTHER} -p {port} -C 20 -S {size} -V > /tmp/rping.out 2>&1 && exit 0\n"
                                "cat /tmp/rping.out\n"
                                "grep -q 'rdma_get_cm_event: Bad file descriptor' /tmp/rping.out && ! grep -q mismatch /tmp/rping.out")
        b.lab.wait("one side of rping ends", lambda: ours.poll() is not None or b.guest.has_ended(job), 300)
        if ours.poll() not in (None, 0):
            raise Failed(open(log, encoding="utf-8").read())
        b.guest.end(job)
        b.lab.wait("our side of rping ends", lambda: ours.poll() is not None)
        if ours.returncode != 0:
            raise Failed(open(log, encoding="utf-8").read())


def rping_from_the_guest(b):
    rping(b, "server")


def rping_to_the_guest(b):
    rping(b, "client")


def perftest(b, program, options, size):
    """Returns the output of our side and of the client in the guest. The client measures the frequency of its processor first, and exits if the
    frequency varies, as it does in an emulated guest."""
    for attempt in range(10):
        log = f"{b.lab.dir}/perftest-{program}-{size}-{attempt}"
        ours = b.lab.start(b.perftest_peer, program, ETHDEV, f"{ROCE_OTHER}/24", ROCE_GUEST, mac(1, 0), str(size), log=log)
        b.lab.wait("our side listens", lambda: "listening" in open(log, encoding="utf-8").read() or ours.poll() is not None)
        # -u 20: acknowledgements may take 4.3 s, in case our program is not scheduled for a while.
        text = b.sh(f"timeout 300 ib_{program} -d rxe0 -x 1 -u 20 -s {size} {options} {PLAIN_HOST} 2>&1 || echo status $?")
        b.lab.wait("our side ends", lambda: ours.poll() is not None)
        said = open(log, encoding="utf-8").read()
        if "Can't produce a report" not in text:
            break
    if ours.returncode != 0 or text.splitlines()[-1].startswith("status "):
        raise Failed(f"{said}\n{text}")
    return said, text


def perftest_measures_us(b):
    """Clients of perftest in the guest: ping-pong of messages, many RDMA Reads outstanding, many RDMA Writes."""
    for program, options, size, wanted in (("send_lat", "-n 500", 64, "500 messages, not written"), ("send_lat", "-n 100", 60000, "100 messages, not written"),
                                           ("read_bw", "-n 400 -o 16", 65536, "0 messages, not written"), ("read_bw", "-n 50 -o 16", 1048576, "0 messages, not written"),
                                           ("write_bw", "-n 400", 65536, "0 messages, written"), ("write_bw", "-n 50", 1048576, "0 messages, written")):
        said, text = perftest(b, program, options, size)
        if wanted not in said:
            raise Failed(f"{said}\n{text}")
        measured = [line.split() for line in text.splitlines() if line.strip().startswith(f"{size} ")]
        if len(measured) != 1:
            raise Failed(text)
        print("# ib_" + program, *measured[0])


def two_reactors_have_a_hardware_queue_each(b):
    """The kernel spreads flows over af_packet's queues as a NIC does by RSS: a queue pair's packets arrive on either queue, and reach its
    reactor."""
    planes = Planes(b.lab, *b.programs, EXPORT + "[reactor]\ncount = 2\n", name="two", mount_port=20060,
                    device=f'driver = "softroce"\nethdev = "{ETHDEV},qpairs=2"\nhardware_queues = 2\ndpdk_memory_mib = 384\n'
                           f'addresses = ["{ROCE_OTHER}/24"]\nmtu = {MTU}')
    planes.start()
    try:
        b.sh("head -c 3000000 /dev/urandom > /tmp/data")
        for _ in range(20):  # each connection is a separate flow
            b.sh(f"{MOUNT.replace('20048', '20060').replace(ROCE_HOST, ROCE_OTHER).replace('/mnt/nfs', '/mnt/other')}\n"
                 "cp /tmp/data /mnt/other/data; drop_caches; cmp /tmp/data /mnt/other/data; umount /mnt/other")
            seen = json.loads(subprocess.run(b.lab.netns(planes.ctl_path, "--socket", planes.socket, "--json", "devices"), capture_output=True,
                                             text=True, check=True).stdout)["polled"]
            received, handed_over = (sum(polled[what] for polled in seen) for what in ("packets_received", "handed_over"))
            if min(handed_over, received - handed_over) > 1000:
                break
        else:
            raise Failed(str(seen))
        print(f"# {handed_over} packets of {received} were handed over, {sum(polled['hand_over_drops'] for polled in seen)} dropped")
    finally:
        planes.close()


def V2_013_V2_014_version_2_falls_back_before_a_linux_server(b):
    """Our client begins with version 2; the kernel's server answers ERR_VERS, and one connection continues with version 1."""
    b.sh("nfsd_on_rdma")
    file = f"{b.lab.dir}/fallback.pcap"
    capture = b.lab.capture("roce", file, 0)
    probe = b.lab.start(b.sluice_bench, "--device", "softroce", "--ethdev", ETHDEV, "--address", f"{ROCE_OTHER}/24", "--server",
                        ROCE_GUEST, "--rpcrdma", "2", "--json", "probe", log=f"{b.lab.dir}/probe.json")
    b.lab.wait("the probe ends", lambda: probe.poll() is not None)
    b.lab.stop_capture(capture)
    text = open(f"{b.lab.dir}/probe.json", encoding="utf-8").read()
    if probe.returncode != 0:
        raise Failed(text)
    answer = json.loads(text)
    if answer["version"] != 1 or answer["answer"] != "ok":
        raise Failed(text)
    # The server sent ERR_VERS, then the reply in version 1, both to the same queue pair.
    sends = subprocess.run(["tshark", "-r", file, "-Y", f"ip.src == {ROCE_GUEST} && infiniband.bth.opcode == 4", "-T", "fields",
                            "-e", "infiniband.bth.destqp", "-e", "rpcordma.version"], capture_output=True, text=True, check=True).stdout
    b.captures.append(file)
    lines = [line.split("\t") for line in sends.splitlines()]
    if len(lines) != 2 or lines[0][0] != lines[1][0] or lines[1][1] != "1":
        raise Failed(f"queue pair and version of what the server sent: {lines}")


def capture_opens_in_wireshark(b):
    file = f"{b.lab.dir}/sluice.pcapng"
    capture = b.lab.start(b.planes.ctl_path, "--socket", b.planes.socket, "--json", "capture", file, "--seconds", "4",
                          log=f"{b.lab.dir}/capture.json")
    time.sleep(1)
    b.sh("dd if=/dev/urandom of=/mnt/nfs/seen bs=64k count=4 oflag=direct 2> /dev/null; drop_caches; cat /mnt/nfs/seen > /dev/null")
    b.lab.wait("the capture ends", lambda: capture.poll() is not None)
    status = json.load(open(f"{b.lab.dir}/capture.json", encoding="utf-8"))
    if status["state"] != "done" or status["dropped"] != 0:
        raise Failed(str(status))
    packets = subprocess.run(["tshark", "-r", file, "-T", "fields", "-e", "infiniband.bth.opcode", "-e", "frame.packet_flags_direction"],
                             capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    if len(packets) != status["packets"] or not packets:
        raise Failed(f"{len(packets)} packets in the file, {status['packets']} were counted")
    if not any(line.startswith("12") for line in packets):
        raise Failed("no RDMA Read request among what was captured while the client wrote")
    b.captures.append(file)


def connecting_to_nobody_is_refused(b):
    b.sh(f"timeout 120 rping -c -a {ROCE_HOST} -p 20050 -C 1 > /tmp/refused 2>&1 && exit 1; grep -q REJECTED /tmp/refused || "
         "{ cat /tmp/refused; exit 1; }\nstat -f /mnt/nfs > /dev/null")


def packets_are_well_formed(b):
    """Wireshark's InfiniBand and RPC-over-RDMA dissectors find no malformed packet."""
    for file in b.captures:
        done = subprocess.run(["tshark", "-r", file, "-q", "-z", "io,phs"], capture_output=True, text=True, check=True)
        if "infiniband" not in done.stdout:
            raise Failed(f"no InfiniBand packets in {file}")
        bad = subprocess.run(["tshark", "-r", file, "-Y", "_ws.malformed && !nfs", "-c", "5"], capture_output=True, text=True, check=True)
        if bad.stdout.strip():
            raise Failed(f"malformed packets:\n{bad.stdout}")


TESTS = (mount_and_unmount, tree_is_read_back, one_mebibyte_io, random_io, ten_thousand_files, long_symlinks, rename_storm,
         fio_with_verification, remount, rping_from_the_guest, rping_to_the_guest, perftest_measures_us, two_reactors_have_a_hardware_queue_each,
         connecting_to_nobody_is_refused, V2_013_V2_014_version_2_falls_back_before_a_linux_server,
         capture_opens_in_wireshark, one_percent_loss, control_plane_killed, data_plane_killed,
         packets_are_well_formed)
CAPTURED_WHOLE = ("mount_and_unmount", "tree_is_read_back", "long_symlinks", "remount")


@contextlib.contextmanager
def captured(bench, test):
    """Captures the packets of a test, for packets_are_well_formed."""
    if test is packets_are_well_formed:
        yield
        return
    file = f"{bench.lab.dir}/{test.__name__}.pcap"
    capture = bench.lab.capture("roce", file, 0 if test.__name__ in CAPTURED_WHOLE else SNAP)
    bench.captures.append(file)
    try:
        yield
    finally:
        bench.lab.stop_capture(capture)


def main():
    programs, names = sys.argv[1:7], sys.argv[7:]
    tests = [test for test in TESTS if not names or test.__name__ in names]
    need_lab()
    bench = ClientBench(*programs)
    if names and "mount_and_unmount" not in names:
        bench.sh(MOUNT)
    return 1 if run_tests(bench, tests, lambda test: captured(bench, test)) else 0


if __name__ == "__main__":
    sys.exit(main())
