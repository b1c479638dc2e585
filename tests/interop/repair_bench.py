#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a Linux client waits while softroce repairs what its link has lost. The client has mounted nfs-ganesha with NFS 4.1 through the
gateway.

repair_bench.py CONTROLPLANE DATAPLANE SLUICECTL [FIGURE...]     one line of JSON for each figure

loss_silence_s    longest time without an answered call while the guest's card loses 1 % of the packets in both directions, and four
                  processes make small calls without a pause
link_recovery_s   time from the deletion of the gateway's interface, which is created again at once, until the client's I/O continues

SLUICE_LOSS_SECONDS   duration of the loss, by default 300
SLUICE_INTEROP_KEEP   folder for the logs and captures, to look into a silence"""
import json
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gateway_bench import GatewayBench, mount_command  # noqa: E402
from lab import MTU, Planes, mac  # noqa: E402

LOSS_PERCENT = 1
SAMPLE_S = 0.1
PROCESSES = 4
GATEWAY_MAC = "02:00:00:00:77:01"
# Each process calls GETATTR, ACCESS, LOOKUP and SETATTR in turn. A call that registers memory would measure the guest instead: after the loss
# of a packet, rxe of Linux 6.1 executes later REG_MR work requests again, which fails ("rxe_reg_fast_mr: ... not free"), and its queue pair
# sends nothing from then on and drops all acknowledgements (rxe_req.c: `err`, rxe_recv.c: check_type_state), whatever the server does.
LOAD = f"""
worker() {{
  until stop_requested; do
    stat /mnt/nfs/loss$1 /mnt/nfs/loss$1/file > /dev/null; chmod 0600 /mnt/nfs/loss$1/file; test -w /mnt/nfs/loss$1/file
  done
}}
for n in $(seq {PROCESSES}); do mkdir -p /mnt/nfs/loss$n; echo $n > /mnt/nfs/loss$n/file; done
lossy $(card {mac(1, 0)}) {LOSS_PERCENT}
jobs=
for n in $(seq {PROCESSES}); do worker $n & jobs="$jobs $!"; done
status=0
for job in $jobs; do wait $job || status=1; done
lossless $(card {mac(1, 0)})
echo "registrations of rxe that failed: $(dmesg | grep -c 'not free' || true)"
test $status = 0
"""


class RepairBench(GatewayBench):
    """The gateway's softroce has one end of a veth pair, whose other end is on a bridge with the guest's tap."""

    def set_up(self):
        self.lab.ip("link", "add", "switch", "type", "bridge")
        self.lab.ip("link", "set", "switch", "mtu", str(MTU + 100), "up")
        self.create_interface()
        super().set_up()
        self.lab.ip("link", "set", "roce", "master", "switch")

    def create_interface(self):
        size = ("mtu", str(MTU + 100))
        self.lab.ip("link", "add", "gateway", "address", GATEWAY_MAC, *size, "type", "veth", "peer", "name", "gateway-port", *size)
        self.lab.ip("link", "set", "gateway-port", "master", "switch", "up")
        self.lab.ip("link", "set", "gateway", "up")

    def connect_guest(self, image):
        self.lab.ip("link", "set", "roce", "master", "switch")
        super().connect_guest(image)

    def serve(self, upstream):
        self.planes = Planes(self.lab, *self.programs, upstream, interface="gateway")
        self.planes.start()

    def served(self):
        """Returns the number of calls that each connection has been answered."""
        return {(c["reactor"], c["connection"]): c["calls"] for c in self.connections()}

    def closed_by_peer(self):
        with open(self.planes.log, encoding="utf-8", errors="replace") as log:
            return log.read().count("reason=peer_closed")


def say(figure, value, goal, **more):
    print(json.dumps({"figure": figure, "unit": "s", "value": round(value, 2), "goal": goal, "better": "lower", **more}), flush=True)


def loss_silence_s(bench):
    seconds = float(os.environ.get("SLUICE_LOSS_SECONDS") or 300)
    with bench.while_it_runs(LOAD):
        bench.lab.wait("the first calls", lambda: sum(bench.served().values()) > 100)
        longest, calls = 0.0, 0
        before, started = bench.served(), time.monotonic()
        since = started
        while time.monotonic() < started + seconds:
            time.sleep(SAMPLE_S)
            after, now = bench.served(), time.monotonic()
            answered = sum(max(0, count - before.get(key, 0)) for key, count in after.items())
            longest = max(longest, now - since)
            if answered:
                if now - since > 1:
                    print(f"# {since - started:.1f} s: no answer for {now - since:.1f} s", flush=True)
                calls, since = calls + answered, now
            before = after
    say("loss_silence_s", longest, 5, seconds=seconds, calls=calls, peer_closed=bench.closed_by_peer())


def link_recovery_s(bench):
    with bench.under_random_io("/mnt/nfs/link", 4714):
        started = time.monotonic()
        bench.lab.ip("link", "del", "gateway")
        bench.create_interface()
        before = bench.served()
        bench.lab.wait("the interface to be opened again",
                       lambda: bench.asked("devices")["polled"][0]["port_reopened"] > 0)
        bench.lab.wait("I/O to continue", lambda: any(calls > before.get(key, 0) + 10 for key, calls in bench.served().items()))
        say("link_recovery_s", time.monotonic() - started, 20, peer_closed=bench.closed_by_peer())


FIGURES = {"loss_silence_s": loss_silence_s, "link_recovery_s": link_recovery_s}


def main():
    wanted = sys.argv[4:] or list(FIGURES)
    kept = os.environ.get("SLUICE_INTEROP_KEEP")
    bench = RepairBench(*sys.argv[1:4], None)
    try:
        bench.sh(mount_command("4.1", more=",noac,lookupcache=none"))
        if kept:
            os.makedirs(kept, exist_ok=True)
            bench.lab.start(*bench.ctl("capture", f"{kept}/device.pcapng", "--seconds", "0", "--snap", "200")[4:], log=f"{kept}/capture.log")
        for figure in wanted:
            FIGURES[figure](bench)
    finally:
        if kept:
            shutil.copy(bench.planes.log, f"{kept}/planes.log")
        bench.close()


if __name__ == "__main__":
    main()
