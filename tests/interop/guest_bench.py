#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sluice compared with the kernel's NFS server over the same virtual link: two guests, a client and a server. The server is
first knfsd over rxe and then Sluice's data plane, with DPDK on virtio or the verbs driver on rxe, in the same guest with the same
processors.

guest_bench.py CONTROLPLANE DATAPLANE SLUICECTL [FIGURE...]     one line of JSON for each figure"""
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lab import MTU, PLAIN_GUEST, PLAIN_HOST, ROCE_GUEST, ROCE_HOST, Guest, Lab, build_image, mac, pack  # noqa: E402

RUNS = 5
SECONDS = 4
FILE_MIB = 64
READ4K = ("--rw=randread --bs=4k --iodepth=16", "iops", "ops/s")
READ1M = ("--rw=read --bs=1m --iodepth=4", "bw_bytes", "MB/s")
# The fio job, the driver that is compared with knfsd, and the factor by which the server's processor time has to be lower. The client's one
# processor limits the reads with any server, so reads per second are printed but have no goal. For the same reason idle polls of a reactor do
# not count, just as the time does not in which knfsd's threads sleep. The processor time including idle polls is printed too.
FIGURES = {"guest_vs_knfsd_read4k": (READ4K, "softroce", 3), "guest_vs_knfsd_read1m": (READ1M, "softroce", 3),
           "verbs_vs_knfsd_read4k": (READ4K, "verbs", 2), "verbs_vs_knfsd_read1m": (READ1M, "verbs", 1.5)}
SOFTROCE = f"""driver = "softroce"
ethdev = "%s"
hugepages = true
addresses = ["{ROCE_HOST}/24"]
mtu = {MTU}"""


def sluice_in_guest(server, where, kind):
    """Starts Sluice in the server guest. softroce drives the card by DPDK, after it was unbound from the kernel."""
    if kind == "softroce":
        device, link = SOFTROCE % server.sh(f"take_card {mac(2, 0)}").split()[-1], ""
    else:
        device, link = 'driver = "verbs"', f"rdma_link {mac(2, 0)} {ROCE_HOST}/24 {MTU}"
    with open(f"{server.dir}/sluice.toml", "w", encoding="utf-8") as file:
        file.write(f"""
[device]
{device}
[memory]
size_mib = 256
[[export]]
path = "/export"
clients = []
root_squash = false
[admin]
socket = "/tmp/admin.sock"
[metrics]
address = ""
[mount]
port = 20048
rpcbind = false
""")
    server.sh(f"""
plain_link {mac(2, 1)} {PLAIN_HOST}/24
{link}
ln -sfn /run /var/run
mkdir -p {os.path.dirname(where)}; ln -s /mnt/host/sluice/pmds {where}
export LD_LIBRARY_PATH=/mnt/host/sluice/lib
/mnt/host/sluice/sluice-controlplane --config /mnt/host/sluice.toml > /mnt/host/control.log 2>&1 &
/mnt/host/sluice/sluice-dataplane > /mnt/host/data.log 2>&1 &
for i in $(seq 300); do /mnt/host/sluice/sluicectl --socket /tmp/admin.sock exports 2> /dev/null | grep -q /export && exit 0; usleep 100000; done
cat /mnt/host/control.log /mnt/host/data.log; exit 1""")


def knfsd_in_guest(server):
    server.sh(f"plain_link {mac(2, 1)} {PLAIN_HOST}/24\nrdma_link {mac(2, 0)} {ROCE_HOST}/24 {MTU}\nnfsd_on_rdma")


def processor_seconds(guest):
    """Returns the (busy, total) time of all processors of the guest since it started, in seconds."""
    user, nice, system, idle, wait, *interrupts = map(int, guest.sh("head -1 /proc/stat").split()[1:8])
    busy = user + nice + system + sum(interrupts)
    return busy / 100, (busy + idle + wait) / 100


def polls_seconds(guest):
    """Returns the processor time of the only reactor in idle polls, in seconds; zero for knfsd."""
    text = guest.sh("pid=$(pidof sluice-dataplane) || exit 0\n"
                    "for task in /proc/$pid/task/*; do cut -d ' ' -f 14,15 $task/stat; done\n"  # user and system time
                    "LD_LIBRARY_PATH=/mnt/host/sluice/lib /mnt/host/sluice/sluicectl --socket /tmp/admin.sock --json reactors | tr -d '\\n'")
    if not text:
        return 0
    *tasks, told = text.strip().splitlines()
    used = max(sum(map(int, task.split())) for task in tasks) / 100  # the reactor's thread, because no other uses as much
    reactor, = json.loads(told)
    return used - reactor["busy_ns"] / 1e9


def processors_used(guest):
    """Returns processor time (for calls, including idle polls) in seconds."""
    busy, _ = processor_seconds(guest)
    return busy - polls_seconds(guest), busy


def measure(client, server, mount_options, jobs):
    client.sh(f"mount -t nfs -o proto=rdma,port=20049,vers=3,nolock,{mount_options} {ROCE_HOST}:/export /mnt/nfs\n"
              f"dd if=/dev/urandom of=/mnt/nfs/data bs=1M count={FILE_MIB} 2> /dev/null", 300)
    results = {}
    for job in jobs:
        options, field, _ = job
        values, calls, before, client_before = [], 0, processors_used(server), processor_seconds(client)
        for _ in range(RUNS):
            text = client.sh(f"fio --name=job --filename=/mnt/nfs/data --size={FILE_MIB}m {options} --direct=1 --ioengine=libaio "
                             f"--time_based --runtime={SECONDS} --output-format=json", 120)
            read = json.loads(text[text.index("{"):])["jobs"][0]["read"]
            values.append(read[field])
            calls += read["total_ios"]
        used, whole = (1e6 * (after - earlier) / calls for after, earlier in zip(processors_used(server), before))
        busy, elapsed = (after - earlier for after, earlier in zip(processor_seconds(client), client_before))
        results[job] = statistics.median(values), used, whole, busy / elapsed
    client.sh("umount /mnt/nfs")
    return results


def main():
    programs, wanted = sys.argv[1:4], sys.argv[4:] or list(FIGURES)
    jobs_of = {"knfsd": {FIGURES[figure][0] for figure in wanted}}
    for figure in wanted:
        jobs_of.setdefault(FIGURES[figure][1], set()).add(FIGURES[figure][0])
    image = build_image()
    results = {}
    for kind, jobs in jobs_of.items():
        lab = Lab()
        try:
            for bridge in ("roce", "plain"):
                lab.ip("link", "add", bridge, "type", "bridge")
                lab.ip("link", "set", bridge, "mtu", str(MTU + 100), "up")
            for number in (1, 2):
                for bridge in ("roce", "plain"):
                    lab.add_tap(f"{bridge}{number}", bridge=bridge)
            server = Guest(lab, 2, image, ["roce2", "plain2"], cpus=2, memory_mib=1536)
            if kind == "knfsd":
                knfsd_in_guest(server)
            else:
                where = pack(f"{server.dir}/sluice", programs, ["net_virtio", "bus_pci", "bus_vdev", "mempool_ring"])
                sluice_in_guest(server, where, kind)
            client = Guest(lab, 1, image, ["roce1", "plain1"])
            client.sh(f"rdma_link {mac(1, 0)} {ROCE_GUEST}/24 {MTU}\nplain_link {mac(1, 1)} {PLAIN_GUEST}/24\nsleep 1")
            options = f"mountproto=tcp,mountaddr={PLAIN_HOST}" + ",mountport=20048"
            results[kind] = measure(client, server, options, sorted(jobs))
        finally:
            lab.close()
    for figure in wanted:
        job, kind, goal = FIGURES[figure]
        scale = 1e6 if job[1] == "bw_bytes" else 1
        (value, used, whole, busy), (baseline, baseline_used, _, baseline_busy) = results[kind][job], results["knfsd"][job]
        print(json.dumps({"figure": figure, "unit": "us of the server's processors per call", "value": round(used), "baseline": round(baseline_used),
                          "ratio": round(baseline_used / used, 2), "goal": goal,
                          "with_empty_polls": {"value": round(whole), "ratio": round(baseline_used / whole, 2)},
                          "throughput": {"unit": job[2], "value": round(value / scale, 1), "baseline": round(baseline / scale, 1),
                                         "ratio": round(value / baseline, 2)},
                          "client_busy": round(busy, 2), "baseline_client_busy": round(baseline_busy, 2)}), flush=True)


if __name__ == "__main__":
    main()
