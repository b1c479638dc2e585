#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/run.sh                    the quick tier: unit, conformance, isolation, fault and short fuzzing under ASan and UBSan,
#                                 and a short end-to-end test of each kind on the release build
# tests/run.sh all                everything; 'rest' is everything but the quick tier
# tests/run.sh SUITE...           suites by name; a wrong one prints the names
# tests/run.sh coverage           the requirements, row by row; fails when one is not shown
# tests/run.sh mutate [WHAT...]   mutation testing: breaks lines and reports those that no test notices (tests/mutation/README.md)
# tests/run.sh portability        builds and tests in a Debian 13, with other compilers, and for ARM64
# tests/run.sh bench [FIGURE...]  the figures, one line of JSON each
#
# The last lines are the seconds of each build and suite, and 'N passed, N failed'.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

bash deploy/install-packages.sh tests || exit 1
case "${1:-}" in
  bench)
    mkdir -p build-logs
    # As the package is built.
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
