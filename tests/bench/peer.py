# SPDX-License-Identifier: Apache-2.0
"""An NFS server of another project, over TCP on one processor in a separate network namespace."""
import os
import shutil
import signal
import subprocess
import tempfile
import time

from planes import planes_of_tests

PATIENCE_S = 60


def lacks(*programs):
    """Returns the reason why a peer that needs these programs cannot run on this machine as a sentence, or None."""
    if os.geteuid() != 0:
        return "A network namespace for another server requires root."
    return planes_of_tests.missing(*programs, "unshare", "nsenter", "taskset", "ip", "ss")


class Peer:
    """A server that a subclass describes: NAME, NFS_PORT, MOUNT_PORT and EXPORT, and start_script(), which starts it by exec.
    enter() returns the command that starts a client in its namespace."""

    NAME, NFS_PORT, MOUNT_PORT, EXPORT = "", 0, 0, ""

    def __init__(self, cpu):
        self.dir = tempfile.mkdtemp(prefix=f"sluice-{self.NAME}-")
        script = f"ip link set lo up; mount -t tmpfs none /run; {self.start_script(f'taskset -c {cpu}')}"
        with open(f"{self.dir}/out", "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(["unshare", "-n", "-m", "sh", "-c", script], stdout=out, stderr=out, start_new_session=True)

    def start_script(self, on_cpu):
        raise NotImplementedError

    def enter(self, *command):
        return ["nsenter", "-t", str(self.process.pid), "-n", *command]

    def listens(self):
        sockets = subprocess.run(self.enter("ss", "-Hltn"), capture_output=True, text=True, check=False).stdout
        return all(f":{port} " in sockets for port in (self.NFS_PORT, self.MOUNT_PORT))

    def __enter__(self):
        deadline = time.monotonic() + PATIENCE_S
        while not self.listens():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(AssertionError)
                raise AssertionError(f"{self.NAME} does not start: see {self.dir}.")
            time.sleep(0.1)
        return self

    def __exit__(self, *failed):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        if failed == (None, None, None):
            shutil.rmtree(self.dir)
