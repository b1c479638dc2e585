# SPDX-License-Identifier: Apache-2.0
"""An NFS version 3 server that answers MOUNT, CREATE and WRITE, and ignores all other calls; or it refuses all calls."""
import contextlib
import socket
import struct
import threading
import time

MOUNT, NFS = 100005, 100003
NULL, MNT, WRITE, CREATE = 0, 1, 7, 8
LAST_FRAGMENT = 0x80000000
HANDLE = b"handle!!"
NFS3ERR_IO, FILE_SYNC = 5, 2
WITHOUT_ATTRIBUTES = bytes(8)  # attributes before and after the operation


def records(connection):
    with connection.makefile("rb") as stream:
        while head := stream.read(4):
            length, = struct.unpack(">I", head)
            assert length & LAST_FRAGMENT, "a record of several fragments"
            yield stream.read(length & ~LAST_FRAGMENT)


def accepted(call, results):
    reply = call[:4] + struct.pack(">5I", 1, 0, 0, 0, 0) + results
    return struct.pack(">I", LAST_FRAGMENT | len(reply)) + reply


def arguments(call):
    """Returns the arguments, which follow credential and verifier."""
    at = 24
    for _ in range(2):
        length, = struct.unpack(">I", call[at + 4:at + 8])
        at += 8 + length + -length % 4
    return call[at:]


class SilentUpstream:
    def __init__(self, port):
        self.port = port
        self.refuses = False
        self.delay_s = 0
        self.mount = self.listen(0)

    def comes(self):
        self.listen(self.port)

    def listen(self, port):
        listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()
        return listener.getsockname()[1]

    def accept(self, listener):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with contextlib.suppress(ConnectionError):
            for call in records(connection):
                results = self.results(call)
                if results is not None:
                    connection.sendall(accepted(call, results))

    def results(self, call):
        program, _, procedure = struct.unpack(">3I", call[12:24])
        if program == MOUNT:
            return struct.pack(">II8sII", 0, len(HANDLE), HANDLE, 1, 1) if procedure == MNT else b""
        time.sleep(self.delay_s)
        if self.refuses:
            return b"" if procedure == NULL else struct.pack(">I", NFS3ERR_IO) + WITHOUT_ATTRIBUTES
        if procedure == CREATE:
            return struct.pack(">III8sI", 0, 1, len(HANDLE), HANDLE, 0) + WITHOUT_ATTRIBUTES
        if procedure == WRITE:
            count = arguments(call)[4 + len(HANDLE) + 8:][:4]
            return struct.pack(">I", 0) + WITHOUT_ATTRIBUTES + count + struct.pack(">I8s", FILE_SYNC, b"verifier")
        return None
