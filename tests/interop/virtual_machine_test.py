#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An unmodified Linux kernel in a virtual machine, whose virtio card is Sluice's ethdev: packets go by vhost-user, with no kernel of the host
between. Speaks TAP.

virtual_machine_test.py CONTROLPLANE DATAPLANE SLUICECTL [NAME...]   (NAME: only those tests)"""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import linux_client_test  # noqa: E402
from lab import MTU, PLAIN_GUEST, PLAIN_HOST, ROCE_GUEST, ROCE_HOST, Bench, Guest, Planes, build_image, mac, need_lab, run, run_tests  # noqa: E402
from linux_client_test import MOUNT  # noqa: E402


class MachineBench(Bench):
    def __init__(self, *programs):
        self.programs = programs
        super().__init__()

    def set_up(self):
        image = build_image()
        self.lab.add_tap("plain", address=f"{PLAIN_HOST}/24")
        socket = f"{self.lab.dir}/card.sock"
        device = f'driver = "softroce"\nethdev = "net_vhost0,iface={socket},client=1"\naddresses = ["{ROCE_HOST}/24"]\nmtu = {MTU}'
        self.guest = Guest(self.lab, 1, image, [socket, "plain"])
        self.planes = Planes(self.lab, *self.programs, device=device)
        self.planes.start()
        self.set_up_links()

    def set_up_links(self):
        self.guest.sh(f"rdma_link {mac(1, 0)} {ROCE_GUEST}/24 {MTU}\nplain_link {mac(1, 1)} {PLAIN_GUEST}/24\nping -c 3 -W 5 {ROCE_HOST}")

    def devices(self):
        shown = json.loads(run(*self.lab.netns(self.planes.ctl_path, "--socket", self.planes.socket, "--json", "devices")))
        return shown["polled"][0]

    def packets_of(self, interface="roce"):
        return self.devices()["packets_received"]


def a_tree_and_one_mebibyte_are_read_back(b):
    b.sh(MOUNT)
    linux_client_test.tree_is_read_back(b)
    linux_client_test.one_mebibyte_io(b)
    b.sh("umount /mnt/nfs")
    assert b.devices()["icrc_errors"] == 0, b.devices()


def the_data_plane_dies_and_comes_back_under_a_running_machine(b):
    """QEMU owns the socket and Sluice connects to it, so the machine's card loses its link until the data plane is back."""
    b.sh(MOUNT + "\nhead -c 4M /dev/urandom > /tmp/before")
    b.lab.kill(b.planes.data)
    b.planes.start_data()
    b.lab.wait("both planes are up", b.planes.up)
    b.sh("rdma link; umount -f /mnt/nfs; ping -c 3 -W 5 " + ROCE_HOST + "\n" + MOUNT + """
cp /tmp/before /mnt/nfs/after
drop_caches
cmp /tmp/before /mnt/nfs/after
rm /mnt/nfs/after
umount /mnt/nfs""")


def a_machine_that_loses_power_starts_anew_and_finds_its_files(b):
    """The machine's queue pairs existed until the power loss. The data plane sees the link go down, polls rings that no longer exist, and accepts
    the new machine."""
    b.sh(MOUNT + "\nhead -c 1M /dev/zero > /mnt/nfs/kept")
    down = b.devices()["port_down"]
    b.guest.begin("while :; do dd if=/dev/zero of=/mnt/nfs/written bs=1M count=64 conv=notrunc; done")
    b.sends("roce", 2000)
    b.guest.power_cycle()
    b.lab.wait("the link to go", lambda: b.devices()["port_down"] > down)
    b.set_up_links()
    b.sh(MOUNT + """
test "$(stat -c %s /mnt/nfs/kept)" = 1048576
rm /mnt/nfs/kept /mnt/nfs/written
umount /mnt/nfs""")
    shown = b.devices()
    assert shown["port_up"] >= shown["port_down"] > down, shown


TESTS = [a_tree_and_one_mebibyte_are_read_back, the_data_plane_dies_and_comes_back_under_a_running_machine,
         a_machine_that_loses_power_starts_anew_and_finds_its_files]


def main():
    programs, names = sys.argv[1:4], sys.argv[4:]
    need_lab()
    tests = [test for test in TESTS if not names or test.__name__ in names]
    return 1 if run_tests(MachineBench(*programs), tests) else 0


if __name__ == "__main__":
    sys.exit(main())
