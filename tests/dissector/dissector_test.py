#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wireshark with deploy/wireshark/rpcrdma2.lua dissects each message type, and gives every message of version 2's conformance tests the same
verdict as Sluice's decoder. Speaks TAP.

dissector_test.py SOURCE_ROOT V2_CONFORMANCE_TEST"""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from planes_of_tests import Failed, need, run_tap  # noqa: E402
from roce_pcap import FIRST, LAST, MIDDLE, Capture  # noqa: E402

ROOT, CONFORMANCE = sys.argv[1:3]
SCRIPT = os.path.join(ROOT, "deploy/wireshark/rpcrdma2.lua")
FOLDER = tempfile.TemporaryDirectory()
SERVER, CLIENT = 0x11, 0x22  # queue pairs of both ends


def vectors():
    """Returns {name: bytes} of the worked examples of version 2."""
    with open(os.path.join(ROOT, "tests/golden/v2_vectors.h"), encoding="utf-8") as file:
        found = re.findall(r"> k(\w+) = \{([^}]*)\}", file.read())
    return {name: b"".join(struct.pack(">I", int(word, 16)) for word in re.findall(r"0x[0-9a-f]+", words)) for name, words in found}


EXAMPLES = vectors()


def words(*values):
    return struct.pack(f">{len(values)}I", *values)


def message(xid=0x11, version=2, credit=0x00400001, kind=0, flags=0, lists=(0, 0, 0, 0), payload=b""):
    return words(xid, version, credit, kind, flags, *lists) + payload


def rpc_call(xid, procedure=0, more=b""):
    return words(xid, 0, 2, 100003, 3, procedure, 0, 0, 0, 0) + more


def dissected(capture):
    """Returns tshark's dissection of each packet, as {field: [values]}."""
    capture.write()
    done = subprocess.run(["tshark", "-X", f"lua_script:{SCRIPT}", "-2", "-r", capture.path, "-T", "json", "--no-duplicate-keys"],
                          capture_output=True, text=True, check=True)
    if "Lua" in done.stderr:
        raise Failed(done.stderr)
    return [fields_of(packet["_source"]["layers"]) for packet in json.loads(done.stdout)]


def fields_of(tree):
    found = {}

    def walk(name, value):
        if isinstance(value, dict):
            found.setdefault(name, [])
            for inner, content in value.items():
                walk(inner, content)
        elif isinstance(value, list):
            for content in value:
                walk(name, content)
        else:
            found.setdefault(name, []).append(value)

    for name, value in tree.items():
        walk(name, value)
    return found


def capture_of(*sends, mtu=4096):
    """Returns a capture of Sends, each given as (bytes, whether it goes to the server)."""
    capture = Capture(os.path.join(FOLDER.name, "packets.pcap"))
    for content, forward in sends:
        capture.send(SERVER if forward else CLIENT, content, forward, mtu)
    return capture


def one(content, forward=True):
    return dissected(capture_of((content, forward)))[0]


def expect(fields, **wanted):
    for name, values in wanted.items():
        name = "rpcrdma2." + name.replace("__", ".")
        values = [str(value) for value in (values if isinstance(values, (list, tuple)) else [values])]
        if fields.get(name, []) != values:
            raise Failed(f"{name} is {fields.get(name)}, not {values}: {json.dumps(fields)[:3000]}")


def refused(fields, how):
    if f"rpcrdma2.{how}" not in fields:
        raise Failed(f"no {how}: {json.dumps(fields)[:3000]}")


def a_short_call_and_its_reply():
    call, reply = dissected(capture_of((EXAMPLES["A"], True), (EXAMPLES["B"], False)))
    expect(call, xid="0x11223344", version=2, credit="0x0040003f", credit__limit=64, credit__granted=63, type=0, flags__response=0, flags__more=0,
           inv_handle="0x00000000", reads=0, writes=0, payload__bytes=40)
    expect(reply, xid="0x11223344", credit__limit=128, credit__granted=127, type=0, flags__response=1)
    if call.get("rpc.procedure") != ["0"] or call.get("rpc.program") != ["100003"] or reply.get("rpc.state_accept") != ["0"]:
        raise Failed(f"RPC was not handed on: {call} {reply}")


def a_continued_call_is_joined():
    first, last = dissected(capture_of((EXAMPLES["C1"], True), (EXAMPLES["C2"], True)))
    expect(first, xid="0x11223345", flags__more=1, payload__bytes=24, continued_in=2)
    expect(last, flags__more=0, continues=1)
    if "rpc.xid" in first or last.get("rpc.procedure") != ["1"] or "nfs.fh.length" not in last:
        raise Failed(f"the joined call was not handed on: {first} {last}")


def parts_of_two_directions_are_kept_apart():
    """Queue pairs at both ends may have the same number."""
    capture = capture_of()
    for content, forward in ((EXAMPLES["C1"], True), (EXAMPLES["C1"], False), (EXAMPLES["C2"], True), (EXAMPLES["C2"], False)):
        capture.send(SERVER, content, forward)
    packets = dissected(capture)
    expect(packets[2], continues=1)
    expect(packets[3], continues=2)


def a_part_of_another_message_is_no_continuation():
    packets = dissected(capture_of((EXAMPLES["C1"], True), (message(xid=0x99, payload=rpc_call(0x99)), True)))
    refused(packets[1], "broken_continuation")
    expect(packets[1], continues=[])
    if packets[1].get("rpc.xid") != ["0x00000099"]:
        raise Failed(str(packets[1]))


def a_call_with_a_write_chunk_and_its_reply():
    call, reply = dissected(capture_of((EXAMPLES["D"], True), (EXAMPLES["E"], False)))
    expect(call, inv_handle="0x00008a01", writes=1, write__segments=1, handle="0x00008a01", length=4096, offset="0x00007f00a0001000",
           rpc__xid="0x11223346", rpc__msgtype=0, rpc__program=100003, rpc__programversion=3, rpc__procedure=6)
    expect(reply, flags__response=1, inv_handle="0x00000000", length=1001, rpc__msgtype=1)


def a_message_without_payload_grants_only():
    expect(one(EXAMPLES["F"]), type=1, grant_only=1, credit__granted=32, reads=0, writes=0)


def properties_are_listed():
    expect(one(EXAMPLES["G"]), type=5, properties=3, property=[1, 2, 5], property__length=[4, 4, 4], property__value=[65536, 65536, 2])
    expect(one(EXAMPLES["H"]), properties=3, property=[2, 0x7FFF0001, 6], property__length=[0, 3, 12], property__data="de:ad:be",
           host_authentication="01:02:03:04:05")


def a_long_call_and_its_reply():
    expect(one(EXAMPLES["I"]), type=1, grant_only=[], reads=2, position=[0, 0], handle=["0x00009b01", "0x00009b02", "0x00009b03"],
           length=[8192, 1000, 16384], reply=1)
    expect(one(EXAMPLES["J"], False), type=1, flags__response=1, reply=1, length=9120)


def continued_properties_are_joined():
    first, last = dissected(capture_of((EXAMPLES["K1"], True), (EXAMPLES["K2"], True)))
    expect(first, flags__more=1, continued_in=2, properties=[])
    authentication = ":".join(f"{octet:02x}" for octet in range(1, 0x15))
    expect(last, continues=1, properties=1, property=6, host_authentication=authentication)


def each_error_has_its_fields():
    for name, fields in {
            "L1": {"error": 1, "error__low": 1, "error__high": 2, "flags": []}, "L1V": {"error": 1, "error__low": 1, "error__high": 2, "flags__response": 1},
            "L2": {"error": 2}, "L3": {"error": 3}, "L4": {"error": 4}, "L5": {"error": 5, "error__maximum": 1},
            "L6": {"error": 6, "error__maximum": 1}, "L7": {"error": 7, "error__maximum": 16},
            "L8": {"error": 8, "error__chunk_index": 1, "error__bytes_needed": 1 << 20}, "L9": {"error": 9, "error__bytes_needed": 9120},
            "L10": {"error": 10}}.items():
        expect(one(EXAMPLES[name], False), xid="0x11223348", type=4, **fields)


def a_send_of_several_packets_is_joined():
    payload = rpc_call(0x77, 1, words(2900) + bytes(2900))
    *parts, last = dissected(capture_of((message(payload=payload), True), mtu=1024))
    if len(parts) != 2:
        raise Failed(f"{len(parts)} parts")
    for part in parts:
        expect(part, continued_in=3, xid=[])
    expect(last, xid="0x00000011", payload__bytes=len(payload))
    if last.get("rpc.xid") != ["0x00000077"]:
        raise Failed(str(last))


def packets_that_were_sent_again_or_lost_join_nothing():
    capture = capture_of()
    content = message(payload=rpc_call(0x77, 1, words(2000) + bytes(2000)))
    capture.packet(SERVER, FIRST, content[:1024])
    capture.psns[SERVER, True] -= 1  # a duplicate
    capture.packet(SERVER, FIRST, content[:1024])
    capture.packet(SERVER, MIDDLE, content[1024:2048])
    capture.packet(SERVER, LAST, content[2048:])
    capture.packet(SERVER, FIRST, content[:1024])
    capture.psns[SERVER, True] += 1  # a lost packet
    capture.packet(SERVER, LAST, content[2048:])
    packets = dissected(capture)
    expect(packets[3], xid="0x00000011", payload__bytes=len(content) - 36)
    expect(packets[5], xid=[])


def what_cannot_be_parsed_is_said():
    call = rpc_call(0x11)
    for content in (message(lists=(0, 2, 0, 0), payload=call), message(lists=(0, 1, 5, 7), payload=b""), message(lists=(0, 0, 0, 1), payload=words(1000)),
                    message(kind=1, payload=call), message(payload=b""), words(1, 2, 1, 5, 0, 2, 1, 4, 4096), words(1, 2, 1, 5, 0, 1, 1, 5, 0, 0),
                    words(1, 2, 1, 5, 0, 1, 6, 8, 9, 0), words(1, 2, 1, 5, 0, 0, 0), words(1, 2, 1, 4, 1, 8, 1)):
        refused(one(content), "malformed")
    refused(one(message(flags=4, payload=call)), "invalid_flags")
    refused(one(message(kind=1, flags=2)), "invalid_flags")
    refused(one(message(flags=2, lists=(0, 0, 1, 1, 7, 64, 0, 0, 0, 0), payload=call)), "invalid_flags")


def other_messages_are_left_alone():
    """Version 1 is left to Wireshark's dissector, and an unknown header type is not dissected."""
    version_1 = words(0x11, 1, 32, 0, 0, 0, 0) + rpc_call(0x11)
    packets = dissected(capture_of((version_1, True), (message(kind=3, payload=rpc_call(0x11)), True), (bytes(12), True)))
    for packet in packets:
        expect(packet, xid=[])
    if packets[0].get("rpcordma.version") != ["1"]:
        raise Failed(str(packets[0]))


def decoder_verdicts():
    """Returns the numbers of v2::Decode by name, read from its header. tests/conformance/message_record.h writes these numbers."""
    with open(os.path.join(ROOT, "dataplane/rpcrdma/wire/v2.h")) as file:
        body = re.search(r"enum class Decode [^{]*\{(.*?)\};", file.read(), re.DOTALL).group(1)
    return {name: number for number, name in enumerate(re.findall(r"^\s*(\w+),", body, re.MULTILINE))}


VERDICTS = decoder_verdicts()
OK, FRAGMENT, BAD_VERSION, BAD_TYPE, BAD_FLAGS, BAD_XDR, BAD_ERROR = (
    VERDICTS[name] for name in ("Ok", "Fragment", "BadVersion", "BadType", "BadFlags", "BadXdr", "BadError"))


def recorded(path):
    """Yields (connection, to the engine, our verdict, header bytes, message) of each Send in a file of tests/conformance/message_record.h."""
    with open(path, "rb") as file:
        while head := file.read(20):
            *fields, length = struct.unpack("<5I", head)
            yield (*fields, file.read(length))


def columns(capture, *names):
    """Returns the values of these fields, as one tuple of strings for each packet."""
    capture.write()
    wanted = [argument for name in names for argument in ("-e", name)]
    done = subprocess.run(["tshark", "-X", f"lua_script:{SCRIPT}", "-r", capture.path, "-T", "fields", "-E", "separator=;", *wanted],
                          capture_output=True, text=True, check=True)
    return [tuple(line.split(";")) for line in done.stdout.splitlines()]


def disagreement(verdict, header_bytes, content, seen):
    """Returns the difference between the verdicts of the dissector and of our decoder, or None."""
    xid, malformed, flags, payload_bytes, error, flag_word, continues, broken = seen
    kind = struct.unpack(">I", content[12:16])[0] if len(content) >= 16 else None
    if verdict in (FRAGMENT, BAD_VERSION, BAD_TYPE) or struct.unpack(">I", content[4:8])[0] != 2:
        return "taken for version 2" if xid else None
    if not xid:
        return "not taken for version 2"
    if error and not flag_word:  # the form of RFC 8166, which is valid only as the answer to the first message
        return None
    if kind == 5 and (continues or broken):  # the decoder's verdict covers this part only
        return None
    if verdict in (BAD_XDR, BAD_ERROR):
        return None if malformed else "not malformed"
    if verdict == BAD_FLAGS:
        return None if flags else "valid flags"
    if verdict == OK:
        if malformed or flags:
            return "malformed" if malformed else "invalid flags"
        if kind == 0 and int(payload_bytes) != len(content) - header_bytes:
            return f"{payload_bytes} bytes of payload"
    return None


def all_messages_of_the_conformance_tests_are_judged_alike():
    path = os.path.join(FOLDER.name, "messages")
    subprocess.run([CONFORMANCE, "--gtest_brief=1"], env={**os.environ, "SLUICE_MESSAGES": path}, check=True, stdout=subprocess.DEVNULL)
    messages = list(recorded(path))
    capture = capture_of()
    last_packets = []
    for connection, to_engine, _, _, content in messages:
        capture.send(connection, content, forward=bool(to_engine))
        last_packets.append(len(capture.records) - 1)
    seen = columns(capture, "rpcrdma2.xid", "rpcrdma2.malformed", "rpcrdma2.invalid_flags", "rpcrdma2.payload.bytes", "rpcrdma2.error", "rpcrdma2.flags",
                   "rpcrdma2.continues", "rpcrdma2.broken_continuation")
    verdicts = {verdict for _, _, verdict, _, _ in messages}
    if not {OK, BAD_FLAGS, BAD_XDR, BAD_ERROR} <= verdicts or len(seen) != len(capture.records):
        raise Failed(f"verdicts {verdicts}, {len(seen)} of {len(capture.records)} packets were dissected")
    wrong = [f"{other}; verdict {verdict}: {content[:120].hex(' ', 4)}" for (_, _, verdict, header_bytes, content), packet in zip(messages, last_packets)
             if (other := disagreement(verdict, header_bytes, content, seen[packet]))]
    if wrong:
        raise Failed("\n".join([f"{len(wrong)} of {len(messages)} messages", *wrong[:20]]))


TESTS = [a_short_call_and_its_reply, a_continued_call_is_joined, parts_of_two_directions_are_kept_apart, a_part_of_another_message_is_no_continuation,
         a_call_with_a_write_chunk_and_its_reply, a_message_without_payload_grants_only, properties_are_listed, a_long_call_and_its_reply,
         continued_properties_are_joined, each_error_has_its_fields, a_send_of_several_packets_is_joined,
         packets_that_were_sent_again_or_lost_join_nothing, what_cannot_be_parsed_is_said, other_messages_are_left_alone, all_messages_of_the_conformance_tests_are_judged_alike]

if __name__ == "__main__":
    need("tshark")
    sys.exit(run_tap([(test.__name__, test) for test in TESTS]))
