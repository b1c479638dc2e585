#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the header equals the generator's output for RFC 7863. Skipped without the RFC.

nfs4_grammar_test.py GENERATOR HEADER RFC7863"""
import os
import subprocess
import sys

GENERATOR, HEADER, RFC = sys.argv[1:4]
if not os.path.exists(RFC):
    sys.exit(77)
made = subprocess.run([sys.executable, GENERATOR, RFC], capture_output=True, text=True, check=True).stdout
with open(HEADER, encoding="utf-8") as file:
    if file.read() != made:
        sys.exit(f"{HEADER} differs from what {GENERATOR} makes of {RFC}")
