#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh FUZZER TARGET TESTS_FOLDER CORPUS [SECONDS]: seeds the corpus and runs the fuzzer, by default for ten seconds.
set -euo pipefail

counters() { size -A "$@" | awk '$1 == "__sancov_cntrs" { sum += $2 } END { print sum + 0 }'; }
if [ "$(counters "$1")" -le "$(counters "$1".p/*.o)" ]; then
  echo "The libraries are built without coverage counters, so libFuzzer could not guide its mutations. See fuzz_coverage in meson.build." >&2
  exit 1
fi

python3 "$3/fuzz/seed.py" "$3/golden" "$2" "$4"
exec "$1" -max_total_time="${5:-10}" -max_len=8192 -rss_limit_mb=4096 -print_final_stats=1 "$4"
