# SPDX-License-Identifier: Apache-2.0
"""Functions that tests and benchmarks share, and both planes as processes."""
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback

PATIENCE_S = 120


class Failed(AssertionError):
    """A failure with details that the traceback does not show."""


class Skipped(Exception):
    """The reason why one test cannot run on this machine, as a sentence."""


def run_test(number, name, test, explain=lambda: ""):
    """Calls a test and prints its line of TAP, with what explain() returns if it failed. Returns whether it passed or was skipped."""
    started = time.monotonic()
    try:
        test()
    except Skipped as lacks:
        print(f"ok {number} {name} # SKIP {lacks}", flush=True)
    except Exception as error:  # a failed test must not hide the others
        print(f"not ok {number} {name}", flush=True)
        text = str(error) if isinstance(error, Failed) else traceback.format_exc()[-3000:]
        print("".join(f"# {line}\n" for line in f"{text}\n{explain()}".splitlines()), end="", flush=True)
        return False
    else:
        print(f"ok {number} {name} # {time.monotonic() - started:.1f} s", flush=True)
    return True


def run_tap(tests):
    """Runs (name, function) pairs as a TAP program, and returns the exit status."""
    print(f"1..{len(tests)}", flush=True)
    passed = [run_test(number, name, test) for number, (name, test) in enumerate(tests, 1)]
    return 0 if all(passed) else 1


def skip_all(sentence):
    """Ends a TAP program that cannot run here."""
    print(f"1..0 # SKIP {sentence}", flush=True)
    sys.exit(0)


def missing(*programs):
    """Returns a sentence that names those of the programs that are not installed, or None."""
    absent = [program for program in programs if shutil.which(program) is None]
    if not absent:
        return None
    return f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed: run deploy/install-packages.sh tests."


def need(*programs, root_for=None):
    """Skips the whole program if a required program is not installed, or if it requires root for `root_for` and is not root."""
    if root_for and os.geteuid() != 0:
        skip_all(f"Only root may have {root_for}: run the tests as root.")
    if sentence := missing(*programs):
        skip_all(sentence)


# Below the range from which Linux takes the ports of outgoing connections (net.ipv4.ip_local_port_range): such a connection
# from any address keeps a server from its port.
PORTS_OF_TESTS = range(21000, 32768)
ports_held = []


def free_port():
    """Returns a port that no socket of this host uses and that no other test gets as long as this process runs."""
    for port in random.sample(PORTS_OF_TESTS, len(PORTS_OF_TESTS)):
        hold = socket.socket(socket.AF_UNIX)
        try:
            hold.bind(f"\0sluice-tests-port-{port}")
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with socket.socket(socket.AF_INET, kind) as probe:
                    probe.bind(("0.0.0.0", port))
        except OSError:
            hold.close()
            continue
        ports_held.append(hold)
        return port
    raise Failed(f"No port of {PORTS_OF_TESTS} is free.")


def memif_ethdev(folder, role):
    return f"net_memif0,role={role},id=0,socket={folder}/memif.sock,socket-abstract=no,bsize=8192,rsize=10"


class Planes:
    """The processes of one segment, which is named after their working folder. Call write_config() first."""

    def __init__(self, purpose, control, data, ctl, bench):
        self.programs = {"control": control, "data": data, "ctl": ctl, "bench": bench}
        self.dir = tempfile.mkdtemp(prefix=f"sluice-{purpose}-")
        self.name = os.path.basename(self.dir)
        self.socket = f"{self.dir}/admin.sock"
        self.config = f"{self.dir}/sluice.toml"
        self.log = open(f"{self.dir}/log", "a+", encoding="utf-8")
        self.leftovers = [*(f"/dev/shm/{self.name}.{of}" for of in ("control", "data", "capture")), f"{self.dir}/memif.sock"]
        self.control = self.data = None

    def write_config(self, text):
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(text)

    def run(self, *command):
        return subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def start_control(self):
        self.control = self.run(self.programs["control"], "--config", self.config)

    def start_data(self):
        self.data = self.run(self.programs["data"], "--segment", self.name)

    def start(self):
        self.start_control()
        self.start_data()
        self.up()

    def up(self):
        """Waits until both planes serve. Checks the PID, because the heartbeat of a previous data plane may still be recent."""
        def it_is():
            status = self.ctl("status")
            return status and status["data_plane"]["alive"] and status["data_plane"]["pid"] == self.data.pid and self.ctl("exports")
        try:
            self.wait("both planes up", it_is)
        except AssertionError as error:
            ends = ", ".join(f"{name} plane: {plane and plane.poll()}" for name, plane in (("control", self.control), ("data", self.data)))
            raise Failed(f"{error}\nExit status of the {ends}\n{self.text_of_log()[-8000:]}") from None

    def run_ctl(self, *words):
        return subprocess.run([self.programs["ctl"], "--socket", self.socket, *words], capture_output=True, text=True, check=False)

    def ctl(self, *words):
        """Returns the answer of sluicectl as JSON, or None if it fails."""
        done = self.run_ctl("--json", *words)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def wait(self, what, condition):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"timed out waiting for: {what}")

    def loaded(self, calls=1000):
        """Waits for a connection with more than this number of calls, and returns it."""
        return self.wait("load", lambda: [c for c in self.ctl("connections") or [] if c["calls"] > calls])[0]

    def text_of_log(self):
        with open(f"{self.dir}/log", encoding="utf-8") as file:
            return file.read()

    def mount_port(self):
        """Returns the MOUNT port of the control plane that was started last."""
        return re.findall(r"MOUNT is served on port (\d+)", self.text_of_log())[-1]

    def over_memif(self, *words):
        """Returns the command of a sluice-bench at the other end of the data plane's memif."""
        return [self.programs["bench"], "--device", "softroce", "--ethdev", memif_ethdev(self.dir, "client"), "--address",
                "192.0.2.2/24", "--server", "192.0.2.1", "--json", *words]

    def stop(self):
        """Stops both planes and removes their files. Prints their log if VERBOSE is set in the environment."""
        for process in (self.data, self.control):
            if process and process.poll() is None:
                process.terminate()
                process.wait()
        if os.environ.get("VERBOSE"):
            print("".join(f"# {line}\n" for line in self.text_of_log().splitlines()))
        for path in self.leftovers:
            if os.path.exists(path):
                os.unlink(path)


def end(load):
    """Ends a running sluice-bench, and returns its JSON output."""
    load.terminate()
    return finish(load)


def finish(process):
    """Waits for a process, which has to exit with status 0, and returns its JSON output."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, f"exit {process.returncode}: {out} {err}"
    return json.loads(out)
