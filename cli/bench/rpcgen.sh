#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rpcgen.sh RPCGEN INPUT OUTPUT HEADER: generates XDR functions, and makes them include HEADER. rpcgen itself derives the name of the
# header from the input's path.
set -e
rm -f "$3"
"$1" -c -o "$3" "$2"
sed -i "s|^#include \".*\"|#include \"$4\"|" "$3"
