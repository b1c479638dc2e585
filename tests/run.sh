#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/run.sh                    the quick tier: unit, conformance, fault and short fuzzing under ASan and UBSan, and a short
#                                 real thing of each kind on the release build
# tests/run.sh all                everything there is; 'rest' is what the quick tier leaves
# tests/run.sh SUITE...           suites by name; a wrong one prints the names
# tests/run.sh coverage           the requirements, row by row; fails when one is not shown
# tests/run.sh mutate [WHAT...]   breaks lines and looks which of them no test notices (tests/mutation/README.md)
# tests/run.sh portability        builds and tests in a Debian 13, with other compilers, and for ARM64
# tests/run.sh bench [FIGURE...]  the figures, one line of JSON each
#
# It ends in the seconds of each build and suite and the line 'N passed, N failed'.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

bash deploy/install-packages.sh tests || exit 1
case "${1:-}" in
  bench)
    mkdir -p build-logs
    [ -f build/build.ninja ] || meson setup build --buildtype=release >build-logs/bench-setup.log 2>&1 || { cat build-logs/bench-setup.log; exit 1; }
    read -ra targets < <(python3 tests/bench/run.py --targets | tr '\n' ' ')
    ninja -C build "${targets[@]}" >build-logs/bench.log 2>&1 || { tail -60 build-logs/bench.log; exit 1; }
    exec python3 tests/bench/run.py build "${@:2}"
    ;;
  mutate) exec python3 tests/mutation/mutate.py "${@:2}" ;;
  portability) exec bash tests/portability/run.sh "${@:2}" ;;
esac
exec python3 tests/runner/main.py "$@"
