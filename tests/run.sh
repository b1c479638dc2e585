#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/run.sh                    runs the quick tier: unit, conformance, isolation, fault and short fuzzing under ASan and UBSan,
#                                 and a short end-to-end test of each kind on the release build
# tests/run.sh all                runs everything; 'rest' runs everything except the quick tier
# tests/run.sh SUITE...           runs suites by name; an unknown name prints the names
# tests/run.sh SUITE... KERNEL=6.12   uses a guest with this kernel (6.1, 6.12 or newest) and the programs of its release of Debian
# tests/run.sh SUITE... UPSTREAM=newest   uses the nfs-ganesha of Debian's sid as upstream
# tests/run.sh coverage           prints the requirements row by row, and fails if one is not shown
# tests/run.sh mutate [WHAT...]   changes lines, and reports the changes that no test detects (tests/mutation/README.md)
# tests/run.sh portability        builds and tests on Debian 13, with other compilers, and for ARM64
# tests/run.sh bench [FIGURE...]  measures figures, and prints one line of JSON for each
#
# The last lines are the seconds of each build and suite, and 'N passed, N failed[, N skipped]'.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

words=()
for word in "$@"; do
  case $word in
    KERNEL=*) export SLUICE_GUEST_KERNEL=${word#KERNEL=} ;;
    UPSTREAM=newest) export SLUICE_UPSTREAM=newest ;;
    *) words+=("$word") ;;
  esac
done
set -- ${words[@]+"${words[@]}"}

bash deploy/install-packages.sh tests || exit 1
case "${1:-}" in
  bench)
    mkdir -p build-logs
    # The build has the options of the package.
    [ -f build-bench/build.ninja ] || meson setup build-bench --buildtype=release -Db_lto=true >build-logs/bench-setup.log 2>&1 ||
      { cat build-logs/bench-setup.log; exit 1; }
    read -ra targets < <(python3 tests/bench/run.py --targets | tr '\n' ' ')
    ninja -C build-bench "${targets[@]}" >build-logs/bench.log 2>&1 || { tail -60 build-logs/bench.log; exit 1; }
    exec python3 tests/bench/run.py build-bench "${@:2}"
    ;;
  mutate) exec python3 tests/mutation/mutate.py "${@:2}" ;;
  portability) exec bash tests/portability/run.sh "${@:2}" ;;
esac
exec python3 tests/runner/main.py "$@"
