#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rpcgen names the header after the input's path: rpcgen.sh RPCGEN INPUT OUTPUT HEADER
set -e
rm -f "$3"
"$1" -c -o "$3" "$2"
sed -i "s|^#include \".*\"|#include \"$4\"|" "$3"
