# SPDX-License-Identifier: Apache-2.0
"""Two Linux guests for tests of the verbs driver: Sluice runs in one of them, and the other is its client or its server."""
import json
import os

from lab import MTU, PLAIN_GUEST, PLAIN_HOST, ROCE_GUEST, ROCE_HOST, Bench, Failed, Guest, build_image, mac, pack

SLUICE = "/mnt/host/sluice"
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
