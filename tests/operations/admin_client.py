# SPDX-License-Identifier: Apache-2.0
"""Access to the admin socket without sluicectl, and checks of its answers."""
import json
import re
import socket

NAME = re.compile(r"^[a-z0-9_]+$")
TYPES = {"boolean": bool, "integer": int, "number": (int, float), "string": str, "object": dict, "array": list, "null": type(None)}


def ask(path, method, parameters=None, passed=()):
    """Sends a request and returns the whole response. `passed`: descriptors sent with the request."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(path)
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters or {}}
        socket.send_fds(client, [json.dumps(request).encode() + b"\n"], list(passed))
        with client.makefile("rb") as answers:
            return json.loads(answers.readline())


def mismatch(schema, value, where="result"):
    """Returns the reason why the value violates the JSON Schema, or None. Supports the keywords that our schemas use."""
    if "anyOf" in schema:
        found = [mismatch(one, value, where) for one in schema["anyOf"]]
        return None if None in found else found[0]
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(isinstance(value, TYPES[one]) and (one == "boolean" or not isinstance(value, bool)) for one in types):
        return f"{where} is no {types}: {value!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is none of {schema['enum']}: {value!r}"
    if "minimum" in schema and value is not None and not schema["minimum"] <= value <= schema.get("maximum", value):
        return f"{where} is beyond its limits: {value!r}"
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            return f"{where} is too long"
        return first(mismatch(schema.get("items", {}), one, f"{where}[{i}]") for i, one in enumerate(value))
    return mismatch_in_object(schema, value, where) if isinstance(value, dict) else None


def mismatch_in_object(schema, value, where):
    if len(value) > schema.get("maxProperties", len(value)):
        return f"{where} is not empty"
    lacking = set(schema.get("required", [])) - set(value)
    if lacking:
        return f"{where} lacks {lacking}"
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    if others is False and set(value) - set(known):
        return f"{where} has {set(value) - set(known)}, which is not declared"
    pattern = schema.get("propertyNames", {}).get("pattern", "")
    if not all(re.search(pattern, key) for key in value):
        return f"{where} has a key that is no name: {list(value)}"
    return first(mismatch(known.get(key, others), held, f"{where}.{key}") for key, held in value.items())


def first(found):
    return next((one for one in found if one is not None), None)


def check_names(value, where="result"):
    """Asserts that every key is a name that a program can rely on."""
    for key, held in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        assert isinstance(key, int) or NAME.match(key), f"{where} has the key {key!r}"
        check_names(held, f"{where}.{key}")
