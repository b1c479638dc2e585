# SPDX-License-Identifier: Apache-2.0
"""Tests of the gateways over the verbs driver: the kernel's server in the other guest is their server."""
import contextlib

from lab import PLAIN_GUEST, PLAIN_HOST, ROCE_GUEST, ROCE_HOST, Failed
from verbs_lab import SLUICE, report_of


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
