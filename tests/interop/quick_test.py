#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One end-to-end test of each kind, with one boot of a Linux guest: the memory export over RDMA, the gateway, the reverse gateway, death of
the control plane under load, Prometheus. The other programs of this folder test each in detail. Speaks TAP.

quick_test.py CONTROLPLANE DATAPLANE SLUICECTL DEPLOY [NAME...]   (NAME: only those tests)"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "operations")]
import gateway_bench  # noqa: E402
import gateway_test  # noqa: E402
import linux_client_test  # noqa: E402
import reverse_test  # noqa: E402
from lab import EXPORT, MTU, ROCE_GUEST, Failed, Planes, mac, need_lab, run_tests  # noqa: E402
from linux_client_test import MOUNT  # noqa: E402
from planes_of_tests import Skipped, missing  # noqa: E402
from prometheus_server import Prometheus  # noqa: E402

METRICS, PROMETHEUS = "127.0.0.1:9464", "127.0.0.1:9090"  # in the lab's namespace


class QuickBench(reverse_test.ReverseBench):
    """`front` serves files in memory and forwards version 4 to nfs-ganesha; tests of the reverse gateway start two more Sluices."""
    links = ("roce", "plain")

    def __init__(self, deploy, *programs):
        self.deploy = deploy
        self.front = None
        super().__init__(*programs)

    def set_up(self):
        self.lab.add_tap("roce")
        super().set_up()
        upstream = gateway_bench.UPSTREAM.format(address="127.0.0.1", nfs=gateway_bench.NFS_PORT, mount=0).replace('"nfs3", ', "")
        self.front = Planes(self.lab, *self.programs, EXPORT + upstream, name="front", metrics=METRICS)
        self.front.start()
        self.planes = self.front
        self.guest.sh(f"rdma_link {mac(1, 0)} {ROCE_GUEST}/24 {MTU}")

    def stop(self):
        super().stop()
        self.planes = self.front

    def close(self):
        if self.front:
            self.front.close()
        super().close()


def linux_reads_back_a_tree_and_one_mebibyte_over_rdma(b):
    b.sh(MOUNT)
    linux_client_test.tree_is_read_back(b)
    linux_client_test.one_mebibyte_io(b)
    b.sh("umount /mnt/nfs")


def the_gateway_forwards_version_4_2(b):
    gateway_test.tree("4.2")(b)


def tcp_in_rdma_between_tcp_out(b):
    reverse_test.kernel(2, "4.2")(b)
    b.stop()


def the_control_plane_is_killed_under_random_io(b):
    b.sh(MOUNT)
    linux_client_test.control_plane_killed(b)
    b.sh("umount /mnt/nfs")


def prometheus_counts_what_linux_has_done(b):
    if lacks := missing("prometheus"):
        raise Skipped(lacks)
    with b.lab.inside():
        server = Prometheus(b.lab.start, f"{b.lab.dir}/prometheus", b.deploy, METRICS, PROMETHEUS)
        server.scrapes(0)
        calls = {what: f'sum(sluice_rpc_calls_total{{procedure="{what}", program="nfs", version="3", status="success"}})' for what in ("read", "write", "getattr")}
        before = {what: server.number(calls[what]) for what in calls}
        b.sh(MOUNT)
        with b.under_random_io("/mnt/nfs/scraped", 4714):
            server.scrapes(3)
            if not server.number('sum(rate(sluice_rpc_calls_total{procedure="write"}[10s]))'):
                raise Failed("Prometheus shows no WRITE")
        # The kernel's statistics of the mount hold operations, then transmissions.
        done = {}
        for line in b.sh("grep -E '^\\s+(READ|WRITE|GETATTR): ' /proc/self/mountstats; umount /mnt/nfs").splitlines():
            name, numbers = line.split(":")
            done[name.strip().lower()] = int(numbers.split()[0])
        if min(done["read"], done["write"]) < 20:
            raise Failed(f"too little load: {done}")
        server.scrapes(1)
        counted = {what: server.number(calls[what]) - before[what] for what in done}
    print(f"# {done}")
    if counted != done:
        raise Failed(f"Linux has done {done}, Prometheus has {counted}")


TESTS = [linux_reads_back_a_tree_and_one_mebibyte_over_rdma, the_gateway_forwards_version_4_2, tcp_in_rdma_between_tcp_out,
         the_control_plane_is_killed_under_random_io, prometheus_counts_what_linux_has_done]


def main():
    *programs, deploy = sys.argv[1:5]
    tests = [test for test in TESTS if not sys.argv[5:] or test.__name__ in sys.argv[5:]]
    need_lab("ganesha.nfsd")
    bench = QuickBench(deploy, *programs)
    return 1 if run_tests(bench, tests) else 0


if __name__ == "__main__":
    sys.exit(main())
