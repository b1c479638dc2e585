#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seed corpus of a fuzzer into a folder, from messages of real kernels.

seed.py GOLDEN_FOLDER TARGET FOLDER    (TARGET: the name of the fuzz target)"""
import os
import re
import struct
import sys


def packets(path):
    data = open(path, "rb").read()
    at = 24
    while at < len(data):
        length = struct.unpack("<I", data[at + 8:at + 12])[0]
        yield data[at + 16:at + 16 + length]
        at += 16 + length


def main():
    golden, target, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    if target in ("roce_frame", "cm_agent"):
        for number, packet in enumerate(packets(f"{golden}/captured_packets.pcap")):
            datagram = packet[42] == 0x64
            if target == "cm_agent" and not datagram:
                continue
            with open(f"{folder}/{number:03}", "wb") as file:
                file.write(packet if target == "roce_frame" else bytes([1, 0]) + packet[62:62 + 256])
        return
    if target == "nfs4_compound":
        for number, line in enumerate(open(f"{golden}/captured_compounds.txt", encoding="ascii")):
            kind, _, message = line.split()
            with open(f"{folder}/{number:03}", "wb") as file:
                file.write(bytes([kind == "reply"]) + bytes.fromhex(message))
        return
    if target == "upstream_stream":
        for number, line in enumerate(open(f"{golden}/captured_compounds.txt", encoding="ascii")):
            message = bytes.fromhex(line.split()[2])
            fragments = [message[:40], message[40:]] if number % 2 else [message]
            with open(f"{folder}/{number:03}", "wb") as file:
                file.write(bytes([number]))
                for fragment in fragments:
                    mark = len(fragment) | (0x80000000 if fragment is fragments[-1] else 0)
                    file.write(mark.to_bytes(4, "big") + fragment)
        return
    if target == "config":
        for number, sample in enumerate(("sluice.toml", "samples/two-ports.toml")):
            with open(f"{golden}/../../deploy/{sample}", "rb") as source, open(f"{folder}/{number:03}", "wb") as file:
                file.write(source.read())
        return
    if target == "mount":
        call = struct.pack(">10I", 1, 0, 2, 100005, 3, 1, 0, 0, 0, 0)
        path = struct.pack(">I", 7) + b"/export\0"
        for number, seed in enumerate((call + path, call[:20] + struct.pack(">5I", 5, 0, 0, 0, 0), struct.pack(">II", 0, 8) + b"handle.." + struct.pack(">II", 1, 1),
                                       struct.pack(">I", 1) + path + bytes(8), b"::.78.80")):
            with open(f"{folder}/{number:03}", "wb") as file:
                file.write(seed)
        return
    if target == "locks":
        head = struct.pack(">4I", 1, 0, 2, 100021)
        lock = struct.pack(">I", 6) + b"client\0\0" + (struct.pack(">I", 8) + b"handle.." + struct.pack(">I", 4) + b"7@cl") + struct.pack(">IQQ", 7, 0, 0)
        cookie = struct.pack(">I", 4) + b"cook"
        bodies = {1: cookie + struct.pack(">I", 1) + lock, 2: cookie + struct.pack(">II", 1, 1) + lock + struct.pack(">II", 0, 3),
                  3: cookie + struct.pack(">II", 1, 1) + lock, 4: cookie + lock, 5: cookie + struct.pack(">I", 1) + lock,
                  10: cookie + struct.pack(">I", 1) + lock, 23: struct.pack(">I", 6) + b"client\0\0" + struct.pack(">I", 3)}
        seeds = [head + struct.pack(">6I", 4, procedure, 0, 0, 0, 0) + body for procedure, body in bodies.items()]
        seeds.append(head[:12] + struct.pack(">7I", 100024, 1, 6, 0, 0, 0, 0) + bodies[23])
        for number, seed in enumerate(seeds):
            with open(f"{folder}/{number:03}", "wb") as file:
                file.write(bytes([number % 3]) + seed)
        return
    if target == "host_handshake":
        with open(f"{golden}/../../deploy/docs/host-authentication.md", encoding="utf-8") as page:
            found = re.findall(r"^    message \d += ([0-9a-f\s]+)$", page.read(), re.M)
        messages = [bytes.fromhex("".join(digits.split())) for digits in found]
        assert len(messages) == 3, messages
        framed = [struct.pack("<H", len(message)) + message for message in messages]
        for number, seed in enumerate((b"\0" + framed[0] + framed[2], b"\1" + framed[1], b"\0" + framed[1], b"\1" + framed[0])):
            with open(f"{folder}/{number:03}", "wb") as file:
                file.write(seed)
        return
    if target == "admin_request":
        for number, method in enumerate(("echo", "number", "change", "none")):
            with open(f"{folder}/{number:03}", "w", encoding="ascii") as file:
                file.write('{"jsonrpc": "2.0", "id": 1, "method": "%s", "params": {"n": [1, "x", null]}}' % method)
        with open(f"{folder}/declared", "w", encoding="ascii") as file:
            file.write('{"jsonrpc": "2.0", "id": 1, "method": "echo", "params": {"any": {}, "list": [1, 2.5], "map": {"a_1": "x"}}}')
        return
    if target == "connections":  # each call in each direction, then turns, and each disturbance
        for number in range(64):
            steps = [(12, number, 0, number), (10, 0, 31, 0), (number % 8, number, number, 0), (7, number, 1, 0), (10, 0, 31, 0)] * 4
            with open(f"{folder}/{number:03}", "wb") as file:
                file.write(bytes([number % 2]) + b"".join(bytes(step) for step in steps))
        return
    if target.startswith("hostile_"):  # each kind of write, with small words and with large ones, in sequence
        for number in range(128):
            words = bytes([number % 4 if number < 64 else 0xff, 0, 0, 0 if number < 64 else 0xff]) * 150
            with open(f"{folder}/{number:03}", "wb") as file:
                file.write(bytes([number % 5, number % 3]) + b"".join(bytes([(number + i) % 64]) + words for i in range(3)))
        return
    source = f"{golden}/captured_messages.txt"
    for number, line in enumerate(open(source, encoding="ascii")):
        message = bytes.fromhex(line.strip())
        words = struct.unpack(f">{len(message) // 4}I", message[:len(message) // 4 * 4])
        rpc = message
        for at in range(4, len(words) - 1):  # the RPC message begins with the XID again
            if words[at] == words[0]:
                rpc = message[at * 4:]
                break
        # Builds the same message in version 2, which has a flag for replies.
        reply = len(rpc) > 8 and rpc[7] == 1
        version_2 = message[:4] + struct.pack(">II", 2, 0x00400008) + message[12:16] + struct.pack(">II", int(reply), 0) + message[16:]
        seed = {"v1_header": message,
                "v2_header": version_2,
                "v2_peer": bytes([int(reply)]) + struct.pack("<H", min(len(version_2), 1023)) + version_2,
                "rpc_message": rpc,
                "nfs3_args": bytes([0, rpc[23] & 31 if len(rpc) > 23 else 0]) + struct.pack("<H", len(rpc[40:])) + rpc[40:],
                "tagged_handles": bytes([rpc[23] & 31 if len(rpc) > 23 and not reply else number & 31]) + (rpc[24:] if reply else rpc[40:]),
                "responder": struct.pack("<H", min(len(message), 1023)) + message}[target]
        with open(f"{folder}/{number:03}", "wb") as file:
            file.write(seed)


if __name__ == "__main__":
    main()
