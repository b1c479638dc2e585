#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Extracts the RPC-over-RDMA messages of real Linux kernels from RoCEv2 captures, for the codec's tests and the fuzzers' corpora.

captured.py PCAP... > captured_messages.txt

Prints one message in hexadecimal for each shape (header without XID, handles and offsets; RPC program and procedure)."""
import struct
import sys

ROCE_PORT = 4791
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_ONLY, SEND_ONLY_IMM, LAST_INV, ONLY_INV = 0, 1, 2, 3, 4, 5, 0x16, 0x17
MORE = {SEND_FIRST, SEND_MIDDLE}
WITH_WORD = {SEND_LAST_IMM, SEND_ONLY_IMM, LAST_INV, ONLY_INV}
STARTS = {SEND_FIRST, SEND_ONLY, SEND_ONLY_IMM, ONLY_INV}


def frames(path):
    data = open(path, "rb").read()
    order = "<" if data[:4] == b"\xd4\xc3\xb2\xa1" else ">"
    at = 24
    while at + 16 <= len(data):
        captured = struct.unpack(order + "I", data[at + 8:at + 12])[0]
        yield data[at + 16:at + 16 + captured]
        at += 16 + captured


def sends(path):
    """Returns the whole Sends of reliable connections, in order."""
    partial = {}
    for frame in frames(path):
        if len(frame) < 14 + 20 + 8 + 12 + 4 or frame[12:14] != b"\x08\x00" or frame[23] != 17:
            continue
        udp = 14 + (frame[14] & 15) * 4
        if struct.unpack(">H", frame[udp + 2:udp + 4])[0] != ROCE_PORT:
            continue
        end = udp + struct.unpack(">H", frame[udp + 4:udp + 6])[0] - 4  # without the invariant CRC
        bth = udp + 8
        opcode = frame[bth]
        if opcode not in MORE | WITH_WORD | {SEND_LAST, SEND_ONLY}:
            continue
        key = (frame[26:34], frame[bth + 5:bth + 8])
        start = bth + 12 + (4 if opcode in WITH_WORD else 0)
        payload = frame[start:end - (frame[bth + 1] >> 4 & 3)]
        partial[key] = (b"" if opcode in STARTS else partial.get(key, b"")) + payload
        if opcode not in MORE:
            yield partial.pop(key)


def shape(message):
    """Returns the parts of a message that a codec distinguishes: lists and their sizes, and the RPC."""
    words = struct.unpack(f">{len(message) // 4}I", message[:len(message) // 4 * 4])
    at = 4
    reads = 0
    while words[at] == 1:
        reads, at = reads + 1, at + 6
    at += 1
    writes = []
    while words[at] == 1:
        writes.append(words[at + 1])
        at += 2 + 4 * words[at + 1]
    at += 1
    reply = words[at + 1] if words[at] == 1 else -1
    at += 2 + 4 * reply if reply >= 0 else 1
    rpc = words[at:]
    kind = tuple(rpc[3:6]) if len(rpc) > 5 and rpc[1] == 0 else ()
    size = 0 if kind else len(message).bit_length()
    return words[3], reads, tuple(writes), reply, rpc[1:2], kind, size


def main():
    seen = set()
    count = 0
    for path in sys.argv[1:]:
        for message in sends(path):
            count += 1
            if len(message) < 28 or struct.unpack(">I", message[4:8])[0] != 1 or shape(message) in seen:
                continue
            seen.add(shape(message))
            print(message.hex())
    print(f"{count} Sends, {len(seen)} shapes", file=sys.stderr)


if __name__ == "__main__":
    main()
