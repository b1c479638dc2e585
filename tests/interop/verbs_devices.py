# SPDX-License-Identifier: Apache-2.0
"""Tests of the verbs driver and of softroce in the guest: devices and links that change, and network cards."""
import contextlib
import subprocess

from lab import MTU, PLAIN_HOST, ROCE_HOST, Failed, mac
from verbs_lab import DATA_USER, EXPORT, SLUICE, report_of


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
