# SPDX-License-Identifier: Apache-2.0
"""nfs-ganesha with an export in memory."""
import os

import peer

CONFIG = """
NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {nfs}; MNT_Port = {mount}; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ RecoveryBackend = "fs"; RecoveryRoot = "{dir}/recovery"; }}
EXPORT_DEFAULTS {{ SecType = sys; Access_Type = RW; Squash = No_Root_Squash; Protocols = 3; Transports = TCP; }}
EXPORT {{ Export_Id = 1; Path = {export}; FSAL {{ Name = MEM; }} }}
MEM {{ Inode_Size = 2097152; }}
LOG {{ Default_Log_Level = EVENT; }}
"""


def lacks():
    """Returns the reason why nfs-ganesha cannot run on this machine as a sentence, or None."""
    return peer.lacks("ganesha.nfsd", "rpcbind")


class Ganesha(peer.Peer):
    NAME, NFS_PORT, MOUNT_PORT, EXPORT = "ganesha", 2049, 20047, "/mem"

    def start_script(self, on_cpu):
        os.mkdir(f"{self.dir}/recovery")
        with open(f"{self.dir}/conf", "w", encoding="utf-8") as file:
            file.write(CONFIG.format(nfs=self.NFS_PORT, mount=self.MOUNT_PORT, export=self.EXPORT, dir=self.dir))
        return (f"rpcbind -w -f & sleep 0.5; "
                f"exec {on_cpu} ganesha.nfsd -F -f {self.dir}/conf -L {self.dir}/log -p {self.dir}/pid")
