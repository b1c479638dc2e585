# SPDX-License-Identifier: Apache-2.0
"""Calls of clients on Windows.

The source of Microsoft's Client for NFS is not published. Its calls are those of published captures and reports:
 - huggingface/nfsserve, pull request 44: mount.exe has no option for ports, calls NULL and GETPORT of the portmapper's version 2 over
   TCP or UDP, and a server that answers these two with the ports of MOUNT 3 and NFS 3 is mounted;
 - unfs3/unfs3, issue 43, a capture: connections from ports below 1024, GETATTR as the first call and no NULL before it, connections that
   are reset after one reply, and XIDs that count from a small number.

Calls after the second GETATTR are in neither. They are those of other clients of NFS 3, with sizes, names and a creation that differ.

The calls for NFS 4 are those of kofemann/ms-nfs41-client, at commit d1d743e."""
import foreign_nfs3 as nfs3
import foreign_nfs4 as nfs4
from foreign_clients import MOUNT, NFS, NFS_PORT, PORTMAP, PORTMAP_PORT, TCP, UDP, Call, Place, Sequence, exports, found, getport, mnt
from onc_rpc import NO_AUTH, auth_sys, string, u32

ANONYMOUS = auth_sys("WINDOWS", 0xFFFF_FFFE, 0xFFFF_FFFE)  # mount -o anon, and users without a mapping: -2, no groups
PLACES = {
    "portmap": Place(PORTMAP_PORT, "udp"),
    "portmap by tcp": Place(PORTMAP_PORT),
    "mount": Place("mount port", "udp", privileged=True),
    "mount by tcp": Place("mount port by tcp", privileged=True),
    "nfs": Place("nfs port", privileged=True, resets=True),
}
DATA = b"Windows\r\n" * 1000

MOUNT_3 = Sequence(
    "windows_mounts_nfs_3_through_the_portmapper",
    "huggingface/nfsserve, pull request 44; unfs3/unfs3, issue 43; see above.",
    PLACES, ANONYMOUS, (
        Call("NULL of the portmapper", "portmap", (PORTMAP, 2, 0), credential=NO_AUTH),
        getport(MOUNT, 3, UDP, found("mount port"), credential=NO_AUTH),
        getport(MOUNT, 3, TCP, found("mount port by tcp"), to="portmap by tcp", credential=NO_AUTH),
        getport(NFS, 3, TCP, found("nfs port"), to="portmap by tcp", credential=NO_AUTH),
        Call("NULL of MOUNT", "mount", (MOUNT, 3, 0), credential=NO_AUTH),
        Call("EXPORT", "mount", (MOUNT, 3, 5), (), exports("/export")),
        mnt("/export"),
        nfs3.getattr_of("root", closes=True),
        nfs3.getattr_of("root"),
        nfs3.fsinfo(),
        nfs3.fsstat(),
        nfs3.pathconf(),
        nfs3.access("root", 0x3F),
        nfs3.list_all("many", (4096, 8192), nfs3.MANY),
        nfs3.lookup_of_nothing("desktop.ini"),
        nfs3.create("new.txt", u32(nfs3.UNCHECKED) + nfs3.MODE_ONLY),
        nfs3.write(DATA, nfs3.UNSTABLE),
        nfs3.commit(0),
        nfs3.read_back(DATA, 4096),
        nfs3.remove("new.txt"),
        Call("UMNT", "mount by tcp", (MOUNT, 3, 3), (string("/export"),)),
        Call("UMNTALL", "mount by tcp", (MOUNT, 3, 4)),
    ), first_xid=1740)

CALLBACK_BY_NONE_OR_SYS = u32(2, 0, 1, 1_764_500_000) + string("server.example") + u32(0, 0, 0)
CITI = auth_sys("WINDOWS", 1000, 513, tuple(range(2000, 2016)))
MOUNT_4_1 = Sequence(
    "windows_mounts_nfs_4_1",
    """ms-nfs41-client: daemon/nfs41_rpc.c, nfs41_rpc_clnt_create(): NULL by AUTH_NONE. daemon/nfs41_ops.c: nfs41_exchange_id() with
    SUPP_MOVED_REFER and an implementation ID, nfs41_create_session(): 16,384 operations, 128 slots, callbacks by AUTH_NONE or AUTH_SYS
    of which the machine's name is the server's; nfs41_reclaim_complete(), nfs41_getattr(), nfs41_destroy_session().""",
    {"nfs": Place(NFS_PORT, privileged=True)}, CITI, (
        nfs4.null(credential=NO_AUTH),
        nfs4.compound("exchange_id", 1, nfs4.exchange_id(u32(0x1234, 0x5678), b"\x01" * 16, 0x1, "msnfs41client.org", "msnfs41client", 0)),
        nfs4.compound("create_session", 1, nfs4.create_session(0x2, (0, 1_049_620, 1_049_620, 1024, 16384, 128), (0, 1_049_620, 1_049_620, 1024, 16384, 1),
                                                               0x2358, CALLBACK_BY_NONE_OR_SYS)),
        nfs4.compound("reclaim_complete", 1, nfs4.sequence(1), nfs4.reclaim_complete()),
        nfs4.compound("getattr", 1, nfs4.sequence(2), nfs4.plain(nfs4.PUTROOTFH), nfs4.getattr_of(0x1)),
        nfs4.compound("lookup", 1, nfs4.sequence(3), nfs4.plain(nfs4.PUTROOTFH), nfs4.getfh("root"), nfs4.getattr_of(0x0010_011A, 0x0030_A23A),
                      nfs4.lookup("real"), nfs4.getfh("real"), nfs4.getattr_of(0x0010_011A, 0x0030_A23A)),
        nfs4.compound("destroy_session", 1, nfs4.destroy_session()),
        nfs4.compound("destroy_clientid", 1, nfs4.destroy_clientid()),
    ), server="nfs4")

SEQUENCES = (MOUNT_3, MOUNT_4_1)
