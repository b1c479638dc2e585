# SPDX-License-Identifier: Apache-2.0
"""Messages of ONC RPC (RFC 5531) and XDR (RFC 4506), for tests that write calls by hand."""
import socket
import struct

from planes import PATIENCE_S

AUTH_NONE, AUTH_SYS = 0, 1
LAST_FRAGMENT = 1 << 31
NO_AUTH = struct.pack(">II", AUTH_NONE, 0)


def u32(*values):
    return struct.pack(f">{len(values)}I", *(value & 0xFFFFFFFF for value in values))


def u64(*values):
    return struct.pack(f">{len(values)}Q", *values)


def opaque(data):
    return u32(len(data)) + data + bytes(-len(data) % 4)


def string(text):
    return opaque(text.encode())


def auth_sys(machine, uid, gid, groups=(), stamp=0):
    """Returns a credential of AUTH_SYS."""
    return u32(AUTH_SYS) + opaque(u32(stamp) + string(machine) + u32(uid, gid, len(groups), *groups))


def call(program, version, procedure, arguments=b"", xid=7, credential=NO_AUTH):
    return u32(xid, 0, 2, program, version, procedure) + credential + NO_AUTH + arguments


def record(message):
    return u32(LAST_FRAGMENT | len(message)) + message


def receive(stream, count):
    data = b""
    while len(data) < count:
        part = stream.recv(count - len(data))
        assert part, "the connection has ended"
        data += part
    return data


def receive_message(stream):
    """Returns the next message, which has one fragment."""
    [mark] = struct.unpack(">I", receive(stream, 4))
    return receive(stream, mark & ~LAST_FRAGMENT)


def results(message):
    """Returns the results of a successful reply."""
    assert message[4:24] == u32(1, 0, 0, 0, 0), message
    return message[24:]


def reply(stream):
    """Returns the results of the next successful reply."""
    return results(receive_message(stream))


def ask(stream, *words):
    stream.sendall(record(call(*words)))
    return reply(stream)


def connect(port, host="127.0.0.1"):
    return socket.create_connection((host, port), timeout=PATIENCE_S)


class Reader:
    """Reads XDR."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def fixed(self, count):
        assert self.at + count <= len(self.data), f"{len(self.data)} bytes end within a field at {self.at}"
        self.at += count + -count % 4
        return self.data[self.at - count - -count % 4:][:count]

    def u32(self):
        return struct.unpack(">I", self.fixed(4))[0]

    def u64(self):
        return struct.unpack(">Q", self.fixed(8))[0]

    def opaque(self):
        return self.fixed(self.u32())

    def end(self):
        assert self.at == len(self.data), f"{len(self.data) - self.at} bytes are left"
