#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verbs driver on a real kernel's RDMA: Sluice runs in one Linux guest, on its rxe, and another Linux guest is its
client, or its server. Also tests softroce in the guest, on a network card that DPDK drives.

verbs_test.py CONTROLPLANE DATAPLANE SLUICECTL BENCH DRIVER_TEST CONFORMANCE CARD_CHECK [TEST...]      results in TAP"""
import contextlib
import glob
import json
import os
import shutil
import subprocess
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
from gdb_script import gdb, table  # noqa: E402
from lab import (MTU, NO_MIRROR, PLAIN_GUEST, PLAIN_HOST, ROCE_GUEST, ROCE_HOST, Bench, Failed, Guest, Skipped,  # noqa: E402
                 build_image, mac, need_lab, pack, run_tests)

SLUICE = "/mnt/host/sluice"
# rxe of rdma-core 44 does not support scatter/gather lists in the extended interface.
LISTS = ("gather_lists_and_unsignaled_requests", "writes_are_placed_before_a_later_send_is_received",
         "V2_045_reads_bring_the_memory_and_more_than_the_depth_wait")
# As in the units, each plane has a separate user, and both share a folder of the segment.
CONTROL_USER, DATA_USER, GROUP = 23451, 23452, 23450
CONFIG = """
log_level = "debug"
segment = "%s"
[device]
%s
[admin]
socket = "/tmp/%s.sock"
[metrics]
address = ""
[mount]
port = %d
rpcbind = false
[transport]
port = %d
max_connections = 8
"""
EXPORT = """
[memory]
size_mib = 256
[[export]]
path = "/export"
clients = []
root_squash = false
"""


class VerbsBench(Bench):
    """A bench of two guests: `server` runs Sluice, `guest` is the other one."""

    def __init__(self, programs):
        self.programs = programs
        super().__init__()

    def set_up(self):
        image = build_image()
        for bridge in ("roce", "plain", "bond"):
            self.lab.ip("link", "add", bridge, "type", "bridge")
            self.lab.ip("link", "set", bridge, "mtu", str(MTU + 100), "up")
            for number in (1, 2):
                self.lab.add_tap(f"{bridge}{number}", bridge=bridge)
        for tap in ("bond3", "bond4"):
            self.lab.add_tap(tap, bridge="bond")
        self.server = Guest(self.lab, 2, image, ["roce2", "plain2", "bond2", "bond3", "bond4"], cpus=2, memory_mib=2048, behind_iommu=[4])
        self.guest = Guest(self.lab, 1, image, ["roce1", "plain1", "bond1"])
        drivers = pack(f"{self.server.dir}/sluice", self.programs, ["net_virtio", "bus_pci", "bus_vdev", "mempool_ring", "net_af_packet"])
        self.server.sh(f"rdma_link {mac(2, 0)} {ROCE_HOST}/24 {MTU}\nplain_link {mac(2, 1)} {PLAIN_HOST}/24\n"
                       f"ln -sfn /run /var/run; mkdir -p {os.path.dirname(drivers)}; ln -s {SLUICE}/pmds {drivers}\necho /mnt/host/core > /proc/sys/kernel/core_pattern")
        self.guest.sh(f"rdma_link {mac(1, 0)} {ROCE_GUEST}/24 {MTU}\nplain_link {mac(1, 1)} {PLAIN_GUEST}/24")
        self.planes = self
        self.polled_at_end = []  # counters of the last reverse gateway's devices
        self.of_two_users = {"admin"}
        self.server.sh(f"mkdir /run/segment; chown 0:{GROUP} /run/segment; chmod 3770 /run/segment")
        self.start("admin", EXPORT)

    def close(self):
        self.lab.close()

    def state(self):
        """Returns output that helps to explain a failure."""
        shown = []
        for name in sorted(os.listdir(self.server.dir)):
            if name.endswith(".log") and name != "qemu.log":
                with open(f"{self.server.dir}/{name}", encoding="utf-8", errors="replace") as file:
                    shown += [f"{name}: {line.rstrip()}" for line in file.readlines()[-12:]]
        return "\n".join(shown)

    def sluice(self, script, timeout=480):
        return self.server.sh(f"export LD_LIBRARY_PATH={SLUICE}/lib\n{script}", timeout)

    def segment(self, name):
        return f"/run/segment/{name}" if name in self.of_two_users else name

    def as_user(self, name, user):
        return f"setpriv --reuid={user} --regid={GROUP} --clear-groups" if name in self.of_two_users else ""

    def start(self, name, serves, *, driver="verbs", device="", mount_port=20048, port=20049):
        """Starts both planes in the server guest."""
        with open(f"{self.server.dir}/{name}.toml", "w", encoding="utf-8") as file:
            file.write(CONFIG % (self.segment(name), f'driver = "{driver}"\n{device}', name, mount_port, port) + serves)
        self.start_control(name)
        self.sluice(f"ulimit -c unlimited -l unlimited; {self.as_user(name, DATA_USER)} {SLUICE}/sluice-dataplane --segment {self.segment(name)} >> /mnt/host/{name}-data.log 2>&1 &\n"
                    f"echo $! > /tmp/{name}-data.pid\n"
                    f"for i in $(seq 300); do {SLUICE}/sluicectl --socket /tmp/{name}.sock --json status 2> /dev/null | "
                    "grep -A3 data_plane | grep -q '\"alive\": true' && exit 0; usleep 100000; done\n"
                    f"cat /mnt/host/{name}-*.log; exit 1")

    def start_control(self, name):
        self.sluice(f"{self.as_user(name, CONTROL_USER)} {SLUICE}/sluice-controlplane --config /mnt/host/{name}.toml >> /mnt/host/{name}-control.log 2>&1 &\n"
                    f"echo $! > /tmp/{name}-control.pid\n")

    def stop(self, name):
        self.sluice("".join(f"kill $(cat /tmp/{name}-{plane}.pid)\nwhile kill -0 $(cat /tmp/{name}-{plane}.pid) 2> /dev/null; do usleep 50000; done\n"
                            for plane in ("data", "control")) + f"cd /dev/shm; rm -f {self.segment(name)}.control {self.segment(name)}.data\n")

    def ctl(self, *words, name="admin"):
        """Returns the answer of a control plane. Retries while it restarts."""
        ask = f"{SLUICE}/sluicectl --socket /tmp/{name}.sock --json {' '.join(map(str, words))}"
        return json.loads(self.sluice(f"for i in $(seq 50); do text=$({ask} 2> /dev/null) && echo \"$text\" && exit 0; usleep 200000; done; {ask}"))

    def mount(self, where="/mnt/nfs", *, server=ROCE_HOST, port=20049, mount_port=20048, options=""):
        """Mounts the export. The kernel owns the address, so MOUNT is served at the same address."""
        self.sh(f"mount -t nfs -o proto=rdma,port={port},vers=3,nolock,mountproto=tcp,mountport={mount_port}{options} {server}:/export {where}")

    def unmount(self, where="/mnt/nfs"):
        self.sh(f"umount {where}")


def report_of(text):
    """Parses the JSON output of a program. Other output is reported as the failure."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Failed(f"{error}\n{text[:300]}\n...\n{text[-300:]}") from None


def the_driver_suite_passes_on_rxe(bench):
    lists = ":".join(f"*{name}/extended" for name in LISTS)
    text = bench.sluice(f"cp {SLUICE}/verbs_driver_test /tmp; /tmp/verbs_driver_test --gtest_filter=-{lists} --gtest_brief=1")
    if "[  PASSED  ] 68 tests." not in text:
        raise Failed(text)


def the_card_check_passes_on_rxe(bench):
    """Only what rxe cannot do is skipped (cli/card_check/known.h), and what shared Receives exclude."""
    bench.sluice(f"cp {SLUICE}/sluice-card-check /tmp; /tmp/sluice-card-check > /mnt/host/card.txt 2> /mnt/host/card-errors.log || true", 900)
    with open(f"{bench.server.dir}/card.txt", encoding="utf-8") as file:
        text = file.read()
    wrong = [line for line in text.splitlines() if line.startswith("not ok")]
    ends = [line for line in text.splitlines() if line.startswith("# end: ")]
    if wrong or not ends:
        raise Failed(text + bench.state())
    skipped = [line.split(" - ")[1] for line in text.splitlines() if line.startswith("ok") and " # SKIP " in line]
    print("".join(f"# {line}\n" for line in skipped), end="")
    unknown = [line for line in skipped if "rxe" not in line and "Receives are shared" not in line]
    if unknown:
        raise Failed("\n".join(unknown))
    if ROCE_HOST in text or mac(2, 0) in text:
        raise Failed(f"The report has an address:\n{text}")
    end = json.loads(ends[0].removeprefix("# end: "))
    print("# " + json.dumps({"figure": "card_check_s", "where": "rxe in the guest", "value": round(end["seconds"], 1), "unit": "s", "goal": 60}), flush=True)
    explained = bench.sluice("/tmp/sluice-card-check --explain /mnt/host/card.txt")
    roles = [line.strip() for line in explained.splitlines() if line.startswith("  ") and line.strip().startswith(("server:", "RDMA upstreams:", "reverse gateway:"))]
    if len(roles) != 3 or not all(": yes" in line for line in roles):
        raise Failed(explained)


def a_kernel_client_mounts_writes_and_reads(bench):
    bench.mount()
    try:
        bench.sh("dd if=/dev/urandom of=/tmp/data bs=1k count=3001 2> /dev/null; cp /tmp/data /mnt/nfs/data; sync; drop_caches\n"
                 "cmp /tmp/data /mnt/nfs/data; ls -l /mnt/nfs; rm /mnt/nfs/data")
        connection, = bench.ctl("connections")
        if connection["state"] != "open":
            raise Failed(str(connection))
    finally:
        bench.unmount()


def both_versions_work_by_ipv6_to_an_address_that_is_new(bench):
    bench.server.sh(f"ip addr add fd77::1/64 dev $(card {mac(2, 0)}) nodad; sleep 1")
    for version in (1, 2):
        text = bench.sluice(f"{SLUICE}/sluice-bench --device verbs --server fd77::1 --rpcrdma {version} --seconds 1 --json "
                            "nfs3 --mount-host 127.0.0.1 --mount-port 20048 --verify --file-mib 4 --block 16384 --mix write=1,read=1")
        report = report_of(text)
        if report["errors"] or report["mismatches"] or not report["verified_bytes"]:
            raise Failed(text)


def meets_every_row_of(version):
    """sluice-conformance also runs in the server's guest, because rxe loops back packets to its own address."""
    def test(bench):
        # Shows the kernel stacks of blocked threads if the connection failed.
        said = bench.sluice(f"{SLUICE}/sluice-conformance --device verbs --server {ROCE_HOST} --mount-host 127.0.0.1 --mount-port 20048 --strict --destructive --json "
                            f"--rpcrdma {version} > /mnt/host/rows.json || [ $? -eq 1 ] || {{ "
                            "head -20 $(printf '/proc/%s/stack ' $(cd /proc; ls -d $(cat /tmp/admin-control.pid)/task/*; "
                            "grep -l '^State:.D' [0-9]*/task/*/status | sed s:/status::)); exit 1; }", 900)
        print("".join(f"# {line}\n" for line in said.splitlines()), end="")
        with open(f"{bench.server.dir}/rows.json", encoding="utf-8") as file:
            result = report_of(file.read())
        if result["passed"] != len(result["tests"]) or not result["tests"]:
            raise Failed(json.dumps([test for test in result["tests"] if test["outcome"] != "passed"], indent=1))
        print(f"# version {version}: {result['passed']} tests of {result['rows']} rows")
    test.__name__ = f"sluice_meets_every_row_of_version_{version}"
    return test


def clients_are_judged_over_verbs(version, kept):
    """Judges NULL calls of sluice-bench in the same guest. The kernel's client is judged over softroce."""
    def test(bench):
        text = bench.sluice(f"""
: > /tmp/judge.log  # there before grep looks for it: what grep says would be in the output
{SLUICE}/sluice-conformance --device verbs --listen {ROCE_HOST} --port 20050 --rpcrdma {version} --first-calls 100 --patience 0.2 --json \\
    > /tmp/judged 2>> /tmp/judge.log & judge=$!
for i in $(seq 100); do grep -q Listening /tmp/judge.log && break; sleep 0.1; done
{SLUICE}/sluice-bench --device verbs --server {ROCE_HOST} --port 20050 --rpcrdma {version} --operations 500 --seconds 60 null > /dev/null
for i in $(seq 300); do grep -q tried /tmp/judge.log && break; sleep 0.1; done
kill -TERM $judge; wait $judge
cat /tmp/judged""")
        result = report_of(text)
        if result["failed"] or result["unmet"] or result["passed"] < kept:
            raise Failed(json.dumps([test for test in result["tests"] if test["outcome"] != "passed"], indent=1))
        print(f"# version {version}: {result['passed']} rules were kept")
    test.__name__ = f"clients_of_version_{version}_are_judged_over_verbs"
    return test


def random_files_are_read_back(bench):
    bench.mount()
    try:
        print("# " + bench.sh("random_io /mnt/nfs/random 5 4711").strip())
        bench.sh("fio --name=verify --directory=/mnt/nfs --numjobs=4 --size=4m --rw=randrw --bsrange=4k-256k --verify=crc32c "
                 "--direct=1 --ioengine=libaio --iodepth=4 --do_verify=1 --verify_fatal=1 > /tmp/fio.out || { cat /tmp/fio.out; exit 1; }")
    finally:
        bench.unmount()


def administrators_see_ports_and_their_limits(bench):
    seen = bench.ctl("devices")
    port, = seen["rdma_ports"]
    wanted = {"device": "rxe0", "port": 1, "provider": "software", "state": "active", "path_mtu": 4096, "sluice": "usable; polled if it is the first that is"}
    wrong = {key: port[key] for key, value in wanted.items() if port[key] != value}
    if wrong or ROCE_HOST not in port["addresses"] or min(port["queue_pairs"], port["windows"], port["completions"]) == 0:
        raise Failed(f"{wrong} in {port}")
    polled, = seen["polled"]
    if polled["driver"] != "verbs" or polled["work_completions"] == 0 or polled["unsignaled"] == 0 or polled["inline_sends"] == 0:
        raise Failed(str(polled))
    stall = bench.ctl("status")["control_loop_stall_ms"]["since_start"]
    print(f"# the control plane's loop has not turned for {stall:.1f} ms at most", flush=True)


def siw_is_refused_with_a_sentence(bench):
    """siw is Linux's iWARP device in software. Debian's kernels lack it, so siw.sh builds it from Debian's source."""
    if os.environ.get("SLUICE_GUEST_KERNEL", "6.1") != "6.1":
        raise Skipped("siw.sh builds the module for Linux 6.1 only.")
    built = subprocess.run([f"{os.path.dirname(os.path.abspath(__file__))}/siw.sh"], check=False, text=True, capture_output=True)
    if built.returncode == NO_MIRROR:
        raise Skipped("The source of the guest's kernel cannot be fetched from the Debian mirror that apt-get uses here.")
    if built.returncode != 0:
        raise Failed(built.stderr[-2000:])
    shutil.copy(built.stdout.strip(), f"{bench.server.dir}/siw.ko")
    providers = glob.glob("/usr/lib/*/libibverbs/libsiw-rdmav*.so")
    if not providers:
        raise Skipped("ibverbs-providers is not installed: run deploy/install-packages.sh tests.")
    shutil.copy(providers[0], bench.server.dir)
    bench.server.sh(f"cp /mnt/host/libsiw-rdmav*.so {os.path.dirname(providers[0])}/; echo 'driver siw' > /etc/libibverbs.d/siw.driver\n"
                    f"modprobe -a ib_core libcrc32c; insmod /mnt/host/siw.ko; rdma link add siw0 type siw netdev $(card {mac(2, 1)})")
    try:
        # libibverbs loads its providers once, so programs that run already do not know this one.
        for said in (bench.sluice(f"! {SLUICE}/sluice-card-check --device siw0 2>&1"),
                     bench.sluice(f"! {SLUICE}/sluice-bench --device verbs --rdma-device siw0 --server {ROCE_GUEST} probe 2>&1")):
            if "iWARP" not in said or "RoCEv2 only" not in said:
                raise Failed(said)
        print(f"# {said.strip()}", flush=True)
    finally:
        bench.server.sh("rdma link delete siw0; rmmod siw; rm /etc/libibverbs.d/siw.driver")


@contextlib.contextmanager
def mounted_under_random_io(bench):
    bench.mount()
    with bench.under_random_io("/mnt/nfs/across", 4713, "roce1"):
        yield
    bench.unmount()


def a_device_that_goes_and_comes_back_loses_nothing(bench):
    with mounted_under_random_io(bench):
        bench.sluice("timeout 60 rdma link delete rxe0")  # returns when the device is no longer used
        gone = bench.ctl("devices")
        if gone["rdma_ports"] or gone["polled"][0]["device_lost"] == 0:
            raise Failed(str(gone))
        bench.sluice(f"rdma link add rxe0 type rxe netdev $(card {mac(2, 0)})")
        bench.lab.wait("the device is polled again", lambda: bench.ctl("devices")["polled"][0]["device_returned"] > 0)


def the_control_plane_is_restarted_under_io(bench):
    def queue_pair():
        connection, = bench.ctl("connections")
        return bench.ctl("connections", "show", connection["reactor"], connection["connection"])["queue_pair"]

    # Each round ends the control plane that established the connection.
    for how in ("KILL", "TERM"):
        with mounted_under_random_io(bench):
            before = queue_pair()
            bench.sluice(f"kill -{how} $(cat /tmp/admin-control.pid); while kill -0 $(cat /tmp/admin-control.pid) 2> /dev/null; do usleep 50000; done")
            bench.sends("roce1")
            bench.start_control("admin")
            if queue_pair() != before:
                raise Failed(f"another connection after {how}: {before}, {queue_pair()}")
        # The end of the peer is also detected on a connection that only the data plane still holds.
        bench.lab.wait("the connection has ended", lambda: not bench.ctl("connections"))


def marks_of(file, server):
    """Returns VLAN and traffic class of the RDMA packets that the server sent, each pair once, as text."""
    fields = subprocess.run(["tshark", "-r", file, "-Y", f"ip.src == {server} && udp.dstport == 4791", "-T", "fields", "-e", "vlan.id",
                             "-e", "ip.dsfield", "-e", "infiniband.bth.destqp"], capture_output=True, text=True, check=True).stdout
    return {tuple(line.split("\t")[:2]) for line in fields.splitlines() if line.split("\t")[2] not in ("0x000001", "0x00000001")}


def receives_are_shared_and_packets_carry_the_traffic_class(bench):
    """There are fewer shared Receives than outstanding calls, so clients get RNR NAKs. Their calls have no chunks, because rxe of Linux 6.1 binds a
    window again when it retransmits, and then ends the connection."""
    bench.start("shared", EXPORT, device="shared_receives = 48\ntraffic_class = 104", mount_port=20056, port=20057)
    file = f"{bench.lab.dir}/shared.pcap"
    try:
        capture = bench.lab.capture("roce2", file, 128)
        bench.mount("/mnt/other", port=20057, mount_port=20056)
        try:
            for connections, depth, mix in ((4, 32, "getattr=1"), (2, 16, "write=1,read=1,getattr=1")):
                text = bench.sluice(f"{SLUICE}/sluice-bench --device verbs --server {ROCE_HOST} --port 20057 --connections {connections} --depth {depth} "
                                    "--seconds 2 --json nfs3 --mount-host 127.0.0.1 --mount-port 20056 --verify --file-mib 2 --block 16384 "
                                    f"--mix {mix}")
                report = report_of(text)
                if report["errors"] or report["mismatches"] or report["operations"] == 0:
                    raise Failed(text)
            print("# " + bench.sh("random_io /mnt/other/shared 4 4717; drop_caches; rm /mnt/other/shared").strip())
            polled, = bench.ctl("devices", name="shared")["polled"]
            if polled["receive_overruns"] or polled["error_completions"] or polled["stale_completions"]:
                raise Failed(str(polled))
        finally:
            bench.unmount("/mnt/other")
        bench.lab.stop_capture(capture)
    finally:
        bench.stop("shared")
    if marks_of(file, ROCE_HOST) != {("", "0x68")}:
        raise Failed(str(marks_of(file, ROCE_HOST)))


def a_vlan_is_crossed(bench):
    file = f"{bench.lab.dir}/vlan.pcap"
    for guest, number in ((bench.server, 2), (bench.guest, 1)):
        guest.sh(f"modprobe 8021q; ip link add link $(card {mac(number, 0)}) name roce.7 type vlan id 7\n"
                 f"ip addr add 10.79.0.{number}/24 dev roce.7; ip link set roce.7 up; sleep 0.5")
    capture = bench.lab.capture("roce2", file, 128)
    bench.mount(server="10.79.0.2")
    try:
        print("# " + bench.sh("random_io /mnt/nfs/tagged 4 4718; drop_caches; rm /mnt/nfs/tagged").strip())
    finally:
        bench.unmount()
    bench.lab.stop_capture(capture)
    if {vlan for vlan, _ in marks_of(file, "10.79.0.2")} != {"7"}:
        raise Failed(str(marks_of(file, "10.79.0.2")))


def a_bond_changes_its_link_under_io(bench):
    bench.server.sh(f"""modprobe bonding max_bonds=0
ip link add bond0 type bond mode active-backup miimon 100
for link in $(card {mac(2, 2)}) $(card {mac(2, 3)}); do ip link set $link mtu {MTU}; ip link set $link master bond0; done
ip link set bond0 mtu {MTU} up; ip addr add 10.80.0.2/24 dev bond0
for i in $(seq 50); do grep -q 'Currently Active Slave: [a-z]' /proc/net/bonding/bond0 && break; usleep 100000; done
rdma link add rxe2 type rxe netdev bond0""")
    bench.guest.sh(f"ip link set $(card {mac(1, 2)}) mtu {MTU} up; ip addr add 10.80.0.1/24 dev $(card {mac(1, 2)})\n"
                   f"rdma link add rxe2 type rxe netdev $(card {mac(1, 2)})")
    bench.start("bonded", EXPORT, device='devices = ["rxe2"]', mount_port=20058, port=20059)
    try:
        bench.mount("/mnt/other", server="10.80.0.2", port=20059, mount_port=20058, options=",timeo=30")
        try:
            job = bench.guest.begin("set -e\nrandom_io /mnt/other/bonded 6 4719; drop_caches; rm /mnt/other/bonded")
            bench.server.sh("active() { sed -n 's/Currently Active Slave: //p' /proc/net/bonding/bond0; }\n"
                            "sleep 1; before=$(active); ip link set $before down\n"
                            "for i in $(seq 50); do [ \"$(active)\" != $before ] && exit 0; usleep 100000; done; cat /proc/net/bonding/bond0; exit 1")
            print("# " + bench.guest.end(job).strip())
        finally:
            bench.unmount("/mnt/other")
    finally:
        bench.stop("bonded")
        bench.server.sh("rdma link delete rxe2; ip link delete bond0")
        bench.guest.sh("rdma link delete rxe2")


@contextlib.contextmanager
def random_io_by_a_card(bench, name, pci, address, mount_port, port):
    """Runs softroce on that card of the server, with hugepages, and the other guest's kernel as its client. payload_in_place is set, which
    virtio's driver does not support. The body runs while the planes do."""
    bench.guest.sh(f"card=$(card {mac(1, 2)}); ip link set $card mtu {MTU} up; ip addr replace 10.81.0.1/24 dev $card\n"
                   "rdma link add rxe3 type rxe netdev $card")
    try:
        bench.start(name, EXPORT, driver="softroce", mount_port=mount_port, port=port,
                    device=f'ethdev = "{pci}"\nhugepages = true\npayload_in_place = true\naddresses = ["{address}/24"]\nmtu = {MTU}')
        try:
            bench.sh(f"mount -t nfs -o proto=rdma,port={port},vers=3,nolock,mountproto=tcp,mountaddr={PLAIN_HOST},mountport={mount_port} "
                     f"{address}:/export /mnt/other")
            try:
                print("# " + bench.sh(f"random_io /mnt/other/{name} 4 4720; drop_caches; rm /mnt/other/{name}").strip())
                polled, = bench.ctl("devices", name=name)["polled"]
                if polled["receives"] == 0 or polled["icrc_errors"] or polled["frames_malformed"]:
                    raise Failed(str(polled))
                said = bench.server.sh(f"grep -o 'Payload is.*' /mnt/host/{name}-data.log").strip()
                if said != "Payload is copied into packets for the ethdev: its driver does not free sent packets on request":
                    raise Failed(said)
                yield
            finally:
                bench.unmount("/mnt/other")
        finally:
            bench.stop(name)
            bench.server.sh("rm -f /dev/hugepages/*")  # DPDK leaves its pages for its next run, but another user cannot use them
    finally:
        bench.guest.sh("rdma link delete rxe3")


def softroce_takes_a_network_card_from_the_kernel(bench):
    """Uses a PCI ethdev: virtio, bound to uio_pci_generic. Its addresses are physical, and no IOMMU checks them."""
    pci = bench.server.sh(f"take_card {mac(2, 3)}").split()[-1]
    with random_io_by_a_card(bench, "pci", pci, "10.81.0.3", 20061, 20062):
        pass


def softroce_takes_a_network_card_by_vfio(bench):
    """The card is behind an IOMMU: it is given virtual addresses, and an address that DPDK has not mapped causes a fault. As in a deployment, the
    data plane is not root: its user owns the card's VFIO group and the huge pages, and cannot read physical addresses."""
    pci = bench.server.sh(f"take_card {mac(2, 4)} vfio-pci {DATA_USER}").split()[-1]
    bench.of_two_users.add("vfio")
    with random_io_by_a_card(bench, "vfio", pci, "10.81.0.4", 20063, 20064):
        # Reads the group, which has one device and is open in the data plane, and the IOVA and virtual address of DPDK's first page.
        group, devices, iova, address, *held = bench.server.sh(f"""
group=$(readlink -f /sys/bus/pci/devices/{pci}/iommu_group)
echo ${{group##*/}} $(ls $group/devices)
od -A n -t x8 -N 16 /tmp/dpdk/*vfio/fbarray_memseg-2048k-0-0
readlink /proc/$(cat /tmp/vfio-data.pid)/fd/* | grep /dev/vfio/""").split()
        print(f"# group {group}: {devices}; {address} is {iova} for the card; open: {' '.join(held)}")
        if devices != pci or set(held) != {"/dev/vfio/vfio", f"/dev/vfio/{group}"} or iova != address or int(iova, 16) == 0:
            raise Failed("not by VFIO with virtual addresses")
    faults = bench.server.sh("dmesg | grep -i 'DMAR.*fault' || true")
    if faults:
        raise Failed(faults)


def the_first_mount_of_the_quick_start_works(bench):
    """deploy/first-mount.sh, where the kernel that mounts is that of Sluice's own machine."""
    shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/first-mount.sh"), f"{bench.server.dir}/sluice")
    inventory = "ls /sys/class/net /sys/class/infiniband /dev/shm /tmp; grep /tmp/ /proc/mounts || true"
    before = bench.server.sh(inventory)
    text = bench.sluice(f"bash {SLUICE}/first-mount.sh --programs {SLUICE}")
    print("# " + "\n# ".join(text.splitlines()))
    after = bench.server.sh(inventory)
    if "3000000 bytes were read back" not in text or "proto=rdma" not in text or after != before:
        raise Failed(f"{text}\nbefore: {before}\nafter: {after}")


def a_client_that_vanishes_is_let_go_and_comes_back(bench):
    bench.mount()
    bench.sh("dd if=/dev/urandom of=/tmp/data bs=1M count=32 2> /dev/null; cp /tmp/data /mnt/nfs/data; sync")
    job = bench.guest.begin("set -e\nfio --name=read --filename=/mnt/nfs/data --size=32m --rw=read --bs=1m --iodepth=8 --direct=1 "
                            "--ioengine=libaio --time_based --runtime=8 > /tmp/fio.out\ncmp /tmp/data /mnt/nfs/data; rm /mnt/nfs/data")
    bench.sluice("sleep 1")
    errors = bench.ctl("devices")["polled"][0]["error_completions"]
    bench.lab.ip("link", "set", "roce1", "down")
    try:
        bench.lab.wait("its connection has ended", lambda: bench.ctl("devices")["polled"][0]["error_completions"] > errors)
    finally:
        bench.lab.ip("link", "set", "roce1", "up")
    bench.guest.end(job)
    bench.unmount()


@contextlib.contextmanager
def kernel_server(bench, how):
    bench.sh(how)
    try:
        yield
    finally:
        bench.sh("rpc.nfsd 0; umount /proc/fs/nfsd; killall rpc.mountd rpcbind; umount /export")


def the_requester_side_reads_and_writes_the_kernels_server(bench):
    with kernel_server(bench, "nfsd_on_rdma"):
        read_and_write_by_bench(bench)


def without_windows_it_reads_and_writes_the_kernels_server_too(bench):
    with kernel_server(bench, "nfsd_on_rdma"):
        read_and_write_by_bench(bench, "--no-memory-windows")
        for form in ("regions", "pool"):
            reverse_gateway_reads_and_writes(bench, f'memory_windows = false\nwindow_less = "{form}"')
            log = bench.server.sh("cat /mnt/host/reverse-data.log")
            if "memory windows are not used" not in log:
                raise Failed(log)
            polled, = bench.polled_at_end
            if polled["windows_bound"] or polled["call_regions_registered"] < 10 or polled["call_regions_refused"] or polled["error_completions"]:
                raise Failed(str(polled))
            print(f"# {form}: {polled['call_regions_registered']} regions", flush=True)


def read_and_write_by_bench(bench, option=""):
    for mix, block in (("read=1", 4096), ("read=1", 1048576), ("write=1,read=1,getattr=1,lookup=1", 65536)):
        text = bench.sluice(f"{SLUICE}/sluice-bench --device verbs {option} --server {ROCE_GUEST} --seconds 1 --depth 4 --json "
                            f"nfs3 --mount-host {PLAIN_GUEST} --mount-port 20048 --verify --file-mib 4 --block {block} --mix {mix}")
        report = report_of(text)
        if report["errors"] or report["mismatches"] or not report["verified_bytes"]:
            raise Failed(text)


def tcp_clients_reach_the_kernels_server_by_rdma(bench):
    with kernel_server(bench, "nfsd_on_rdma"):
        reverse_gateway_reads_and_writes(bench, "")


def reverse_gateway_reads_and_writes(bench, device):
    bench.start("reverse", f"""
[memory]
size_mib = 16
[reverse]
enabled = true
listen_port = 2050
server = "{ROCE_GUEST}"
mount_address = "{PLAIN_GUEST}"
mount_port = 20048
connections = 4
""", device=device, mount_port=20051, port=20052)
    try:
        bench.sh(f"mount -t nfs -o proto=tcp,port=2050,vers=3,nolock,mountproto=tcp,mountaddr={PLAIN_HOST},mountport=20051 "
                 f"{PLAIN_HOST}:/export /mnt/other")
        try:
            print("# " + bench.sh("random_io /mnt/other/reversed 4 4716; drop_caches; rm /mnt/other/reversed").strip())
            connection, = bench.ctl("connections", name="reverse")
            if connection["state"] != "open":
                raise Failed(str(connection))
            bench.polled_at_end = bench.ctl("devices", name="reverse")["polled"]
        finally:
            bench.unmount("/mnt/other")
    finally:
        bench.stop("reverse")


def two_devices_are_polled_by_a_reactor_each(bench):
    bench.server.sh(f"rdma link add rxe1 type rxe netdev $(card {mac(2, 1)})")
    try:
        bench.start("two", """
[memory]
size_mib = 32
[reactor]
count = 2
[[export]]
path = "/export"
clients = []
root_squash = false
""", device='devices = ["rxe0", "rxe1/1"]', mount_port=20054, port=20055)
        try:
            for device, address in (("rxe0", ROCE_HOST), ("rxe1", PLAIN_HOST)):
                text = bench.sluice(f"{SLUICE}/sluice-bench --device verbs --rdma-device {device} --server {address} --port 20055 --seconds 1 --json "
                                    "nfs3 --mount-host 127.0.0.1 --mount-port 20054 --verify --file-mib 2 --block 16384 --mix write=1,read=1")
                report = report_of(text)
                if report["errors"] or report["mismatches"] or not report["verified_bytes"]:
                    raise Failed(text)
            seen = bench.ctl("devices", name="two")
            uses = {port["device"]: port["sluice"] for port in seen["rdma_ports"]}
            if uses != {"rxe0": "polled by reactor 0", "rxe1": "polled by reactor 1"}:
                raise Failed(str(uses))
            if min(polled["work_completions"] for polled in seen["polled"]) == 0:
                raise Failed(str(seen["polled"]))
        finally:
            bench.stop("two")
    finally:
        bench.server.sh("rdma link delete rxe1")


def version_4_1_is_forwarded(bench):
    """Forwards to one upstream by the gateway's port, to another by its listen port, and to one that a reload has added at a third port."""
    with kernel_server(bench, "nfsd_on_tcp"):
        forward_to_it(bench)


def upstream_of(name, more=""):
    return f'[[upstream]]\nname = "{name}"\naddress = "{PLAIN_GUEST}"\nprograms = ["nfs4"]\n{more}\n'


def forward_to_it(bench):
    bench.start("forward", "[memory]\nsize_mib = 16\n[forward]\nupstreams_max = 3\nrecord_buffers = 32\n" +
                upstream_of("nas") + upstream_of("another", "listen_port = 20053"), mount_port=20050, port=20051)
    try:
        with open(f"{bench.server.dir}/forward.toml", "a", encoding="utf-8") as file:
            file.write(upstream_of("later", "listen_port = 20054"))
        told = bench.ctl("config", "reload", name="forward")
        if told["in_force"] != ["upstream.later"]:
            raise Failed(told)
        bench.lab.wait("the new port", lambda: "Clients may now also connect to port 20054" in bench.state())
        for port in (20051, 20053, 20054):
            bench.sh(f"mount -t nfs -o proto=rdma,port={port},vers=4.1 {ROCE_HOST}:/ /mnt/other")
            try:
                print("# " + bench.sh("random_io /mnt/other/forwarded 4 4715; drop_caches; rm /mnt/other/forwarded\n"
                                      "(cd /mnt/other; made=$(seq 1 50); mkdir $made; rmdir $made)").strip())
            finally:
                bench.unmount("/mnt/other")
        calls = {each["name"]: each["calls"] for each in bench.ctl("upstreams", name="forward")}
        if min(calls.values()) < 100:  # a CREATE and a REMOVE for each directory; the number of WRITEs depends on the client's cache
            raise Failed(f"calls: {calls}")
    finally:
        bench.stop("forward")


def gdb_shows_queue_pairs_in_a_core(bench):
    bench.start("crash", EXPORT.replace("256", "16"), mount_port=20054, port=20055)
    try:
        bench.mount("/mnt/other", port=20055, mount_port=20054)
        bench.sh("ls /mnt/other")
        shown = bench.ctl("connections", "show", 0, 0, name="crash")
        bench.sluice("kill -ABRT $(cat /tmp/crash-data.pid)\nwhile kill -0 $(cat /tmp/crash-data.pid) 2> /dev/null; do usleep 50000; done")
        bench.sh("umount -f -l /mnt/other")
    finally:
        bench.sluice("kill $(cat /tmp/crash-control.pid)")
    packed = f"{bench.server.dir}/sluice"
    printed = gdb("-iex", f"set solib-search-path {packed}/lib", f"{packed}/sluice-dataplane", f"{bench.server.dir}/core",
                  commands=["sluice connections", "sluice queue-pairs"])
    queue_pair, = table(printed, ["connection", "driver", "queue-pair"])
    wanted = {"driver": "verbs", "queue-pair": str(shown["queue_pair"]), "state": "Connected", "sends": "0"}
    # All calls are answered, so no Send is outstanding, and each credit has a Receive, with a few spare ones.
    receives_agree = shown["credits"] <= int(queue_pair["receives"]) <= 2 * shown["credits"]
    if {name: queue_pair[name] for name in wanted} != wanted or not receives_agree:
        raise Failed(f"{shown} but\n{printed}")


TESTS = [the_driver_suite_passes_on_rxe, the_card_check_passes_on_rxe, a_kernel_client_mounts_writes_and_reads,
         both_versions_work_by_ipv6_to_an_address_that_is_new, meets_every_row_of(1), meets_every_row_of(2), clients_are_judged_over_verbs(1, 14), clients_are_judged_over_verbs(2, 12),
         random_files_are_read_back,
         administrators_see_ports_and_their_limits, siw_is_refused_with_a_sentence, a_device_that_goes_and_comes_back_loses_nothing,
         the_control_plane_is_restarted_under_io, a_client_that_vanishes_is_let_go_and_comes_back,
         the_requester_side_reads_and_writes_the_kernels_server, tcp_clients_reach_the_kernels_server_by_rdma,
         without_windows_it_reads_and_writes_the_kernels_server_too,
         version_4_1_is_forwarded, two_devices_are_polled_by_a_reactor_each,
         receives_are_shared_and_packets_carry_the_traffic_class, a_vlan_is_crossed, a_bond_changes_its_link_under_io,
         gdb_shows_queue_pairs_in_a_core, softroce_takes_a_network_card_from_the_kernel, softroce_takes_a_network_card_by_vfio,
         the_first_mount_of_the_quick_start_works]


def main():
    programs, wanted = sys.argv[1:8], sys.argv[8:]
    tests = [test for test in TESTS if test.__name__ in wanted] if wanted else TESTS
    need_lab()
    bench = VerbsBench(programs)
    return run_tests(bench, tests) != 0


if __name__ == "__main__":
    sys.exit(main())
