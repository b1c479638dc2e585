# SPDX-License-Identifier: Apache-2.0
"""Calls of FreeBSD's client, from freebsd/freebsd-src (main, 2025).

Its programs speak through libc: lib/libc/rpc/rpcb_clnt.c, __rpcb_findaddr_timed() asks the portmapper's version 2 over UDP for an IPv4
address. The kernel's credential is that of sys/rpc/authunix_prot.c, xdr_authunix_parms(): a time stamp, the host's name and up to 16
groups."""
import foreign_nfs3 as nfs3
import foreign_nfs4 as nfs4
from foreign_clients import MOUNT, NFS, NFS_PORT, NLM, PORTMAP_PORT, TCP, UDP, Call, Place, Sequence, absent, exports, found, getaddr, getport, mnt, no_mounts
from onc_rpc import NO_AUTH, auth_sys, string, u32

HOST = "a-host-with-a-long-name." + ".".join(["department-of-storage"] * 10) + ".example"  # 249 characters
MOST_GROUPS = tuple(range(1000, 1016))
STAMP = 1_764_500_000
PROGRAM = auth_sys(HOST, 0, 0, MOST_GROUPS, STAMP)
KERNEL = auth_sys(HOST, 1001, 1001, MOST_GROUPS, STAMP)
KERNEL_AS_ROOT = auth_sys(HOST, 0, 0, (0, 5), STAMP)
PLACES = {
    "portmap": Place(PORTMAP_PORT, "udp"),
    "ping": Place("nfs port"),
    "mount": Place("mount port", privileged=True),
    # mount_nfs.c sets NFSMNT_RESVPORT; CLSET_PRIVPORT in sys/fs/nfs/nfs_commonkrpc.c, newnfs_connect().
    "nfs": Place(NFS_PORT, privileged=True),
}
BLOCK = 65536  # NFS_MAXBSIZE
DATA = bytes(range(256)) * 40

MOUNT_3 = Sequence(
    "freebsd_mounts_nfs_3_and_uses_it",
    """sbin/mount_nfs/mount_nfs.c: nfs_tryproto(). sys/fs/nfsclient/nfs_clvfsops.c: mountnfs(), nfs_statfs(). nfs_clvnops.c: nfs_create()
    repeats EXCLUSIVE creation by a SETATTR. nfs_clrpcops.c: nfsrpc_readdirplus() has dircount equal to maxcount, nfsrpc_createv23(),
    nfsrpc_commit(). sbin/umount/umount.c: umountfs().""",
    PLACES, KERNEL, (
        getport(NFS, 3, TCP, found("nfs port"), credential=NO_AUTH),
        nfs3.null(to="ping", credential=NO_AUTH, closes=True),
        getport(MOUNT, 3, TCP, found("mount port"), credential=NO_AUTH),
        mnt("/export", credential=PROGRAM, closes=True),
        nfs3.getattr_of("root", credential=KERNEL_AS_ROOT),
        nfs3.fsinfo(),
        nfs3.fsstat(),
        nfs3.access("root", 0x3F),
        nfs3.list_all("many", (BLOCK, BLOCK), nfs3.MANY),
        nfs3.list_all("many", (8192,), nfs3.MANY, plus=False),
        nfs3.lookup_of_nothing("new"),
        nfs3.create("new", u32(nfs3.EXCLUSIVE, 0x7F000001, 1)),  # the verifier is the host's address and a number
        nfs3.setattr_of("file", nfs3.MODE_ONLY),
        nfs3.write(DATA, nfs3.UNSTABLE),
        nfs3.commit(len(DATA)),
        nfs3.read_back(DATA, BLOCK),
        nfs3.remove("new"),
        getport(MOUNT, 3, TCP, found("mount port"), credential=NO_AUTH),
        Call("UMNT", "mount", (MOUNT, 3, 3), (string("/export"),), credential=PROGRAM),
    ))

SHOWMOUNT = Sequence(
    "freebsd_showmount_lists_exports_by_version_1",
    """usr.bin/showmount/showmount.c: main() and tcp_callrpc() at commit 039ea811636f, where version 1 is the default and -3 asks for version 3.""",
    PLACES, NO_AUTH, (
        getport(MOUNT, 1, TCP, found("mount port")),
        Call("EXPORT", "mount", (MOUNT, 1, 5), (), exports("/export"), closes=True),
        Call("DUMP", "mount", (MOUNT, 1, 2), (), no_mounts, closes=True),
        getport(MOUNT, 3, TCP, found("mount port")),
        Call("EXPORT", "mount", (MOUNT, 3, 5), (), exports("/export"), closes=True),
    ))

LOCKS = Sequence(
    "freebsd_needs_nolockd_because_there_is_no_nlm",
    """sys/nlm/nlm_prot_impl.c: nlm_get_rpc() asks at the first lock, by rpcbind's versions 4 and 3 and the portmapper's version 2, for NLM
    over UDP, then for TCP. A gateway that forwards no NLM may not register it.""",
    PLACES, NO_AUTH, (
        getaddr(4, NLM, 4, "udp"),
        getaddr(3, NLM, 4, "udp"),
        getport(NLM, 4, UDP, absent),
        getport(NLM, 4, TCP, absent),
    ))

ATTRIBUTES = (0x0010_011A, 0x0030_A23A)  # type, change, size, fsid, fileid; mode, numlinks, owner, group, rawdev, space_used, three times
OWNER = b"\x3b\x1d\x75\xe0" * 4 + HOST.encode()[:40]
VERIFIER = u32(STAMP, 1)
MOUNT_4 = Sequence(
    "freebsd_mounts_nfs_4_0",
    """sbin/mount_nfs/mount_nfs.c: nfs_tryproto() pings by AUTH_NONE and uses no portmapper. nfs_clrpcops.c: nfsrpc_getdirpath(),
    nfsrpc_getattrnovp(), nfsrpc_setclient(): three COMPOUNDs, and the address 0.0.0.0.0.0 without nfscbd; nfsrpc_renew().""",
    {"nfs": PLACES["nfs"]}, KERNEL_AS_ROOT, (
        nfs4.null(credential=NO_AUTH, closes=True),
        nfs4.compound("Dirpath", 0, nfs4.plain(nfs4.PUTROOTFH), nfs4.lookup("real"), nfs4.getfh("root")),
        nfs4.compound("Getattr", 0, nfs4.putfh("root"), nfs4.getattr_of(*ATTRIBUTES)),
        nfs4.compound("Setclientid", 0, nfs4.setclientid(VERIFIER, OWNER, 0x4000_0000, "tcp", "0.0.0.0.0.0", 1)),
        nfs4.compound("Setclientidcfrm", 0, nfs4.setclientid_confirm()),
        nfs4.compound("Getattr", 0, nfs4.putfh("root"), nfs4.getattr_of(nfs4.FATTR4_LEASE_TIME)),
        nfs4.compound("Renew", 0, nfs4.renew()),
    ), server="nfs4")

CALLBACK_BY_AUTH_SYS = u32(1, 1, STAMP, 0, 0, 0, 0)  # one item: AUTH_SYS, without a machine's name


def mount_4_1(minor, most):
    """`most` is the size of requests and replies of the fore channel."""
    return Sequence(
        f"freebsd_mounts_nfs_4_{minor}",
        """nfs_clvfsops.c: mountnfs() gets the client ID before the file handle. nfs_clrpcops.c: nfsrpc_exchangeid(), with an implementation
        ID; nfsrpc_createsession(): 20 operations, 64 slots, AUTH_SYS for callbacks; of 4.2 the sizes are those of a socket's buffer;
        nfsrpc_reclaimcomplete(), nfsrpc_destroysession(), nfsrpc_destroyclient().""",
        {"nfs": PLACES["nfs"]}, KERNEL_AS_ROOT, (
            nfs4.null(credential=NO_AUTH, closes=True),
            nfs4.compound("ExchangeID", minor, nfs4.exchange_id(VERIFIER, OWNER + bytes([minor]), 0x0003_0000, "freebsd.org", "FreeBSD 14.3-RELEASE " + "x" * 200,
                                                                1_293_840_000)),
            nfs4.compound("CreateSession", minor, nfs4.create_session(0x3, (0, most, most, 4096, 20, 64), (0, 10000, 10000, 4096, 4, 8), 0x4000_0000,
                                                                      CALLBACK_BY_AUTH_SYS)),
            nfs4.compound("Dirpath", minor, nfs4.sequence(1, cached=True), nfs4.plain(nfs4.PUTROOTFH), nfs4.lookup("real"), nfs4.getfh("root")),
            nfs4.compound("Getattr", minor, nfs4.sequence(2), nfs4.putfh("root"), nfs4.getattr_of(*ATTRIBUTES)),
            nfs4.compound("ReclaimComplete", minor, nfs4.sequence(3, cached=True), nfs4.reclaim_complete()),
            nfs4.compound("DestroySession", minor, nfs4.destroy_session()),
            nfs4.compound("DestroyClient", minor, nfs4.destroy_clientid()),
        ), server="nfs4")


SEQUENCES = (MOUNT_3, SHOWMOUNT, LOCKS, MOUNT_4, mount_4_1(1, BLOCK + 4096), mount_4_1(2, 1_860_039))
