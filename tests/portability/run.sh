#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [trixie] [bookworm] [arm64]: builds and tests Sluice on other releases of Debian, each in a root file system made by mmdebstrap.
# Without arguments it runs all of:
#   trixie    installs the packages, builds and runs the suites unit and conformance; compiles the product with each other compiler
#   bookworm  compiles the product with each compiler
#   arm64     compiles the product for ARM64, with trixie's cross-compiler and libraries, and runs the GoogleTest programs of the suites
#             unit and conformance in an emulation of its processes
# Roots, build directories and compiler caches are kept in $SLUICE_PORTABILITY_CACHE (~/.cache/sluice-portability). Its folder logs
# contains the output of the steps. The first run takes about an hour on two cores and 8 GB. The last line is 'N passed, N failed[, N skipped]'.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
source=$(cd "$here/../.." && pwd)
cache=${SLUICE_PORTABILITY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice-portability}
passed=0 failed=0 skipped=0

finish() {
  local line="$passed passed, $failed failed"
  [ $skipped -eq 0 ] || line+=", $skipped skipped"
  echo "$line"
  exit $((failed > 0))
}
skip() { # NAME SENTENCE
  echo "   $1: skipped. $2"
  skipped=$((skipped + 1))
}

# Runs a command in a root, with separate PID and mount namespaces and /tmp; the sources are mounted
# read-only.
inside() { # ROOT COMMAND...
  local root=$cache/$1
  shift
  mkdir -p "$cache/ccache" "$root"/{sluice,ccache,build}
  unshare --mount --pid --fork --kill-child -- bash -euc '
    root=$1 source=$2 cache=$3
    shift 3
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs tmpfs "$root/tmp"
    mount --bind "$cache/ccache" "$root/ccache"
    mount --bind "$source" "$root/sluice"
    mount -o remount,bind,ro "$root/sluice"
    exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb CCACHE_DIR=/ccache \
      DEBIAN_FRONTEND=noninteractive bash /sluice/tests/portability/inside.sh "$@"' _ "$root" "$source" "$cache" "$@" &
  child=$!
  wait "$child"
}
# The command is process 1 of its namespace, and unshare waits for it. Both ignore SIGTERM.
child=
trap '[ -z "$child" ] || kill -KILL "$child" 2>/dev/null; exit 130' INT TERM

# Makes a root unless it exists, then updates its package lists.
prepared() { # ROOT RELEASE [ARCHITECTURES]
  local root=$cache/$1 log=$cache/logs/$1-root.log
  if [ ! -e "$cache/$1.made" ]; then
    echo "== $1: making the root"
    rm -rf --one-file-system "$root"
    mmdebstrap --quiet --variant=apt ${3:+--architectures="$3"} "$2" "$root" >"$log" 2>&1 || {
      skip "$1" "mmdebstrap could not make the root (no network? $(tail -n 1 "$log"))."
      return 1
    }
    touch "$cache/$1.made"
  fi
  inside "$1" online || echo "   $1: no Debian mirror answers, so the installed packages are used"
}

step() { # ROOT COMMAND...: counts its lines 'result passed|failed|skipped NAME'; without any, one failure
  local log="$cache/logs/$(tr -c 'a-z0-9+\n-' - <<<"$*").log" results
  echo "== $*"
  inside "$@" >"$log" 2>&1
  results=$(grep '^result ' "$log") || results="result failed $*"
  sed 's/^result /   /' <<<"$results"
  grep -q '^result failed' <<<"$results" && { echo "   see $log:"; grep -E 'error:|warning:|^FAILED|^E: |\[  FAILED' "$log" | head -n 20 | sed 's/^/   /'; }
  # A line counts as one case, or as the number of cases that it contains.
  passed=$((passed + $(awk '/^result passed/ { n += $4 == "cases" ? $3 : 1 } END { print n + 0 }' <<<"$results")))
  failed=$((failed + $(grep -c '^result failed' <<<"$results")))
  skipped=$((skipped + $(grep -c '^result skipped' <<<"$results")))
}

compilers() { # ROOT
  local compiler
  for compiler in $(inside "$1" compilers); do step "$1" product "$compiler"; done
}

parts=("$@")
[ $# -gt 0 ] || parts=(trixie bookworm arm64)
for part in "${parts[@]}"; do
  case $part in
    trixie | bookworm | arm64) ;;
    *) echo "usage: run.sh [trixie] [bookworm] [arm64]" >&2; exit 2 ;;
  esac
done
lacks=
[ "$(id -u)" -eq 0 ] || lacks="Only root can make and enter another root."
command -v mmdebstrap >/dev/null || lacks="mmdebstrap is missing: deploy/install-packages.sh tests installs it."
[ -n "$lacks" ] || unshare --mount --pid --fork true 2>/dev/null || lacks="This machine allows no mount namespaces."
if [ -n "$lacks" ]; then
  for part in "${parts[@]}"; do skip "$part" "$lacks"; done
  finish
fi

mkdir -p "$cache/logs"
for part in "${parts[@]}"; do
  case $part in
    trixie)
      prepared trixie trixie || continue
      step trixie packages
      step trixie suites
      compilers trixie
      ;;
    bookworm)
      prepared bookworm bookworm || continue
      compilers bookworm
      ;;
    arm64)
      prepared arm64 trixie amd64,arm64 || continue
      step arm64 cross
      step arm64 cross_suites
      ;;
  esac
done
finish
