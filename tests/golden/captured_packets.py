#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Selects packets of Linux kernels from captures.

captured_packets.py PCAP... > captured_packets.pcap

Keeps one packet of each kind: transport opcode, flags and pad, and the attribute of management datagrams. Packets are kept whole, so
that invariant CRCs can be checked."""
import struct
import sys

from captured import ROCE_PORT, frames

PER_KIND = 2


def kind(frame):
    if len(frame) < 60 or frame[12:14] != b"\x08\x00" or frame[23] != 17 or struct.unpack(">H", frame[36:38])[0] != ROCE_PORT:
        return None
    bth = frame[42:]
    attribute = bth[36:38] if bth[0] == 0x64 else b""  # after BTH, DETH and 16 bytes of the datagram
    return bth[0], bth[1], bth[8] >> 7, attribute, min(len(frame) // 1024, 1)


out = sys.stdout.buffer
out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
seen = {}
for path in sys.argv[1:]:
    for number, frame in enumerate(frames(path)):
        what = kind(frame)
        if what is None or seen.get(what, 0) == PER_KIND:
            continue
        seen[what] = seen.get(what, 0) + 1
        out.write(struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame)
