#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/run.sh                    every suite, under every build; ends in one line 'N passed, N failed'
# tests/run.sh SUITE...           some of: unit conformance fault operations fuzz interop tidy
# tests/run.sh bench [FIGURE...]  the figures, one line of JSON each
# tests/run.sh coverage           the requirement coverage of the conformance and unit tests
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
readonly logs=build-logs

setup() {  # DIRECTORY OPTION...
  local dir=$1
  shift
  mkdir -p "$logs"
  local log="$logs/$(basename "$dir").setup.log"
  [ -f "$dir/build.ninja" ] || meson setup "$dir" "$@" >"$log" 2>&1 || { cat "$log"; exit 1; }
}

build() {  # DIRECTORY [SUITE...]: everything, or what these suites need
  local dir=$1 log="$logs/$(basename "$1").build.log" targets=()
  shift
  echo "== building $dir"
  mkdir -p "$logs"
  if [ $# -gt 0 ]; then
    ninja -C "$dir" build.ninja >"$log" 2>&1 || { tail -60 "$log"; exit 1; }
    read -ra targets <<<"$(python3 tests/targets.py "$dir" "$@")"
  fi
  ninja -C "$dir" "${targets[@]}" >"$log" 2>&1 || { tail -60 "$log"; exit 1; }
}

results=()
left_out=()
# Where a run is ended from outside after some time, one that ends itself before keeps its results.
readonly budget_s=${SLUICE_TEST_BUDGET_S:-0}
run_suites() {  # DIRECTORY SUITE...
  local dir=$1
  shift
  if [ "$budget_s" -gt 0 ] && [ "$SECONDS" -ge "$budget_s" ]; then
    left_out+=("$dir:$*")
    return
  fi
  local args=()
  for suite in "$@"; do args+=(--suite "$suite"); done
  local log="$logs/$(basename "$dir")-$(IFS=-; echo "$*")"
  echo "== $dir: $*"
  meson test -C "$dir" --no-rebuild --print-errorlogs --logbase "testlog-$(IFS=-; echo "$*")" "${args[@]}" >"$log.log" 2>&1
  grep -E "^ *[0-9]+/[0-9]+ |No suitable tests|^FAILED|\[  FAILED" "$log.log" | sed 's/^/   /'
  results+=("$dir/meson-logs/testlog-$(IFS=-; echo "$*").junit.xml")
}

options_normal=(--buildtype=release)
# -g1: reports name lines; what a debugger wants besides takes as long to compile as the code.
options_sanitizer=(-Db_lundef=false --buildtype=debugoptimized -Doptimization=1 -Dcpp_args=-g1)

# ASan and UBSan, by clang: the fuzz targets need it, and stand on the same libraries as the tests.
build_asan() {  # SUITE...
  CC=clang CXX=clang++ setup build-asan -Db_sanitize=address,undefined -Dwerror=false "${options_sanitizer[@]}"
  build build-asan "$@"
}
# TSan: the tests that have threads.
build_tsan() {
  setup build-tsan -Db_sanitize=thread "${options_sanitizer[@]}"
  build build-tsan tsan
}

bash deploy/install-packages.sh || exit 1

case "${1:-}" in
  bench)
    shift
    setup build "${options_normal[@]}"
    build build
    exec python3 tests/bench/run.py build "$@"
    ;;
  coverage)
    setup build "${options_normal[@]}"
    build build
    run_suites build unit >/dev/null
    run_suites build conformance >/dev/null
    exec python3 tests/conformance/coverage.py tests/conformance/requirements.txt "${results[@]}"
    ;;
esac

suites=("$@")
[ $# -eq 0 ] && suites=(tidy unit conformance fault operations fuzz interop)

setup build "${options_normal[@]}"
build build
sanitized=()
for suite in "${suites[@]}"; do
  case "$suite" in
    unit | conformance | fault | fuzz) sanitized+=("$suite") ;;
    tidy | operations | interop) ;;
    *) echo "Unknown suite '$suite': there are unit conformance fault operations fuzz interop tidy bench coverage." >&2; exit 2 ;;
  esac
done
# They compile while the suites run, which wait for a good part of their time.
if [ ${#sanitized[@]} -gt 0 ]; then
  (renice -n 19 -p "$BASHPID" >/dev/null; build_asan "${sanitized[@]}" && { [ "${sanitized[*]}" = fuzz ] || build_tsan; }) >"$logs/sanitizers.log" 2>&1 &
  sanitizers=$!
fi
for suite in "${suites[@]}"; do
  [ "$suite" = fuzz ] || run_suites build "$suite"
done
if [ ${#sanitized[@]} -gt 0 ]; then
  echo "== building build-asan build-tsan"
  wait "$sanitizers" || { cat "$logs/sanitizers.log"; exit 1; }
  export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  for suite in "${sanitized[@]}"; do run_suites build-asan "$suite"; done
  export TSAN_OPTIONS=halt_on_error=1
  [ "${sanitized[*]}" = fuzz ] || run_suites build-tsan tsan
fi
[ ${#left_out[@]} -eq 0 ] || echo "Not run, since $budget_s seconds were over: ${left_out[*]}"
python3 tests/summary.py "${results[@]}"
