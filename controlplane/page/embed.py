#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a C++ header with the status page and its content security policy. The policy permits only the page's own style and script, by
their hashes.

embed.py STATUS.HTML HEADER"""
import base64
import hashlib
import re
import sys

END = "end_of_page"


def sources(page, tag):
    """Returns the sources that the policy permits for the page's elements of one kind."""
    found = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    assert found and page.count(f"<{tag}") == len(found), f"A {tag} element has attributes. Only elements without attributes are permitted by their hash."
    return " ".join("'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'" for text in found)


def main(source, header):
    with open(source, encoding="utf-8") as file:
        page = file.read()
    assert f"){END}" not in page
    policy = (f"default-src 'none'; connect-src 'self'; style-src {sources(page, 'style')}; script-src {sources(page, 'script')}; "
              "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
    with open(header, "w", encoding="utf-8") as file:
        file.write(f"""// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace sluice::page {{

inline constexpr const char* kContentSecurityPolicy = "{policy}";
inline constexpr std::string_view kStatusHtml = R"{END}({page}){END}";

}}  // namespace sluice::page
""")


if __name__ == "__main__":
    main(*sys.argv[1:])
