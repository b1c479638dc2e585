# SPDX-License-Identifier: Apache-2.0
"""Both planes as processes on memif, with a client beside them, and a small TAP runner."""
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback

PATIENCE_S = 60


class Planes:
    def __init__(self, control, data, ctl, bench, extra=""):
        self.programs = {"control": control, "data": data, "ctl": ctl, "bench": bench}
        self.dir = tempfile.mkdtemp(prefix="sluice-operations-")
        self.name = f"sluice-operations-{os.getpid()}"
        self.socket = f"{self.dir}/admin.sock"
        self.config = f"{self.dir}/sluice.toml"
        self.metrics = f"127.0.0.1:{20000 + os.getpid() % 20000}"
        self.extra = extra
        self.write_config()
        self.log = open(f"{self.dir}/log", "a+", encoding="utf-8")
        self.control = self.data = None

    def ethdev(self, role):
        return f"net_memif0,role={role},id=0,socket={self.dir}/memif.sock,socket-abstract=no,bsize=8192,rsize=10"

    def write_config(self, replace=None, extra=None):
        text = f"""segment = "{self.name}"
log_level = "info"
[reactor]
idle = "backoff"
[transport]
credits = 64
[device]
driver = "softroce"
ethdev = "{self.ethdev('server')}"
addresses = ["192.0.2.1/24"]
[admin]
socket = "{self.socket}"
[metrics]
address = "{self.metrics}"
[mount]
port = 0
rpcbind = false
[[export]]
path = "/export"
root_squash = false
quota_mib = 512
{self.extra if extra is None else extra}"""
        for old, new in (replace or {}).items():
            assert old in text, old
            text = text.replace(old, new)
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(text)

    def start(self):
        self.start_control()
        self.start_data()
        self.wait("both planes", lambda: (s := self.ctl("status")) and s["data_plane"]["alive"] and self.ctl("exports"))

    def start_control(self):
        self.control = subprocess.Popen([self.programs["control"], "--config", self.config], stdout=self.log, stderr=self.log)

    def start_data(self):
        self.data = subprocess.Popen([self.programs["data"], "--segment", self.name], stdout=self.log, stderr=self.log)

    def run_ctl(self, *words):
        return subprocess.run([self.programs["ctl"], "--socket", self.socket, *words], capture_output=True, text=True)

    def ctl(self, *words):
        """The answer as JSON, or None when there is none."""
        done = self.run_ctl("--json", *words)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def mount_port(self):
        ports = [line.split("MOUNT on port ")[1].split()[0].rstrip(",") for line in self.text_of_log().splitlines() if "MOUNT on port" in line]
        return ports[-1]

    def text_of_log(self):
        with open(f"{self.dir}/log", encoding="utf-8") as file:
            return file.read()

    def load(self, *words):
        return subprocess.Popen([self.programs["bench"], "--device", "softroce", "--ethdev", self.ethdev("client"), "--address",
                                 "192.0.2.2/24", "--server", "192.0.2.1", "--json", *words], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def nfs_load(self, seconds, *words):
        return self.load("--seconds", str(seconds), *words, "nfs3", "--mount-port", self.mount_port(), "--file-mib", "16", "--block",
                         "65536", "--mix", "read=3,write=1,getattr=6")

    def wait(self, what, condition):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"waited in vain: {what}")

    def stop(self):
        for process in (self.control, self.data):
            if process and process.poll() is None:
                process.terminate()
                process.wait()
        for path in (f"/dev/shm/{self.name}", f"{self.dir}/memif.sock"):
            if os.path.exists(path):
                os.unlink(path)


def finish(process):
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, f"exit {process.returncode}: {out} {err}"
    return json.loads(out)


def run_tap(tests):
    """Runs (name, function) pairs; exits as TAP wants it."""
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} {name}", flush=True)
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            print(f"not ok {number} {name}", flush=True)
            text = "".join(traceback.format_exception(error))[-3000:]
            print("".join(f"# {line}\n" for line in text.splitlines()), end="", flush=True)
    return 1 if failed else 0
