#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Extracts the COMPOUNDs of NFS version 4 from a TCP capture, with the operations that Wireshark finds in them.

captured_compounds.py PCAP PORT > FILE

Prints one line for each: "call" or "reply", the operations' numbers, and the message after the RPC header in hexadecimal."""
import collections
import struct
import subprocess
import sys

from captured import frames

NFS, VERSION_4, COMPOUND = 100003, 4, 1
LONGEST = 100_000


def segments(path, port):
    """Returns the TCP payloads over IPv4 in the order of the capture: (stream, sequence number, bytes)."""
    for frame in frames(path):
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        tcp = 14 + (frame[14] & 15) * 4
        end = 14 + struct.unpack(">H", frame[16:18])[0] or len(frame)  # zero with segmentation offload
        from_port, to_port, sequence = struct.unpack(">HHI", frame[tcp:tcp + 8])
        if port in (from_port, to_port):
            yield (frame[26:34], from_port, to_port), sequence, frame[tcp + (frame[tcp + 12] >> 4) * 4:end]


def records(path, port):
    """Returns the RPC messages of whole records."""
    streams = collections.defaultdict(lambda: [None, b"", b""])  # next sequence number, bytes, fragments so far
    for key, sequence, data in segments(path, port):
        stream = streams[key]
        if not data or (stream[0] is not None and sequence != stream[0]):
            continue
        stream[0] = (sequence + len(data)) & 0xFFFFFFFF
        stream[1] += data
        while len(stream[1]) >= 4:
            mark = struct.unpack(">I", stream[1][:4])[0]
            end = 4 + (mark & 0x7FFFFFFF)
            if len(stream[1]) < end:
                break
            stream[2] += stream[1][4:end]
            stream[1] = stream[1][end:]
            if mark >> 31:
                yield stream[2]
                stream[2] = b""


def behind_credentials(message, at, count):
    for _ in range(count):
        size = struct.unpack(">I", message[at + 4:at + 8])[0]
        at += 8 + (size + 3 & ~3)
    return at


def operations_seen(path, port):
    """Returns the operations by XID and direction, from frames with a single message."""
    seen = {}
    done = subprocess.run(["tshark", "-r", path, "-d", f"tcp.port=={port},rpc", "-Y", "nfs.opcode", "-T", "fields", "-E", "separator=;",
                           "-E", "occurrence=a", "-e", "rpc.xid", "-e", "rpc.msgtyp", "-e", "nfs.opcode"], capture_output=True, text=True,
                          check=True)
    for line in done.stdout.splitlines():
        xid, kind, operations = line.split(";")
        if "," in xid or "," in kind:
            continue
        seen[int(xid, 16), int(kind)] = operations
    return seen


def main():
    path, port = sys.argv[1], int(sys.argv[2])
    seen = operations_seen(path, port)
    compounds = set()
    for message in records(path, port):
        if len(message) < 24 or len(message) > LONGEST:
            continue
        xid, kind = struct.unpack(">II", message[:8])
        if kind == 0 and struct.unpack(">III", message[12:24]) == (NFS, VERSION_4, COMPOUND):
            compounds.add(xid)
            at = behind_credentials(message, 24, 2)
        elif kind == 1 and xid in compounds and message[8:12] == bytes(4):
            at = behind_credentials(message, 12, 1) + 4
        else:
            continue
        if (xid, kind) in seen:
            print("call" if kind == 0 else "reply", seen[xid, kind], message[at:].hex())


if __name__ == "__main__":
    main()
