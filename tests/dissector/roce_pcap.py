# SPDX-License-Identifier: Apache-2.0
"""Writes packet captures of RoCEv2. Each message is one Send of a reliable connection, in packets of at most `mtu` bytes."""
import struct

ONLY, FIRST, MIDDLE, LAST = 0x04, 0x00, 0x01, 0x02
PSNS = 1 << 24


def opcodes(parts):
    return [ONLY] if parts == 1 else [FIRST, *[MIDDLE] * (parts - 2), LAST]


class Capture:
    """A capture file. Queue pairs are numbers below 2^24; `forward` selects the sending host."""

    def __init__(self, path):
        self.path = path
        self.records = []
        self.psns = {}

    def send(self, queue_pair, message, forward=True, mtu=4096):
        parts = [message[at:at + mtu] for at in range(0, len(message), mtu)] or [b""]
        for opcode, part in zip(opcodes(len(parts)), parts):
            self.packet(queue_pair, opcode, part, forward)

    def packet(self, queue_pair, opcode, payload, forward=True):
        psn = self.psns.get((queue_pair, forward), 0xFFFFFE)
        self.psns[queue_pair, forward] = (psn + 1) % PSNS
        padding = -len(payload) % 4
        transport = struct.pack(">BBHII", opcode, 0x40 | padding << 4, 0xFFFF, queue_pair, psn) + payload + bytes(padding + 4)
        hosts = bytes((192, 0, 2, 1)), bytes((192, 0, 2, 2))
        source, destination = hosts if forward else reversed(hosts)
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(transport), 0, 0x4000, 64, 17, 0, source, destination)
        udp = struct.pack(">HHHH", 49152, 4791, 8 + len(transport), 0)
        self.records.append(bytes(12) + b"\x08\x00" + ip + udp + transport)

    def write(self):
        with open(self.path, "wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 1))
            for number, frame in enumerate(self.records):
                file.write(struct.pack("<IIII", 1_600_000_000, number % 1_000_000, len(frame), len(frame)) + frame)
