# SPDX-License-Identifier: Apache-2.0
"""Mutation points: finds them with libclang, and writes sources that hold many mutants behind run-time switches.

A point is a dict, so that it can be stored and compared:
  file, line, start, end   where it is; byte offsets
  kind                     negated, widened, narrowed, turned, bound, dropped, release
  change                   description of the change, with the code
  text                     the source line, without indentation
  template, spans          replacement in the mutated source: {0}, {1} are the source of spans, {id} is the mutant's number
  constant                 whether it is in a function that the compiler may evaluate
"""
import os
import re
import zlib

from clang import cindex
from clang.cindex import CursorKind as K

RELATIONAL = {"<": ("<=", "widened"), "<=": ("<", "narrowed"), ">": (">=", "widened"), ">=": (">", "narrowed")}
EQUALITY = {"==": "!=", "!=": "=="}
RELEASE = re.compile(r"(release|free|unlink|remove|pop|reset|close|erase|clear|unmap|destroy|invalidate|detach|cancel|give_back|abandon|forget|drop|retire|end_)", re.I)
LITERAL = re.compile(r"(0[xX][0-9a-fA-F']+|0[bB][01']+|\d[\d']*)[uUlLzZ]*$")
CONSTANT = re.compile(r"(\w+::)*k[A-Z]\w*$")
ON = "::sluice::mutation::on({id})"
LOOPS = (K.FOR_STMT, K.WHILE_STMT, K.DO_STMT, K.CXX_FOR_RANGE_STMT)
FUNCTIONS = (K.FUNCTION_DECL, K.CXX_METHOD, K.CONSTRUCTOR, K.DESTRUCTOR, K.CONVERSION_FUNCTION, K.FUNCTION_TEMPLATE)
# Declarations, and expressions that the compiler evaluates. Initializers of fields are defaults, not bounds.
SKIPPED = (K.STATIC_ASSERT, K.ENUM_DECL, K.CXX_UNARY_EXPR, K.TYPE_ALIAS_DECL, K.TYPEDEF_DECL, K.USING_DECLARATION, K.TEMPLATE_NON_TYPE_PARAMETER, K.FIELD_DECL)
STATEMENTS = (K.CALL_EXPR, K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR, K.UNARY_OPERATOR, K.CXX_THROW_EXPR, K.CXX_DELETE_EXPR)


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S).strip()


class Finder:
    """The points of one file of a translation unit."""

    def __init__(self, file, source):
        self.file, self.source = file, source
        self.lines = source.split(b"\n")
        self.points = {}
        self.constant = False  # within a function that is constexpr

    def slice(self, start, end):
        return self.source[start:end].decode()

    def of(self, cursor):
        return self.slice(cursor.extent.start.offset, cursor.extent.end.offset)

    def add(self, kind, start, end, line, change, template, spans):
        key = (start, end, kind, template)
        if start < end and key not in self.points:
            text = squeezed(self.lines[line - 1].decode())
            self.points[key] = {"file": self.file, "line": line, "start": start, "end": end, "kind": kind, "change": change, "text": text,
                                "template": template, "spans": spans, "constant": self.constant}

    def negate(self, cursor):
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        text = self.of(cursor)
        if text in ("true", "false", "") or LITERAL.match(text):
            return
        self.add("negated", start, end, cursor.extent.start.line, f"condition negated: {squeezed(text)}", f"({ON} != static_cast<bool>({{0}}))", [[start, end]])

    def drop(self, cursor):
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        text = squeezed(self.of(cursor))
        after = without_comments(self.slice(end, end + 120))
        if not after.startswith(";"):
            return  # the tail of a macro
        callee = text.split("(")[0]
        release = cursor.kind == K.CXX_DELETE_EXPR or (cursor.kind == K.CALL_EXPR and RELEASE.search(callee))
        kind, words = ("release", "release left out") if release else ("dropped", "statement dropped")
        self.add(kind, start, end, cursor.extent.start.line, f"{words}: {text}", f"({ON} ? void() : void(({{0}})))" if cursor.kind != K.CXX_THROW_EXPR
                 else f"({ON} ? void() : ({{0}}))", [[start, end]])

    def drop_jump(self, cursor):
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        if not without_comments(self.slice(end, end + 120)).startswith(";"):
            return
        end = self.source.index(b";", end) + 1
        text = squeezed(self.slice(start, end))
        self.add("dropped", start, end, cursor.extent.start.line, f"statement dropped: {text}", f"{{{{ if (!{ON}) {{0}} }}}}", [[start, end]])

    def compare(self, cursor, is_condition):
        left, right = list(cursor.get_children())[:2]
        ls, le = left.extent.start.offset, left.extent.end.offset
        rs, re_ = right.extent.start.offset, right.extent.end.offset
        operator = without_comments(self.slice(le, rs))
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        if (ls, re_) != (start, end):
            return
        if operator in RELATIONAL:
            other, kind = RELATIONAL[operator]
        elif operator in EQUALITY and not is_condition:  # otherwise it would equal the negated condition
            other, kind = EQUALITY[operator], "turned"
        else:
            return
        self.add(kind, start, end, cursor.extent.start.line, f"comparison {kind}: {squeezed(self.of(cursor))}, {operator} becomes {other}",
                 f"({ON} ? ({{0}}) {other} ({{1}}) : ({{0}}) {operator} ({{1}}))", [[ls, le], [rs, re_]])

    def bound(self, cursor, in_constexpr, above, within):
        """`above`: the operator, or 'call' or '[', that the number is an operand of; `within`: the expression of that."""
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        text = self.of(cursor)
        if cursor.kind == K.INTEGER_LITERAL and not LITERAL.match(text):
            return
        zero = re.match(r"0+[uUlL]*$", text)
        octal = re.match(r"0\d", text)  # modes of files
        if above in (None, "==", "!=", "=", ",") or octal or (zero and above in ("call", "+", "-")):
            return
        if cursor.kind == K.DECL_REF_EXPR and not (CONSTANT.match(text) and cursor.type.get_canonical().kind.name in (
                "USHORT", "UINT", "ULONG", "ULONGLONG", "SHORT", "INT", "LONG", "LONGLONG", "UCHAR")):
            return
        if self.source[start - 1:start] == b"<" or self.source[end:end + 1] == b">":
            return  # a template's argument
        line = self.lines[cursor.extent.start.line - 1].strip()
        up = zero or zlib.crc32(line + text.encode()) % 2  # random, but independent of the position of the line
        function = "moved_in_constexpr" if in_constexpr else "moved"
        step = 1 if up else -1
        whole_start, whole_end = within.extent.start.offset, within.extent.end.offset
        other = f"{self.slice(whole_start, start)}[{text} {'+' if up else '-'} 1]{self.slice(end, whole_end)}"
        self.add("bound", start, end, cursor.extent.start.line, f"bound off by one: {squeezed(other)}",
                 f"::sluice::mutation::{function}({{id}}, {step}, {{0}})", [[start, end]])

    def conditions_of(self, cursor, children):
        """Returns the conditions of a statement."""
        if cursor.kind in (K.IF_STMT, K.WHILE_STMT, K.SWITCH_STMT):
            first = children[0]
            if first.kind not in (K.DECL_STMT, K.VAR_DECL):
                return children[:1]
            after = [c for c in children[1:2] if c.extent.start.offset >= first.extent.end.offset]
            return after if len(children) > 2 else []
        if cursor.kind == K.DO_STMT:
            return children[-1:]
        if cursor.kind == K.FOR_STMT:
            start = cursor.extent.start.offset
            semicolons = [start + i for i in top_level(self.slice(start, children[-1].extent.start.offset), ";")]
            if len(semicolons) < 2:
                return []
            return [c for c in children[:-1] if semicolons[0] < c.extent.start.offset < semicolons[1]]
        return []

    def walk(self, cursor, in_constexpr=False, is_condition=False, in_loop=False, in_switch=False, above=None,
             within=None):
        kind = cursor.kind
        if kind in SKIPPED or kind.is_attribute():
            return
        if kind in FUNCTIONS:
            head = self.slice(cursor.extent.start.offset, max(cursor.location.offset, cursor.extent.start.offset))
            if "consteval" in head:
                return
            in_constexpr = "constexpr" in head
        self.constant = in_constexpr
        children = list(cursor.get_children())
        if kind in (K.VAR_DECL, K.PARM_DECL):
            head = self.slice(cursor.extent.start.offset, max(cursor.location.offset, cursor.extent.start.offset))
            if "constexpr" in head or "constinit" in head or (kind == K.VAR_DECL and cursor.semantic_parent.kind in (K.NAMESPACE, K.TRANSLATION_UNIT)):
                return
            children = [c for c in children if c.extent.start.offset > cursor.location.offset and not self.is_dimension(cursor, c)]
        if kind == K.CASE_STMT:
            children = children[1:]
        if kind == K.IF_STMT and re.match(r"if\s+constexpr", self.of(cursor)[:20]):
            children = children[1:]
            conditions = []
        else:
            conditions = self.conditions_of(cursor, children) if children else []
        if kind == K.CONDITIONAL_OPERATOR:
            conditions = children[:1]
        operands = []
        if kind == K.BINARY_OPERATOR and len(children) == 2:
            operator = without_comments(self.slice(children[0].extent.end.offset, children[1].extent.start.offset))
            if operator in ("&&", "||"):
                operands = children
            else:
                self.compare(cursor, is_condition)
            above, within = operator, cursor
        elif kind in (K.CALL_EXPR, K.ARRAY_SUBSCRIPT_EXPR, K.COMPOUND_ASSIGNMENT_OPERATOR):
            above, within = {K.CALL_EXPR: "call", K.ARRAY_SUBSCRIPT_EXPR: "["}.get(kind, "op="), cursor
        elif kind in (K.INTEGER_LITERAL, K.DECL_REF_EXPR):
            self.bound(cursor, in_constexpr, above, within)
        elif kind not in (K.PAREN_EXPR, K.UNEXPOSED_EXPR):
            above = None
        if kind in LOOPS:
            in_loop, in_switch = True, False
        if kind == K.SWITCH_STMT:
            in_switch, conditions = True, []
        decided = {c.hash for c in conditions + operands}
        for child in children:
            if child.hash in decided:
                self.negate(child)
            elif self.is_statement(cursor, child, children):
                self.statement(child, in_loop, in_switch)
            self.walk(child, in_constexpr, child.hash in decided or (is_condition and kind in (K.PAREN_EXPR, K.UNEXPOSED_EXPR)), in_loop, in_switch,
                      above, within)
            self.constant = in_constexpr

    def is_dimension(self, declared, child):
        return self.source[child.extent.start.offset - 1:child.extent.start.offset] == b"[" and child.extent.start.offset < declared.extent.end.offset

    def is_statement(self, parent, child, children):
        if parent.kind == K.COMPOUND_STMT:
            return True
        if parent.kind == K.IF_STMT or parent.kind in (K.WHILE_STMT, K.FOR_STMT, K.CXX_FOR_RANGE_STMT):
            before = self.source[:child.extent.start.offset].rstrip()[-4:]
            return before.endswith((b")", b"else")) and child.hash != children[0].hash
        return parent.kind in (K.CASE_STMT, K.DEFAULT_STMT)

    def statement(self, cursor, in_loop, in_switch):
        kind = cursor.kind
        if kind == K.UNEXPOSED_EXPR:  # with clean-ups or a conversion around it
            inner = list(cursor.get_children())
            if len(inner) == 1 and inner[0].extent == cursor.extent:
                return self.statement(inner[0], in_loop, in_switch)
        if kind in STATEMENTS or kind == K.UNEXPOSED_EXPR:
            self.drop(cursor)
        elif kind == K.CONTINUE_STMT or (kind == K.BREAK_STMT and in_loop and not in_switch) or (kind == K.RETURN_STMT and not list(cursor.get_children())):
            self.drop_jump(cursor)
        return None


def top_level(text, wanted):
    """Returns the position of `wanted` inside the first parenthesis of text, outside of nested ones."""
    depth, found = 0, []
    for i, c in enumerate(re.sub(r"'.'|\"[^\"]*\"", lambda m: "_" * len(m.group()), text)):
        depth += (c in "([{") - (c in ")]}")
        if c == wanted and depth == 1:
            found.append(i)
    return found


def flags_of(command, folder):
    """Returns the compiler arguments that a parser needs, from an entry of compile_commands.json."""
    import shlex
    words = shlex.split(command)
    while words and not words[0].startswith("-"):
        words.pop(0)
    kept, skip = [], False
    for word in words:
        if skip or word in ("-MD", "-MMD", "-c") or word.endswith((".cc", ".o")):
            skip = False
        elif word in ("-MQ", "-MF", "-o", "-MT", "-Xclang"):  # options for the front end alone are about precompiled headers
            skip = True
        elif word.startswith(("-I", "-isystem", "-D", "-std", "-m", "-f", "-W")) and not word.startswith(("-fsanitize", "-mmem")):
            kept.append(word)
    return kept + ["-working-directory=" + folder, "-Wno-everything", "-ferror-limit=0"]


def points_of(root, unit, flags, wanted):
    """Returns {file: [point]} of the files in `wanted` (relative to root) that the translation unit includes."""
    tu = cindex.Index.create().parse(unit, args=flags)
    fatal = [str(d) for d in tu.diagnostics if d.severity >= 3]
    if fatal:
        raise RuntimeError(f"{unit} cannot be parsed: {fatal[0]}")
    finders = {}
    for cursor in tu.cursor.get_children():
        place = cursor.location.file
        name = os.path.relpath(os.path.realpath(place.name if os.path.isabs(place.name) else os.path.join(flags_folder(flags), place.name)), root) if place else None
        if name not in wanted:
            continue
        if name not in finders:
            with open(os.path.join(root, name), "rb") as file:
                finders[name] = Finder(name, file.read())
        finders[name].walk(cursor)
    return {name: list(finder.points.values()) for name, finder in finders.items()}


def flags_folder(flags):
    return next(f.split("=", 1)[1] for f in flags if f.startswith("-working-directory="))


def with_mutants(source, points):
    """Returns the source with a switch at each point; points have 'id'. Line breaks keep their places as far as operands allow."""
    # Among points with the same extent, those that wrap all of it are outermost.
    order = sorted(points, key=lambda p: (p["start"], -p["end"], p["spans"] != [[p["start"], p["end"]]]))

    def render(start, end, inside):
        out, at, i = b"", start, 0
        while i < len(inside):
            point = inside[i]
            j = i + 1
            while j < len(inside) and inside[j]["start"] < point["end"]:
                j += 1
            nested = inside[i + 1:j]
            parts = [render(s, e, [p for p in nested if s <= p["start"] and p["end"] <= e]).decode() for s, e in point["spans"]]
            out += source[at:point["start"]] + point["template"].format(*parts, id=point["id"]).encode()
            at, i = point["end"], j
        return out + source[at:end]

    return b'#include "tests/mutation/support/mutant.h"\n' + render(0, len(source), order)
