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
run_suites() {  # DIRECTORY SUITE...
  local dir=$1
  shift
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
options_asan=(-Db_sanitize=address,undefined -Db_lundef=false --buildtype=debugoptimized -Doptimization=1 -Dcpp_args=-g1)
options_tsan=(-Db_sanitize=thread -Db_lundef=false --buildtype=debugoptimized -Doptimization=1 -Dcpp_args=-g1)

options_fuzz=(-Db_sanitize=address,undefined -Db_lundef=false -Dwerror=false --buildtype=debugoptimized -Doptimization=1 -Dcpp_args=-g1)

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
wants() { [[ " ${suites[*]} " == *" $1 "* ]]; }

setup build "${options_normal[@]}"
build build
in_all_builds=()
for suite in "${suites[@]}"; do
  case "$suite" in
    fuzz)
      CC=clang CXX=clang++ setup build-fuzz "${options_fuzz[@]}"
      build build-fuzz fuzz
      run_suites build-fuzz fuzz
      ;;
    tidy | unit | conformance | fault | operations | interop) run_suites build "$suite" ;;
    *) echo "Unknown suite '$suite': there are unit conformance fault operations fuzz interop tidy bench coverage." >&2; exit 2 ;;
  esac
  case "$suite" in unit | conformance | fault) in_all_builds+=("$suite") ;; esac
done
if [ ${#in_all_builds[@]} -gt 0 ]; then
  export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  setup build-asan "${options_asan[@]}"
  build build-asan "${in_all_builds[@]}"
  for suite in "${in_all_builds[@]}"; do run_suites build-asan "$suite"; done
  export TSAN_OPTIONS=halt_on_error=1
  setup build-tsan "${options_tsan[@]}"
  build build-tsan tsan
  run_suites build-tsan tsan
fi
python3 tests/summary.py "${results[@]}"
