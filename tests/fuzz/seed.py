#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the fuzzers' corpora from what real kernels sent: seed.py CAPTURED_MESSAGES TARGET FOLDER"""
import os
import struct
import sys


def main():
    source, target, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    for number, line in enumerate(open(source, encoding="ascii")):
        message = bytes.fromhex(line.strip())
        words = struct.unpack(f">{len(message) // 4}I", message[:len(message) // 4 * 4])
        rpc = message
        for at in range(4, len(words) - 1):  # the RPC message begins with the XID again
            if words[at] == words[0]:
                rpc = message[at * 4:]
                break
        seed = {"v1_header": message,
                "rpc_message": rpc,
                "nfs3_args": bytes([0, rpc[23] & 31 if len(rpc) > 23 else 0]) + struct.pack("<H", len(rpc[40:])) + rpc[40:],
                "responder": struct.pack("<H", min(len(message), 1023)) + message}[target]
        with open(f"{folder}/{number:03}", "wb") as file:
            file.write(seed)


if __name__ == "__main__":
    main()
