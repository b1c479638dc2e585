# SPDX-License-Identifier: Apache-2.0
"""Calls of NFS version 3 (RFC 1813) for sequences of foreign clients, with what is expected of their results."""
from foreign_clients import NFS, Call, handle, kept_bytes
from onc_rpc import string, u32, u64

(NULL, GETATTR, SETATTR, LOOKUP, ACCESS, _, READ, WRITE, CREATE, MKDIR, _, _, REMOVE, _, _, _, READDIR, READDIRPLUS, FSSTAT, FSINFO, PATHCONF,
 COMMIT) = range(22)
NOENT = 2
UNSTABLE = 0
ATTRIBUTES_BYTES, WCC_BYTES = 84, 24
UNCHECKED, EXCLUSIVE = 0, 2
MODE_ONLY = u32(1, 0o644, 0, 0, 0, 0, 0)  # sattr3: mode, and nothing else
MODE_OF_ALL = u32(1, 0o777, 0, 0, 0, 0, 0)
NO_GUARD = u32(0)


def nfs(procedure):
    return (NFS, 3, procedure)


def post_op_attributes(reader):
    if reader.u32():
        reader.fixed(ATTRIBUTES_BYTES)


def wcc_data(reader):
    if reader.u32():
        reader.fixed(WCC_BYTES)
    post_op_attributes(reader)


def status_is(reader, expected=0):
    status = reader.u32()
    assert status == expected, f"status {status}"


def null(to="nfs", **more):
    return Call("NULL", to, nfs(NULL), **more)


def getattr_of(what, to="nfs", **more):
    def read(reader, _):
        status_is(reader)
        reader.fixed(ATTRIBUTES_BYTES)
    return Call(f"GETATTR of {what}", to, nfs(GETATTR), (handle(what),), read, **more)


def fsinfo():
    def read(reader, kept):
        status_is(reader)
        post_op_attributes(reader)
        kept["rtmax"], kept["rtpref"], _ = (reader.u32() for _ in range(3))
        kept["wtmax"], _, _ = (reader.u32() for _ in range(3))
        kept["dtpref"] = reader.u32()
        assert reader.u64() > 1 << 32, "maxfilesize"
        reader.fixed(8)
        assert reader.u32() & 0x8 == 0x8, "FSF3_HOMOGENEOUS: clients then ask for PATHCONF once"
        assert min(kept["rtmax"], kept["wtmax"], kept["dtpref"]) >= 4096, kept
    return Call("FSINFO", "nfs", nfs(FSINFO), (handle("root"),), read)


def fsstat():
    def read(reader, _):
        status_is(reader)
        post_op_attributes(reader)
        assert reader.u64() > 0, "total bytes: macOS divides by the block size that it derives from it"
        reader.fixed(5 * 8 + 4)
    return Call("FSSTAT", "nfs", nfs(FSSTAT), (handle("root"),), read)


def pathconf():
    def read(reader, _):
        status_is(reader)
        post_op_attributes(reader)
        _, name_max = reader.u32(), reader.u32()
        assert name_max == 255, name_max
        assert reader.u32() == 1, "no_trunc"
        reader.fixed(12)
    return Call("PATHCONF", "nfs", nfs(PATHCONF), (handle("root"),), read)


def access(what, rights):
    def read(reader, _):
        status_is(reader)
        post_op_attributes(reader)
        granted = reader.u32()
        assert granted & ~rights == 0 and granted & 1, granted
    return Call(f"ACCESS to {what}", "nfs", nfs(ACCESS), (handle(what), u32(rights)), read)


def lookup_of_nothing(name):
    def read(reader, _):
        status_is(reader, NOENT)
        post_op_attributes(reader)
    return Call(f"LOOKUP of {name}", "nfs", nfs(LOOKUP), (handle("root"), string(name)), read)


def made(kept_as):
    """Keeps the handle of a new object. The client continues with it, so it has to be in the reply."""
    def read(reader, kept):
        status_is(reader)
        assert reader.u32() == 1, "no handle follows"
        kept[kept_as] = reader.opaque()
        post_op_attributes(reader)
        wcc_data(reader)
    return read


def create(name, how, parent="root"):
    """`how` is createhow3."""
    return Call(f"CREATE of {name}", "nfs", nfs(CREATE), (handle(parent), string(name), how), made("file"))


def mkdir(name):
    return Call(f"MKDIR of {name}", "nfs", nfs(MKDIR), (handle("root"), string(name), MODE_OF_ALL), made(name))


def setattr_of(what, attributes):
    def read(reader, _):
        status_is(reader)
        wcc_data(reader)
    return Call(f"SETATTR of {what}", "nfs", nfs(SETATTR), (handle(what), attributes, NO_GUARD), read)


def write(data, stable):
    def read(reader, kept):
        status_is(reader)
        wcc_data(reader)
        assert reader.u32() == len(data)
        reader.u32()
        kept["write verifier"] = reader.fixed(8)
    padding = bytes(-len(data) % 4)
    return Call(f"WRITE of {len(data)} bytes", "nfs", nfs(WRITE), (handle("file"), u64(0), u32(len(data), stable, len(data)), data, padding), read)


def commit(count):
    def read(reader, kept):
        status_is(reader)
        wcc_data(reader)
        assert reader.fixed(8) == kept["write verifier"], "the client would write again"
    return Call("COMMIT", "nfs", nfs(COMMIT), (handle("file"), u64(0), u32(count)), read)


def read_back(data, count):
    def read(reader, _):
        status_is(reader)
        post_op_attributes(reader)
        got, end = reader.u32(), reader.u32()
        assert got == min(count, len(data)) and end == (count >= len(data)), (got, end)
        assert reader.opaque() == data[:count], "other data"
    return Call(f"READ of {count} bytes", "nfs", nfs(READ), (handle("file"), u64(0), u32(count)), read)


def remove(name):
    def read(reader, _):
        status_is(reader)
        wcc_data(reader)
    return Call(f"REMOVE of {name}", "nfs", nfs(REMOVE), (handle("root"), string(name)), read)


def list_all(what, sizes, names, plus=True):
    """Reads a directory to its end. `sizes` are dircount and maxcount, or count without `plus`. The verifier of the first call is zero,
    and that of each further call is the last reply's."""
    listed, limit = [], sizes[-1]

    def read(reader, kept):
        status_is(reader)
        post_op_attributes(reader)
        kept["verifier"] = reader.fixed(8)
        first = len(listed)
        while reader.u32():
            reader.u64()
            listed.append(reader.opaque().decode())
            kept["cookie"] = u64(reader.u64())
            if plus:
                post_op_attributes(reader)
                assert reader.u32() == 1, "an entry without a handle costs the client a LOOKUP"
                reader.opaque()
        end = reader.u32()
        assert reader.at <= limit, f"{reader.at} bytes of results, more than {limit}"
        assert end or len(listed) > first, "no entries, and not the end"
        if end:
            assert sorted(listed) == sorted([".", "..", *names]), f"{len(listed)} entries"
            kept["cookie"], kept["verifier"] = bytes(8), bytes(8)
        return not end

    name = "READDIRPLUS" if plus else "READDIR"
    return Call(f"{name} of {what}", "nfs", nfs(READDIRPLUS if plus else READDIR),
                (handle(what), kept_bytes("cookie"), kept_bytes("verifier"), u32(*sizes)), read)


MANY = tuple(f"entry-{number:03}-" + "n" * 100 for number in range(300))  # the directory `many` of the server
START_OF_DIRECTORY = {"cookie": bytes(8), "verifier": bytes(8)}
