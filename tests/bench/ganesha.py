# SPDX-License-Identifier: Apache-2.0
"""nfs-ganesha with an export in memory, on one processor, in a separate network namespace."""
import os
import shutil
import signal
import subprocess
import tempfile
import time

from planes import planes_of_tests

NFS_PORT, MOUNT_PORT, EXPORT = 2049, 20047, "/mem"
CONFIG = """
NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {nfs}; MNT_Port = {mount}; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ RecoveryBackend = "fs"; RecoveryRoot = "{dir}/recovery"; }}
EXPORT_DEFAULTS {{ SecType = sys; Access_Type = RW; Squash = No_Root_Squash; Protocols = 3; Transports = TCP; }}
EXPORT {{ Export_Id = 1; Path = {export}; FSAL {{ Name = MEM; }} }}
MEM {{ Inode_Size = 2097152; }}
LOG {{ Default_Log_Level = EVENT; }}
"""
PATIENCE_S = 60


def lacks():
    """Returns the reason why nfs-ganesha cannot run on this machine as a sentence, or None."""
    if os.geteuid() != 0:
        return "A network namespace for nfs-ganesha requires root."
    return planes_of_tests.missing("ganesha.nfsd", "rpcbind", "unshare", "nsenter", "taskset", "ip", "ss")


class Ganesha:
    """An nfs-ganesha that runs on processor `cpu`. enter() returns the command that starts a client in its namespace."""

    def __init__(self, cpu):
        self.dir = tempfile.mkdtemp(prefix="sluice-ganesha-")
        os.mkdir(f"{self.dir}/recovery")
        with open(f"{self.dir}/conf", "w", encoding="utf-8") as file:
            file.write(CONFIG.format(nfs=NFS_PORT, mount=MOUNT_PORT, export=EXPORT, dir=self.dir))
        script = (f"ip link set lo up; mount -t tmpfs none /run; rpcbind -w -f & sleep 0.5; "
                  f"exec taskset -c {cpu} ganesha.nfsd -F -f {self.dir}/conf -L {self.dir}/log -p {self.dir}/pid")
        with open(f"{self.dir}/out", "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(["unshare", "-n", "-m", "sh", "-c", script], stdout=out, stderr=out, start_new_session=True)

    def enter(self, *command):
        return ["nsenter", "-t", str(self.process.pid), "-n", *command]

    def listens(self):
        sockets = subprocess.run(self.enter("ss", "-Hltn"), capture_output=True, text=True, check=False).stdout
        return f":{NFS_PORT} " in sockets and f":{MOUNT_PORT} " in sockets

    def __enter__(self):
        deadline = time.monotonic() + PATIENCE_S
        while not self.listens():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise AssertionError(f"nfs-ganesha does not start: see {self.dir}/log and {self.dir}/out.")
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
