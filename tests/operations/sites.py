# SPDX-License-Identifier: Apache-2.0
"""Several Sluices in a separate network. To be imported by a program with the paths of both planes, sluicectl and sluice-bench as its arguments."""
import contextlib
import os
import subprocess
import sys
import threading

from planes import PATIENCE_S, common, free_port, need
from wire import ethdev, ip

CONTROL, DATA, CTL, BENCH = sys.argv[1:5]
IN_NAMESPACE = "SLUICE_SITES_IN_NAMESPACE"
SERVER = "192.0.2.1"  # address on the wire


class Site(common.Planes):
    def __init__(self, name, more):
        super().__init__(f"site-{name}", CONTROL, DATA, CTL, BENCH)
        self.fabric = f"/dev/shm/{self.name}-loopback"
        self.leftovers.append(self.fabric)
        self.metrics = f"127.0.0.1:{free_port()}"
        self.more = more
        self.change()

    def change(self, old="", new=""):
        text = (f'segment = "{self.name}"\n[reactor]\nidle = "backoff"\n[admin]\nsocket = "{self.socket}"\n[metrics]\n'
                f'address = "{self.metrics}"\n[mount]\nport = 0\nrpcbind = false\n' + self.more.replace("FABRIC", self.fabric).replace("FOLDER", self.dir))
        assert old in text, old
        self.write_config(text.replace(old, new))

    def key(self, name):
        path = f"{self.dir}/{name}"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            file.write(f"the {name} of this test")
        return path

    def reload(self, old="", new=""):
        self.change(old, new)
        assert self.ctl("config", "reload")

    def up(self):
        self.wait("both planes up", lambda: (s := self.ctl("status")) and s["data_plane"]["alive"])

    def bench(self, *words):
        return subprocess.Popen([BENCH, "--fabric", self.fabric, "--json", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def load(self, *words, seconds=PATIENCE_S):
        return self.bench("--seconds", str(seconds), *words)

    def probe(self, *words):
        """Makes one call, and ignores whether it is served."""
        self.bench(*words, "probe").communicate()


def enter_own_network():
    need("prometheus", "unshare", "ip", root_for="a network namespace of its own")
    if IN_NAMESPACE not in os.environ:
        os.environ[IN_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    ip("link", "set", "lo", "up")


def over_wire(*words, address="192.0.2.2", seconds=PATIENCE_S):
    """Starts a load from the wire's client."""
    return subprocess.Popen([BENCH, "--device", "softroce", "--ethdev", ethdev("client"), "--address", f"{address}/24", "--server", SERVER,
                             "--json", "--seconds", str(seconds), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def again_and_again(done):
    """Calls `done` every 50 ms while the body runs."""
    ended = threading.Event()

    def run():
        while not ended.is_set():
            done()
            ended.wait(0.05)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
