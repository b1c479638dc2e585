# SPDX-License-Identifier: Apache-2.0
"""Sequences of calls that clients of other systems make, and their replay against Sluice.

A sequence is a table of calls in the order of the client's source. Arguments and results that depend on earlier results, such as file
handles and ports, are kept in a dictionary."""
import dataclasses
import socket
import struct
import typing

from onc_rpc import Reader, call, opaque, receive_message, record, results, string, u32
from planes import PATIENCE_S

PORTMAP, MOUNT, NFS, NLM, NSM, RQUOTA = 100000, 100005, 100003, 100021, 100024, 100011
GETPORT, GETVERSADDR = (PORTMAP, 2, 3), (PORTMAP, 4, 9)
PORTMAP_PORT, NFS_PORT = 111, 2049
TCP, UDP = 6, 17  # in arguments of GETPORT


@dataclasses.dataclass(frozen=True)
class Place:
    """Where calls go. A port that is a name is in the dictionary."""
    port: typing.Any
    transport: str = "tcp"
    host: str = "127.0.0.1"
    privileged: bool = False
    resets: bool = False  # the client ends connections by a reset


@dataclasses.dataclass(frozen=True)
class Call:
    name: str
    to: str  # name of a place; a connection is made at its first call
    procedure: tuple
    arguments: tuple = ()  # bytes, and functions that return bytes from the dictionary
    expects: typing.Any = lambda reader, kept: None  # reads the results; if it returns True the call is made again
    credential: typing.Any = None
    closes: bool = False


@dataclasses.dataclass(frozen=True)
class Sequence:
    """`source` names project, file and function of each part. `server` is "memory" or "nfs4"."""
    name: str
    source: str
    places: dict
    credential: bytes
    calls: tuple
    first_xid: int = 1
    server: str = "memory"


# No port is taken twice, since a closed connection keeps its own for a while.
PRIVILEGED_PORTS = iter(range(1023, 511, -1))


def bind_below_1024(endpoint, host):
    for port in PRIVILEGED_PORTS:
        try:
            endpoint.bind((host, port))
            return
        except OSError:
            continue
    raise AssertionError("no port below 1024 is free")


class Replay:
    """Makes the calls of one sequence."""

    def __init__(self, sequence, kept=None):
        self.sequence, self.kept = sequence, dict(kept or {})
        self.xid = sequence.first_xid
        self.open = {}

    def endpoint(self, name):
        if name not in self.open:
            place = self.sequence.places[name]
            port = self.kept[place.port] if isinstance(place.port, str) else place.port
            six = ":" in place.host
            endpoint = socket.socket(socket.AF_INET6 if six else socket.AF_INET,
                                     socket.SOCK_STREAM if place.transport == "tcp" else socket.SOCK_DGRAM)
            endpoint.settimeout(PATIENCE_S)
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if place.resets:
                endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if place.privileged:
                bind_below_1024(endpoint, "::" if six else "0.0.0.0")
            self.open[name] = endpoint
            endpoint.connect((place.host, port))
        return self.open[name]

    def message(self, one):
        parts = [part(self.kept) if callable(part) else part for part in one.arguments]
        credential = self.sequence.credential if one.credential is None else one.credential
        self.xid += 1
        return call(*one.procedure, b"".join(parts), self.xid, credential)

    def exchange(self, one):
        endpoint = self.endpoint(one.to)
        message = self.message(one)
        if endpoint.type == socket.SOCK_STREAM:
            endpoint.sendall(record(message))
            answer = receive_message(endpoint)
        else:
            endpoint.send(message)
            answer = endpoint.recv(65536)
        assert answer[:4] == message[:4], "the reply has another XID"
        return answer

    def make(self, one):
        while True:
            answer = self.exchange(one)
            reader = Reader(results(answer))
            again = one.expects(reader, self.kept)
            reader.end()
            if not again:
                break
        if one.closes:
            self.open.pop(one.to).close()

    def run(self):
        try:
            for number, one in enumerate(self.sequence.calls, 1):
                try:
                    self.make(one)
                except (AssertionError, OSError, KeyError) as error:
                    raise AssertionError(f"call {number}, {one.name}: {type(error).__name__} {error}") from error
        finally:
            for endpoint in self.open.values():
                endpoint.close()


# --- Portmapper and MOUNT

def getport(program, version, transport, expects, to="portmap", **more):
    return Call(f"GETPORT of program {program} version {version}", to, GETPORT, (u32(program, version, transport, 0),), expects, **more)


def found(name):
    """Keeps the port that the portmapper returns."""
    def read(reader, kept):
        kept[name] = reader.u32()
        assert kept[name] != 0, "the program is not registered"
    return read


def absent(reader, _):
    port = reader.u32()
    assert port == 0, f"the program is registered at port {port}"


def getaddr(version, program, program_version, netid, to="portmap"):
    """Asks rpcbind for a program that is not registered."""
    def read(reader, _):
        address = reader.opaque()
        assert address == b"", address
    return Call(f"GETADDR by version {version}", to, (PORTMAP, version, 3), (u32(program, program_version), string(netid), string(""), string("")), read)


def universal(name):
    """Keeps the port of the universal address that rpcbind returns."""
    def read(reader, kept):
        address = reader.opaque().decode()
        high, low = address.split(".")[-2:]
        kept[name] = int(high) * 256 + int(low)
    return read


def mnt(path, version=3, **more):
    return Call(f"MNT of {path}", "mount", (MOUNT, version, 1), (string(path),), mounted, **more)


def mounted(reader, kept):
    """Requires AUTH_SYS among the flavors: BSD's clients take the first one that they support and fail without any."""
    status = reader.u32()
    assert status == 0, f"status {status}"
    kept["root"] = reader.opaque()
    flavors = [reader.u32() for _ in range(reader.u32())]
    assert flavors[:1] == [1], flavors


def exports(*paths):
    def read(reader, _):
        listed = []
        while reader.u32():
            listed.append(reader.opaque().decode())
            while reader.u32():
                reader.opaque()
        assert listed == list(paths), listed
    return read


def no_mounts(reader, _):
    assert reader.u32() == 0, "DUMP lists a mount"


def handle(name):
    """Returns an argument, the handle that is kept under this name."""
    return lambda kept: opaque(kept[name])


def kept_bytes(name):
    return lambda kept: kept[name]


