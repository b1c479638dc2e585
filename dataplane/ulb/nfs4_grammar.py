#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates dataplane/ulb/nfs4_grammar.h from the XDR of NFSv4.2, which includes that of 4.0 and 4.1, and the extensions below.

nfs4_grammar.py RFC7863 >dataplane/ulb/nfs4_grammar.h     (RFC 7863 as text; its XDR lines start with '///')

A grammar is a string that describes how to skip a value (see the generated header)."""
import re
import sys

# All DDP-eligible items of version 4, as (type, member) (RFC 8267, section 6.1)
ELIGIBLE = {("WRITE4args", "data"), ("createtype4", "linkdata"), ("READ4resok", "data"), ("READLINK4resok", "link")}

# Number, name, arguments and results of the operations of RFC 8276, section 8.4
XATTR_OPERATIONS = ((72, "OP_GETXATTR", "o", "{0:o;_:;}"), (73, "OP_SETXATTR", "woo", "{0:wdd;_:;}"),
                    (74, "OP_LISTXATTRS", "dw", "{0:d[o]w;_:;}"), (75, "OP_REMOVEXATTR", "o", "{0:wdd;_:;}"))

# Delegations of time stamps (RFC 9754, section 5). They have the XDR of the older types.
DELEGATIONS = {"OPEN_DELEGATE_READ": ("OPEN_DELEGATE_READ_ATTRS_DELEG", 4), "OPEN_DELEGATE_WRITE": ("OPEN_DELEGATE_WRITE_ATTRS_DELEG", 5)}

# Number of attributes, up to MAXWRITE. The reader must step over those before the sizes that a server announces.
ATTRIBUTES = 32

BASIC = {"uint32_t": "w", "int32_t": "w", "unsigned int": "w", "int": "w", "bool": "w", "uint64_t": "d", "int64_t": "d",
         "unsigned hyper": "d", "hyper": "d",
         "authsys_parms": "woww[w]"}  # RFC 5531, appendix A


class Xdr:
    def __init__(self, text):
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        self.constants = {"AUTH_NONE": 0, "AUTH_SYS": 1, "RPCSEC_GSS": 6}  # RFC 5531, section 8.1
        self.types = {}
        for name, value in re.findall(r"\bconst\s+(\w+)\s*=\s*(\w+)\s*;", text):
            self.constants[name] = int(value, 0)
        for name, body in re.findall(r"\benum\s+(\w+)\s*\{(.*?)\}\s*;", text, re.S):
            self.types[name] = ("enum",)
            for item, value in re.findall(r"(\w+)\s*=\s*(\w+)", body):
                self.constants[item] = int(value, 0) if value[0].isdigit() or value[0] == "-" else self.constants[value]
        for name, body in re.findall(r"\bstruct\s+(\w+)\s*\{(.*?)\}\s*;", text, re.S):
            self.types[name] = ("struct", [self.declaration(d) for d in body.split(";") if d.strip()])
        for name, switch, body in re.findall(r"\bunion\s+(\w+)\s+switch\s*\((.*?)\)\s*\{(.*?)\}\s*;", text, re.S):
            self.types[name] = ("union", self.arms(body))
        for line in re.findall(r"\btypedef\s+(.*?);", text, re.S):
            declaration = self.declaration(line)
            if declaration[0] != declaration[1]:  # "typedef struct x x"
                self.types[declaration[1]] = ("typedef", declaration)
        self.add_delegations()

    def add_delegations(self):
        for labels, _ in self.types["open_delegation4"][1]:
            for old, (new, number) in DELEGATIONS.items():
                if old in labels:
                    self.constants[new] = number
                    labels.append(new)

    @staticmethod
    def declaration(text):
        """Parses a declaration into (type, name, kind, size); kind is '', '<>', '[]' or '*'."""
        text = " ".join(text.split())
        if text == "void":
            return ("void", "", "", "")
        match = re.fullmatch(r"(.+?) ?(\*?) ?(\w+) ?(?:(<|\[) ?(\w*) ?[>\]])?", text)
        base, star, name, bracket, size = match.groups()
        kind = "*" if star else {"<": "<>", "[": "[]", None: ""}[bracket]
        return (base.removeprefix("struct ").removeprefix("enum "), name, kind, size)

    def arms(self, body):
        arms, labels = [], []
        for part in re.findall(r"case\s+(\w+)\s*:|(default)\s*:|([^:;]+);", body):
            case, default, declaration = part
            if case or default:
                labels.append(case or "default")
            else:
                arms.append((labels, self.declaration(declaration)))
                labels = []
        return arms

    def value(self, label):
        return {"TRUE": 1, "FALSE": 0}.get(label) if label in ("TRUE", "FALSE") else self.constants.get(label, label)

    def grammar_of(self, declaration, owner):
        base, name, kind, size = declaration
        if base == "void":
            return ""
        if base in ("opaque", "string"):
            if kind == "[]":
                return "w" * (-(-self.number(size) // 4))
            return "E" if (owner, name) in ELIGIBLE else "o"
        if (owner, name) in ELIGIBLE:
            assert self.named(base) == "o", base
            return "E"
        if kind == "*":
            return self.list_of(base)
        one = self.named(base)
        if kind == "<>":
            return f"[{one}]"
        if kind == "[]":
            return one * self.number(size)
        return one

    def number(self, size):
        return int(size, 0) if size[0].isdigit() else self.constants[size]

    def list_of(self, base):
        """Returns the grammar of a pointer to a structure that ends with a pointer to its own type, the only kind of list in NFS."""
        _, members = self.types[base]
        assert members[-1][0] == base and members[-1][2] == "*", base
        return "*(" + "".join(self.grammar_of(m, base) for m in members[:-1]) + ")"

    def named(self, name):
        if name in BASIC:
            return BASIC[name]
        kind, *rest = self.types[name]
        if kind == "enum":
            return "w"
        if kind == "typedef":
            return self.grammar_of(rest[0], name)
        if kind == "struct":
            return "".join(self.grammar_of(m, name) for m in rest[0])
        text = ""
        for labels, declaration in rest[0]:
            body = self.grammar_of(declaration, name)
            for label in labels:
                text += ("_" if label == "default" else str(self.value(label))) + ":" + body + ";"
        return "{" + text + "}"

    def attributes(self, count):
        """Returns the grammars of the `count` attributes with the lowest numbers."""
        names = {number: name for name, number in self.constants.items() if name.startswith("FATTR4_")}
        return [(names[number].removeprefix("FATTR4_").lower(), self.named(names[number].lower())) for number in range(count)]

    def operations(self, union):
        """Maps operation numbers to (label, grammar) for a union over operations."""
        found = {}
        for labels, declaration in self.types[union][1]:
            for label in labels:
                if label != "default":
                    found[self.value(label)] = (label, self.grammar_of(declaration, union))
        return found


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = [line for line in re.findall(r"^ *///(.*)$", file.read(), re.M) if not line.lstrip().startswith("%")]
    xdr = Xdr("\n".join(lines))
    out = ["""// SPDX-License-Identifier: Apache-2.0
//
// Grammar of the arguments and results of each operation of NFS version 4, and of the attributes up to
// MAXWRITE. Constants. Generated by nfs4_grammar.py from the XDR of RFC 7863, which includes the XDR of
// RFC 7531 and of version 4.1, with the operations of RFC 8276 and the delegations of RFC 9754. The
// DDP-eligible items are defined in RFC 8267, section 6.1. Do not edit.
//
//   w  a word             o  an opaque or string         [x]  a counted array
//   d  two words          E  a DDP-eligible opaque       *(x) an optional-data list
//   {1:x;2:y;_:z;}  a union, in which a word selects an arm or the default _; words without an arm are errors
#pragma once

namespace sluice::ulb {

struct OperationGrammar {
  const char* name = nullptr;  ///< name of the operation; null if undefined
  const char* arguments = nullptr;
  const char* results = nullptr;
};

// clang-format off"""]
    for table, arguments, results, prefix in (("kNfs4Operations", "nfs_argop4", "nfs_resop4", "OP_"),
                                              ("kNfs4Callbacks", "nfs_cb_argop4", "nfs_cb_resop4", "OP_CB_")):
        args, res = xdr.operations(arguments), xdr.operations(results)
        assert args.keys() == res.keys(), args.keys() ^ res.keys()
        illegal = 10044
        if table == "kNfs4Operations":
            for number, name, argument, result in XATTR_OPERATIONS:
                args[number], res[number] = (name, argument), (name, result)
        numbers = [n for n in args if n != illegal]
        out.append(f"inline constexpr OperationGrammar {table}[] = {{")
        for number in range(max(numbers) + 1):
            if number not in args:
                out.append("    {},")
                continue
            name = args[number][0].removeprefix(prefix).lower()
            out.append(f'    {{"{name}", "{args[number][1]}", "{res[number][1]}"}},')
        out.append("};")
    out.append("inline constexpr const char* kNfs4Attributes[] = {")
    out += [f'    "{grammar}",  // {name}' for name, grammar in xdr.attributes(ATTRIBUTES)]
    out.append("};")
    out.append("""// clang-format on

}  // namespace sluice::ulb""")
    print("\n".join(out))


main()
