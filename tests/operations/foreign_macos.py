# SPDX-License-Identifier: Apache-2.0
"""Calls of macOS's client, from apple-oss-distributions/NFS, tag NFS-339.

Each call of the kernel, also NULL and GETPORT, has a credential of AUTH_SYS with a stamp of zero and without a machine's name:
kext/nfs_subs.c, nfsm_rpchead2()."""
import foreign_nfs3 as nfs3
import foreign_nfs4 as nfs4
from foreign_clients import (GETVERSADDR, MOUNT, NFS, NFS_PORT, NSM, PORTMAP, PORTMAP_PORT, RQUOTA, TCP, Call, Place, Sequence, absent, exports,
                             found, getport, mnt, universal)
from onc_rpc import auth_sys, string, u32, u64

ROOT = auth_sys("", 0, 0, (0, 1, 2, 3, 4, 5, 8, 9, 12, 20, 29, 61, 80, 33, 98, 100))
USER = auth_sys("", 501, 20, (20, 12, 61, 79, 80, 81, 98, 100, 204, 250, 395, 398, 399, 400, 701, 33))
PROGRAM = auth_sys("mac.example", 501, 20, (20, 12, 61))
PLACES = {
    "portmap": Place(PORTMAP_PORT),           # found by a connection, not by UDP
    "portmap again": Place(PORTMAP_PORT),
    "nfs": Place("nfs port"),                 # privileged only with the option resvport
    "mount": Place("mount port", privileged=True),  # bindresv of nfs_aux_request()
    "showmount": Place("mount port"),
}
TRANSFER = 32768  # NFS_RSIZE and NFS_READDIRSIZE of apple-oss-distributions/xnu, bsd/nfs/nfs.h
RIGHTS = 0x3F
DATA = b"macOS " * 3000

MOUNT_3 = Sequence(
    "macos_mounts_nfs_3_and_uses_it",
    """kext/nfs_socket.c: nfs_connect() pings the portmapper by TCP, asks for both ports on that connection, and pings NFS:
    nfs_connect_search_ping(). kext/nfs_vfsops.c: nfs3_mount_rpc(), nfs3_mount(), nfs3_update_statfs(). kext/nfs_vnops.c:
    nfs3_readdir_rpc() sends readdirsize and rsize; nfs3_vnop_create(). nfs3_umount_rpc() asks for version 3 and calls version 1.""",
    PLACES, ROOT, (
        Call("NULL of the portmapper", "portmap", (PORTMAP, 2, 0)),
        getport(NFS, 3, TCP, found("nfs port")),
        getport(MOUNT, 3, TCP, found("mount port"), closes=True),
        nfs3.null(),
        mnt("/export", closes=True),
        nfs3.getattr_of("root"),
        nfs3.fsinfo(),
        nfs3.pathconf(),
        nfs3.fsstat(),
        nfs3.access("root", RIGHTS),
        nfs3.lookup_of_nothing("._."),
        nfs3.list_all("many", (TRANSFER, TRANSFER), nfs3.MANY),
        nfs3.list_all("many", (TRANSFER,), nfs3.MANY, plus=False),
        nfs3.create("new", u32(nfs3.EXCLUSIVE) + u64(0x7F00_0001_0000_0001)),
        nfs3.setattr_of("file", nfs3.MODE_ONLY),
        nfs3.lookup_of_nothing("._new"),
        nfs3.write(DATA, nfs3.UNSTABLE),
        nfs3.commit(len(DATA)),
        nfs3.read_back(DATA, TRANSFER),
        nfs3.remove("new"),
        # kext/nfs_vfsops.c: nfs3_getquota(); without the program there is no quota.
        getport(RQUOTA, 1, TCP, absent, to="portmap again", closes=True),
        getport(MOUNT, 3, TCP, found("mount port"), to="portmap again", closes=True),
        Call("UMNT", "mount", (MOUNT, 1, 3), (string("/export"),)),
    ))

LOCKS = Sequence(
    "macos_needs_nolocks_because_there_is_no_nsm",
    """kext/nfs_vfsops.c: nfs3_check_lockmode() ends the mount if NSM is not registered, unless nolocks or locallocks is given. A gateway
    that forwards no NLM may not register it.""",
    PLACES, ROOT, (getport(NSM, 1, TCP, absent),))

OVER_IPV6 = Sequence(
    "macos_mounts_nfs_3_over_ipv6",
    """kext/nfs_socket.c: nfs_portmap_lookup() calls GETVERSADDR of rpcbind's version 4, which returns nothing if that very version is not
    registered.""",
    {"portmap": Place(PORTMAP_PORT, host="::1"), "nfs": Place("nfs port", host="::1"), "mount": Place("mount port", host="::1", privileged=True)},
    ROOT, (
        Call("NULL of rpcbind", "portmap", (PORTMAP, 4, 0)),
        Call("GETVERSADDR of NFS 3", "portmap", GETVERSADDR, (u32(NFS, 3), string("tcp6"), string(""), string("")), universal("nfs port")),
        Call("GETVERSADDR of MOUNT 3", "portmap", GETVERSADDR, (u32(MOUNT, 3), string("tcp6"), string(""), string("")), universal("mount port")),
        nfs3.null(),
        mnt("/export", closes=True),
        nfs3.getattr_of("root"),
        nfs3.fsinfo(),
        Call("UMNT", "mount", (MOUNT, 1, 3), (string("/export"),)),
    ))

SHOWMOUNT = Sequence(
    "macos_showmount_lists_exports_by_version_1",
    """showmount/showmount.c: `mntvers` is 1 unless -3 is given; do_print() and create_client() use TCP and AUTH_SYS.""",
    PLACES, PROGRAM, (
        getport(MOUNT, 1, TCP, found("mount port")),
        Call("EXPORT", "showmount", (MOUNT, 1, 5), (), exports("/export")),
    ))

LEASE_AND_SUPPORTED = nfs4.FATTR4_SUPPORTED | nfs4.FATTR4_LEASE_TIME


def mount_4(name, program, netid, address):
    """`program`, `netid` and `address` are those of the callback."""
    return Sequence(
        name,
        """kext/nfs_socket.c: nfs_connect() pings port 2049 without asking the portmapper. kext/nfs4_subs.c: nfs4_setclientid(), of which the
        tags are "setclid" and "setclid_conf". kext/nfs_vfsops.c: nfs4_mount(): a LOOKUP a COMPOUND, then GETATTR and OPENATTR of the root;
        a server without named attributes refuses the last one, and the mount continues.""",
        {"nfs": Place(NFS_PORT)}, ROOT, (
            nfs4.null(),
            nfs4.compound("setclid", 0, nfs4.setclientid(u64(0x693B_4F20_0000_0001), b"mac.example:/real " + name.encode(), program, netid, address, 3)),
            nfs4.compound("setclid_conf", 0, nfs4.setclientid_confirm()),
            nfs4.compound("mount", 0, nfs4.plain(nfs4.PUTROOTFH), nfs4.lookup("real"), nfs4.getfh("root"), nfs4.getattr_of(0x0010_011A, 0x0030_A23A)),
            nfs4.compound("mount", 0, nfs4.putfh("root"), nfs4.getattr_of(LEASE_AND_SUPPORTED, 0),
                          (nfs4.OPENATTR, (u32(0),), nfs4.NOT_SUPPORTED)),
            nfs4.compound("setclid_attr", 0, nfs4.putfh("root"), nfs4.getattr_of(LEASE_AND_SUPPORTED, 0)),
        ), server="nfs4")


SEQUENCES = (MOUNT_3, LOCKS, OVER_IPV6, SHOWMOUNT, mount_4("macos_mounts_nfs_4_0", 0x4E46_5343, "tcp", "127.0.0.1.200.1"),
             mount_4("macos_mounts_nfs_4_0_without_callbacks", 0, "", ""))
