# SPDX-License-Identifier: Apache-2.0
"""A wire between two interfaces that can drop, damage and forge frames of RoCEv2 over IPv4."""
import random
import select
import socket
import struct
import subprocess
import threading
import zlib

MTU = 4300
ALL_PROTOCOLS = 3  # ETH_P_ALL
OUTGOING = 4       # PACKET_OUTGOING
ROCE_PORT = 4791
ETHERNET_BYTES, IP_BYTES, UDP_BYTES, ICRC_BYTES = 14, 20, 8, 4
SOURCE_OF_IP = 12


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def ethdev(interface):
    return f"net_af_packet0,iface={interface},framesz=8192,blocksz=65536,framecnt=512,qdisc_bypass=1"


class Wire:
    """Connects the interfaces `server` and `client` by reading and writing their other ends, the ports."""

    def __init__(self):
        self.harm = None  # function from a frame to the frames that are sent instead
        self.ports = []
        for end in ("server", "client"):
            ip("link", "add", end, "mtu", str(MTU), "type", "veth", "peer", "name", f"{end}-port", "mtu", str(MTU))
            for interface in (end, f"{end}-port"):
                ip("link", "set", interface, "up")
            port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
            port.bind((f"{end}-port", 0))
            self.ports.append(port)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        server, client = self.ports
        while True:
            for port in select.select(self.ports, [], [])[0]:
                frame, source = port.recvfrom(65536)
                if source[2] == OUTGOING:
                    continue
                harm = self.harm
                for each in harm(frame) if harm else [frame]:
                    self.send(each, server if port is client else client)

    @staticmethod
    def send(frame, port):
        try:
            port.send(frame)
        except OSError:
            pass  # queue full: the frame is lost as on any wire

    def send_to_server(self, frame):
        self.send(frame, self.ports[0])


def is_roce(frame):
    udp = ETHERNET_BYTES + IP_BYTES
    return frame[12:14] == b"\x08\x00" and frame[23] == socket.IPPROTO_UDP and struct.unpack(">H", frame[udp + 2:udp + 4])[0] == ROCE_PORT


def checksum(header):
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def invariant_crc(packet):
    """Returns the invariant CRC of an IPv4 packet without one. Fields that routers change count as ones."""
    masked = bytearray(packet)
    udp = IP_BYTES
    for at in (1, 8, 10, 11, udp + 6, udp + 7, udp + UDP_BYTES + 4):  # TOS, TTL, two checksums, BTH's resv8a
        masked[at] = 0xFF
    return struct.pack("<I", zlib.crc32(b"\xFF" * 8 + masked))


def losing(share):
    chance = random.Random(1)
    return lambda frame: [] if is_roce(frame) and chance.random() < share else [frame]


def damaging(share):
    """Flips a bit that the invariant CRC covers."""
    chance = random.Random(1)
    return lambda frame: [frame[:-5] + bytes([frame[-5] ^ 1]) + frame[-4:] if is_roce(frame) and chance.random() < share else frame]


def forging(source):
    """Repeats each packet with the source address of another host."""
    def forged(frame):
        if not is_roce(frame):
            return [frame]
        packet = bytearray(frame[ETHERNET_BYTES:-ICRC_BYTES])
        packet[SOURCE_OF_IP:SOURCE_OF_IP + 4] = socket.inet_aton(source)
        packet[10:12] = bytes(2)
        packet[10:12] = struct.pack(">H", checksum(bytes(packet[:IP_BYTES])))
        return [frame, frame[:ETHERNET_BYTES] + bytes(packet) + invariant_crc(packet)]
    return forged


def claim(address):
    """Returns an ARP request of another host that claims this address."""
    link, ours = b"\x02\x00\x00\x00\x00\x77", socket.inet_aton(address)
    return b"\xFF" * 6 + link + struct.pack(">HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1) + link + ours + bytes(6) + ours
