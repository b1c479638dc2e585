#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes the test vectors of host authentication from RFC 5869, RFC 8446 and RFC 2104 alone. Speaks TAP.

vectors_test.py PAGE            compares the vectors with those that the page prints
vectors_test.py --print         prints the vectors in the form of the page"""
import hashlib
import hmac
import re
import sys


def extract(salt, input_key):
    return hmac.new(salt, input_key, hashlib.sha256).digest()


def expand(secret, info, length):
    out = block = b""
    while len(out) < length:
        block = hmac.new(secret, block + info + bytes([len(out) // 32 + 1]), hashlib.sha256).digest()
        out += block
    return out[:length]


def expand_label(secret, label, context, length=32, prefix=b"slp2 "):
    label = prefix + label
    return expand(secret, length.to_bytes(2, "big") + bytes([len(label)]) + label + bytes([len(context)]) + context, length)


def sha256(text):
    return hashlib.sha256(text).digest()


def early_secret(key):
    return extract(bytes(32), key)


def key_id(key):
    return expand_label(early_secret(key), b"key id", b"", 8)


def vectors():
    key, other = bytes(range(32)), bytes(range(0x80, 0xa0))
    client, server = b"client.example", b"gateway.example"
    client_nonce, server_nonce = bytes(range(0x20, 0x40)), bytes(range(0x40, 0x60))
    handshake = extract(expand_label(early_secret(key), b"derived", sha256(b"")), bytes(32))
    message_1 = b"SLP2\1" + bytes([len(client)]) + client + client_nonce + b"\2" + key_id(other) + key_id(key)
    hello_2 = b"SLP2\2" + bytes([len(server)]) + server + server_nonce + b"\1"
    hellos = sha256(message_1 + hello_2)
    server_secret, client_secret = (expand_label(handshake, label, hellos) for label in (b"s hs", b"c hs"))
    server_key, client_key = (expand_label(secret, b"finished", b"") for secret in (server_secret, client_secret))
    server_finished = hmac.new(server_key, hellos, hashlib.sha256).digest()
    both = sha256(message_1 + hello_2 + server_finished)
    client_finished = hmac.new(client_key, both, hashlib.sha256).digest()
    return {"key": key, "other key": other, "client's name": client.decode(), "server's name": server.decode(),
            "client's nonce": client_nonce, "server's nonce": server_nonce,
            "early secret": early_secret(key), "key id": key_id(key), "other key id": key_id(other), "handshake secret": handshake,
            "message 1": message_1, "hash of the hellos": hellos,
            "server's secret": server_secret, "server's finished key": server_key, "server's Finished": server_finished,
            "message 2": hello_2 + server_finished, "hash of messages 1 and 2": both,
            "client's secret": client_secret, "client's finished key": client_key, "client's Finished": client_finished,
            "message 3": b"SLP2\3" + client_finished}


def printed():
    width = max(map(len, vectors()))
    for name, value in vectors().items():
        text = value if isinstance(value, str) else value.hex()
        lines = [text[at:at + 64] for at in range(0, len(text), 64)]
        yield f"    {name:{width}} = " + f"\n{' ' * (width + 7)}".join(lines)


def on_page(path):
    found, name = {}, None
    for line in open(path, encoding="utf-8"):
        match = re.fullmatch(r"    (\S.*?) += (\S+)\n", line)
        more = re.fullmatch(r"     +([0-9a-f]+)\n", line)
        if match:
            name, found[match[1]] = match[1], match[2]
        elif more and name:
            found[name] += more[1]
        else:
            name = None
    return found


def main():
    if sys.argv[1] == "--print":
        print("\n".join(printed()))
        return 0
    page, failed = on_page(sys.argv[1]), 0
    print(f"1..{len(vectors()) + 1}")
    for number, (name, value) in enumerate(vectors().items(), 1):
        good = page.get(name) == (value if isinstance(value, str) else value.hex())
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - the page has the {name}")
    # These functions, with TLS's own prefix and no key, yield the values that RFC 8448, section 3, prints for
    # every handshake.
    derived = expand_label(extract(bytes(32), bytes(32)), b"derived", sha256(b""), prefix=b"tls13 ")
    good = derived.hex() == "6f2615a108c702c5678f54fc9dbab69716c076189c48250cebeac3576c3611ba"
    failed += not good
    print(f"{'ok' if good else 'not ok'} {len(vectors()) + 1} - these functions are those of TLS 1.3")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
