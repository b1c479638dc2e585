#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verbs driver on a real kernel's RDMA: Sluice runs in one Linux guest, on its rxe, and another Linux guest is its
client, or its server. Also tests softroce in the guest, on a network card that DPDK drives.

verbs_test.py CONTROLPLANE DATAPLANE SLUICECTL BENCH DRIVER_TEST CONFORMANCE CARD_CHECK [TEST...]      results in TAP"""
import glob
import json
import os
import shutil
import subprocess
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
from gdb_script import gdb, table  # noqa: E402
from lab import NO_MIRROR, ROCE_GUEST, ROCE_HOST, Failed, Skipped, mac, need_lab, run_tests  # noqa: E402
from verbs_devices import (a_bond_changes_its_link_under_io, a_device_that_goes_and_comes_back_loses_nothing, a_vlan_is_crossed,  # noqa: E402
                           receives_are_shared_and_packets_carry_the_traffic_class, softroce_takes_a_network_card_by_vfio,
                           softroce_takes_a_network_card_from_the_kernel, the_control_plane_is_restarted_under_io, two_devices_are_polled_by_a_reactor_each)
from verbs_gateways import (tcp_clients_reach_the_kernels_server_by_rdma, the_requester_side_reads_and_writes_the_kernels_server,  # noqa: E402
                            version_4_1_is_forwarded, without_windows_it_reads_and_writes_the_kernels_server_too)
from verbs_lab import EXPORT, SLUICE, VerbsBench, report_of  # noqa: E402

# rxe of rdma-core 44 does not support scatter/gather lists in the extended interface.
LISTS = ("gather_lists_and_unsignaled_requests", "writes_are_placed_before_a_later_send_is_received",
         "V2_045_reads_bring_the_memory_and_more_than_the_depth_wait")


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
