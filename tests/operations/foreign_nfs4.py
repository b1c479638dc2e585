# SPDX-License-Identifier: Apache-2.0
"""COMPOUNDs of NFS version 4 (RFC 7530, RFC 8881) for sequences of foreign clients, with what is expected of their results.

An operation is a tuple: number, arguments (bytes, and functions that return bytes from the dictionary), and a function that reads its
results after the status, or the status that is expected instead of success."""
from foreign_clients import NFS, Call, handle, kept_bytes
from onc_rpc import opaque, string, u32, u64

NOT_SUPPORTED = 10004
PUTROOTFH, PUTFH, LOOKUP, GETFH, GETATTR, OPENATTR = 24, 22, 15, 10, 9, 19
RENEW, SETCLIENTID, SETCLIENTID_CONFIRM = 30, 35, 36
EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, SEQUENCE, DESTROY_CLIENTID, RECLAIM_COMPLETE = 42, 43, 44, 53, 57, 58
FATTR4_SUPPORTED, FATTR4_LEASE_TIME = 1 << 0, 1 << 10
CHANNEL_WORDS = 6


def compound(tag, minor, *operations, to="nfs", **more):
    arguments = [string(tag), u32(minor, len(operations))]
    for number, given, _ in operations:
        arguments += [u32(number), *given]

    def read(reader, kept):
        status = reader.u32()
        assert reader.opaque().decode() == tag, "another tag"
        count = reader.u32()
        assert count == len(operations), f"{count} operations of {len(operations)} were executed, the last one with status {status}"
        for number, _, expects in operations:
            got, result = reader.u32(), reader.u32()
            wanted = expects if isinstance(expects, int) else 0
            assert (got, result) == (number, wanted), f"operation {got} instead of {number}, status {result}"
            if callable(expects):
                expects(reader, kept)

    return Call(f"COMPOUND {tag or 'without a tag'}", to, (NFS, 4, 1), tuple(arguments), read, **more)


def null(**more):
    return Call("NULL", "nfs", (NFS, 4, 0), **more)


def plain(number, *arguments):
    """Returns an operation without results."""
    return (number, arguments, None)


def lookup(name):
    return plain(LOOKUP, string(name))


def putfh(name):
    return plain(PUTFH, handle(name))


def getfh(name):
    def read(reader, kept):
        kept[name] = reader.opaque()
    return (GETFH, (), read)


def getattr_of(*bitmap):
    def read(reader, _):
        assert [reader.u32() for _ in range(reader.u32())], "no attributes"
        assert reader.opaque()
    return (GETATTR, (u32(len(bitmap), *bitmap),), read)


def setclientid(verifier, owner, program, netid, address, ident):
    def read(reader, kept):
        kept["client"], kept["confirm"] = u64(reader.u64()), reader.fixed(8)
    return (SETCLIENTID, (verifier, opaque(owner), u32(program), string(netid), string(address), u32(ident)), read)


def setclientid_confirm():
    return plain(SETCLIENTID_CONFIRM, kept_bytes("client"), kept_bytes("confirm"))


def renew():
    return plain(RENEW, kept_bytes("client"))


def exchange_id(verifier, owner, flags, domain, name, seconds):
    def read(reader, kept):
        kept["client"], kept["sequence"] = u64(reader.u64()), u32(reader.u32())
        reader.u32()
        assert reader.u32() == 0, "SP4_NONE was asked for"
        reader.u64()
        assert reader.opaque(), "server_owner is empty: FreeBSD keeps it for its list of servers"
        reader.opaque()
        for _ in range(reader.u32()):
            for text in (reader.opaque(), reader.opaque()):
                assert len(text) <= 1024
            reader.fixed(12)
    implementation = u32(1) + string(domain) + string(name) + u64(seconds) + u32(0)
    return (EXCHANGE_ID, (verifier, opaque(owner), u32(flags, 0), implementation), read)


def create_session(flags, fore, back, program, callback_security):
    """`fore` and `back` are channel_attrs4 without ca_rdma_ird. A size or a number that the reply grants may not be above what was asked for."""
    def read(reader, kept):
        kept["session"] = reader.fixed(16)
        assert u32(reader.u32()) == kept["sequence"], "csr_sequence"
        assert reader.u32() & ~flags == 0
        for asked in (fore, back):
            granted = [reader.u32() for _ in range(CHANNEL_WORDS)]
            assert all(got <= wanted for got, wanted in zip(granted, asked)) and min(granted[1:3]) >= 1024, (granted, asked)
            assert reader.u32() == 0, "ca_rdma_ird over TCP"
    return (CREATE_SESSION, (kept_bytes("client"), kept_bytes("sequence"), u32(flags), u32(*fore, 0), u32(*back, 0), u32(program), callback_security),
            read)


def sequence(number, slot=0, highest=0, cached=False):
    def read(reader, kept):
        assert reader.fixed(16) == kept["session"]
        assert (reader.u32(), reader.u32()) == (number, slot)
        reader.fixed(12)
    return (SEQUENCE, (kept_bytes("session"), u32(number, slot, highest, cached)), read)


def reclaim_complete():
    return plain(RECLAIM_COMPLETE, u32(0))


def destroy_session():
    return plain(DESTROY_SESSION, kept_bytes("session"))


def destroy_clientid():
    return plain(DESTROY_CLIENTID, kept_bytes("client"))
