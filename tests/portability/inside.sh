#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# inside.sh COMMAND [ARGUMENT]: the part of run.sh that runs inside a root file system. Prints a line
# 'result passed|failed|skipped NAME' for each check.
set -euo pipefail
cd /sluice
readonly product=(sluice-dataplane controlplane/sluice-controlplane cli/sluicectl cli/sluice-bench)
apt=(apt-get -qq -o Dpkg::Use-Pty=0)

check() { # NAME COMMAND...
  local name=$1
  shift
  if "$@"; then echo "result passed $name"; else echo "result failed $name"; fi
}

# Package lists are updated only if they are older than half a day.
online() { [ -n "$(find /var/lib/apt/lists -name '*Packages*' -mmin -720)" ] || "${apt[@]}" update --error-on=any; }

# Installs packages for the following steps. Without a network, the steps are skipped.
needs() { # NAME COMMAND...
  local name=$1
  shift
  "$@" && return
  if "${apt[@]}" update --error-on=any; then
    echo "result failed $name: its packages do not install"
  else
    echo "result skipped $name: packages are missing, and no mirror of Debian answers"
  fi
  exit 0
}

# --- Packages

no_daemon_is_enabled() { # when it is installed for the first time
  "${apt[@]}" -y purge prometheus
  bash deploy/install-packages.sh tests
  dpkg-query -W prometheus
  [ "$(systemctl --root=/ is-enabled prometheus)" = disabled ]
}

packages() {
  needs "packages" online
  check "every package of the tests' list exists and installs" bash deploy/install-packages.sh tests
  check "a daemon that the tests need is not enabled by installing it" no_daemon_is_enabled
  check "no policy of the installation is left behind" [ ! -e /usr/sbin/policy-rc.d -a -z "$(ls /run/systemd/system-preset)" ]
}

# --- Builds

configured() { # NAME OPTION...
  local dir=/build/$1
  shift
  if command -v mold >/dev/null; then export CC_LD=mold CXX_LD=mold; fi
  # The configuration is kept from run to run.
  [ -e "$dir/build.ninja" ] || { rm -rf "$dir" && meson setup "$dir" "$@"; }
}

built() { # NAME [TARGET...]
  local dir=/build/$1
  shift
  ninja -k 0 -C "$dir" "$@"
}

suites() {
  local targets
  needs "unit and conformance" bash deploy/install-packages.sh tests
  configured suites --buildtype=release && built suites build.ninja
  check "the product builds with $(c++ --version | head -n 1) and DPDK $(pkg-config --modversion libdpdk)" built suites "${product[@]}"
  read -ra targets <<<"$(python3 tests/portability/suites.py targets /build/suites)"
  check "unit and conformance tests build" built suites "${targets[@]}"
  meson test -C /build/suites --no-rebuild --print-errorlogs --suite unit --suite conformance || true
  python3 tests/portability/suites.py results /build/suites
}

# Versions of gcc 12 to 14 and clang 14 to 19 that the release provides.
compilers() { apt-cache pkgnames | grep -E '^(g\+\+-1[2-4]|clang-1[4-9])$' | sort -V; }

# gcc requires its optimizer for some warnings; clang does not.
product() { # PACKAGE
  local cxx=${1/clang-/clang++-} options=(--buildtype=release)
  [ "$cxx" = "$1" ] || options=(--buildtype=debug -Ddebug=false)
  needs "the product with $cxx" "${apt[@]}" -y install --no-install-recommends ccache mold "$1"
  needs "the product with $cxx" bash deploy/install-packages.sh product
  export CXX=$cxx CC=${cxx/++/}
  CC=${CC/#g-/gcc-}
  configured "$cxx" "${options[@]}"
  check "the product compiles with $cxx and DPDK $(pkg-config --modversion libdpdk)" built "$cxx" "${product[@]}"
}

cross() {
  local package tools=() libraries=()
  # Libraries and headers of the product's packages are installed for ARM64; programs for the architecture of
  # this host.
  while read -r package; do
    case $package in
      g++) tools+=(g++-aarch64-linux-gnu cpp) ;; # cpp: for rpcgen
      *-dev) if apt-cache show "$package:arm64" >/dev/null 2>&1; then libraries+=("$package:arm64"); else libraries+=("$package"); fi ;;
      *) tools+=("$package") ;;
    esac
  done < <(sed -e 's/#.*//' -e 's/ *|.*//' -e '/^ *$/d' deploy/packages.txt)
  libraries+=(libgtest-dev:arm64 libgmock-dev:arm64)
  needs "ARM64" "${apt[@]}" -y install --no-install-recommends ccache qemu-user "${tools[@]}" "${libraries[@]}"
  cat >/build/arm64.ini <<'INI'
[binaries]
c = ['ccache', 'aarch64-linux-gnu-gcc']
cpp = ['ccache', 'aarch64-linux-gnu-g++']
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkg-config = 'pkg-config'
exe_wrapper = 'qemu-aarch64'
[properties]
pkg_config_libdir = '/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig'
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'armv8-a'
endian = 'little'
INI
  configured arm64 --buildtype=release --cross-file /build/arm64.ini
  check "the product compiles for ARM64, DPDK and all" built arm64 "${product[@]}"
  check "it is ARM64's" bash -c 'aarch64-linux-gnu-readelf -h /build/arm64/sluice-dataplane | grep -q "Machine: *AArch64"'
}

# Runs the GoogleTest programs of the suites unit and conformance in QEMU's emulation of a process. A program that needs a system call that
# the emulation does not have skips its tests.
cross_suites() {
  local targets
  read -ra targets <<<"$(python3 tests/portability/suites.py targets /build/arm64 gtest)"
  check "unit and conformance tests build for ARM64" built arm64 "${targets[@]}"
  read -ra targets <<<"$(python3 tests/portability/suites.py names /build/arm64 gtest)"
  meson test -C /build/arm64 --no-rebuild --print-errorlogs -t 10 "${targets[@]}" || true
  python3 tests/portability/suites.py results /build/arm64
}

"$@"; exit
