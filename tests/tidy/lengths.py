# SPDX-License-Identifier: Apache-2.0
"""Lengths of functions. Parses only the C++ that formatted code requires: comments, literals, preprocessor lines, braces."""
import ast
import re

# Text before the brace of constructs that are not functions: it begins or ends like this.
NO_FUNCTION = re.compile(r"^(?:template\s*<.*>\s*)?(?:inline\s+)?(?:namespace|class|struct|union|enum|extern)\b(?!.*\)\s*"
                         r"(?:const|noexcept|override|final|\s)*$)|[=,(]\s*$|\breturn\s*$", re.S)
BLANKED = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'|"""
                     r"^[ \t]*#(?:\\\n|[^\n])*", re.S | re.M)


def blanked(text):
    """Returns the text without comments, literals and preprocessor lines, which may contain braces. Line breaks are kept."""
    return BLANKED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def cpp_functions(text):
    """Yields (first line, lines, text before the brace) of each function that is not inside another."""
    code = blanked(text)
    stack = []  # for each open brace: (start of header, first line, header) of its function, or None
    inside = 0  # number of open functions
    start = 0
    for at in (match.start() for match in re.finditer(r"[{};]", code)):
        header = code[start:at].strip()
        if code[at] == "{":
            function = not inside and "(" in header and not NO_FUNCTION.search(header)
            first = code.count("\n", 0, start + len(code[start:at]) - len(code[start:at].lstrip())) + 1
            stack.append((start, first, header) if function else None)
            inside += function
        elif code[at] == "}" and stack:
            entry = stack.pop()
            if entry:
                inside -= 1
                header_start, first, header = entry
                if re.match(r"\s*[,{]", code[at + 1:at + 200]):  # a member initializer: the body follows
                    start = header_start
                    continue
                yield first, code.count("\n", 0, at) + 2 - first, " ".join(header.split())
        start = at + 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno + 1 - node.lineno, node.name


def functions(name, text):
    return python_functions(text) if name.endswith(".py") else cpp_functions(text)
