# SPDX-License-Identifier: Apache-2.0
"""Tests of the image that deploy/build-image.sh makes of a package: planes in containers serve a client, over loopback and over an interface."""
import json
import subprocess
import time

from containers import Podman
from planes import PATIENCE_S, Skipped, missing

PLANES = ("controlplane", "dataplane")
SHARED = ("--volume", "segment:/run/sluice/segment")
ON_INTERFACE = """
segment = "/run/sluice/segment/sluice"
[device]
driver = "softroce"
ethdev = "net_af_packet0,iface=lo,framesz=8192,blocksz=65536,framecnt=512,qdisc_bypass=1"
addresses = ["192.0.2.1/24"]
[[export]]
path = "/export"
clients = []
"""


def make(deploy, package, folder):
    if sentence := missing("mmdebstrap", "umoci", "dpkg-scanpackages"):
        raise Skipped(sentence)
    done = subprocess.run(["bash", f"{deploy}/build-image.sh", package, folder], capture_output=True, text=True, check=False)
    if "apt-get update" in done.stderr:
        raise Skipped("No mirror of Debian answers.")
    assert done.returncode == 0, done.stderr[-2000:]
    with open(f"{folder}/index.json", encoding="utf-8") as file:
        tags = {entry["annotations"]["org.opencontainers.image.ref.name"] for entry in json.load(file)["manifests"]}
    assert tags == set(PLANES), tags


class Pair:
    """Both planes, each in a container, with a shared folder of the segment."""

    def __init__(self, podman, images, name, control=(), data=()):
        self.podman = podman
        self.names = [f"{name}-{plane}" for plane in PLANES]
        podman.done("volume", "create", "--opt", "type=tmpfs", "--opt", "device=tmpfs", "segment")
        for plane, container, options in zip(PLANES, self.names, (control, data)):
            podman.start(container, images[plane], *SHARED, *options)

    def status(self):
        shown = self.podman.call("exec", self.names[0], "sluicectl", "--json", "status")
        return json.loads(shown.stdout) if shown.returncode == 0 else None

    def wait(self):
        deadline = time.monotonic() + PATIENCE_S
        while not (status := self.status()) or not status["data_plane"]["alive"]:
            assert time.monotonic() < deadline, [self.podman.log(name) for name in self.names]
            time.sleep(0.2)
        return status

    def stop(self):
        self.podman.done("stop", "--time", "20", *self.names)
        self.podman.done("rm", *self.names)
        self.podman.done("volume", "rm", "segment")


def run(folder, version):
    if sentence := missing("podman", "nsenter", "unshare"):
        raise Skipped(sentence)
    podman = Podman(f"{folder}/podman")
    try:
        images = {plane: podman.done("pull", "--quiet", f"oci:{folder}/image:{plane}").strip() for plane in PLANES}
        pair = Pair(podman, images, "loopback", data=("--shm-size", "256m"))
        assert pair.wait()["version"] == version
        podman.done("exec", pair.names[1], "sluice-bench", "probe")
        podman.done("exec", pair.names[0], "sluicectl", "exports", "add", "/saved", "--save")
        pair.stop()
        with open(f"{folder}/interface.toml", "w", encoding="utf-8") as file:
            file.write(ON_INTERFACE)
        pair = Pair(podman, images, "interface", ("--volume", f"{folder}/interface.toml:/etc/sluice/sluice.toml:ro"),
                    ("--cap-add", "NET_RAW", "--cap-add", "NET_ADMIN"))
        assert pair.wait()["services"] == [{"netid": "rdma", "address": "192.0.2.1.78.81"}]
        pair.stop()
    finally:
        podman.stop()
