# SPDX-License-Identifier: Apache-2.0
# Sourced by image.sh and newest_root.sh, which have set `cache`.
#
# use_release SUITE makes apt-get and apt-cache use the packages of a release of Debian other than this machine's. The release has separate
# lists, which are fetched once a day. The mirror is that of this machine, and may be a snapshot: signatures are checked, dates are not.
# The exit status is 75 if the lists cannot be fetched.
use_release() {
  local suite=$1 lists mirror
  if [ "$suite" = "$(. /etc/os-release; echo "${VERSION_CODENAME:-}")" ]; then return 0; fi
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' | awk '$2 == "main" && $1 !~ /security/ {print $1; exit}')
  lists="$cache/apt-$suite"
  mkdir -p "$lists"/{lists/partial,archives/partial}
  touch "$lists/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian/} $suite main" > "$lists/sources.list"
  printf '%s\n' "Dir::State \"$lists\";" "Dir::State::status \"$lists/status\";" "Dir::Cache \"$lists\";" \
    "Dir::Etc::sourcelist \"$lists/sources.list\";" 'Dir::Etc::sourceparts "/dev/null";' 'APT::Architecture "amd64";' 'Acquire::Check-Valid-Until "false";' > "$lists/apt.conf"
  export APT_CONFIG="$lists/apt.conf"
  exec 8> "$lists/lock"
  flock 8
  if [ -z "$(find "$lists/updated" -mtime -1 2>/dev/null)" ]; then
    apt-get update -q >&2 || exit 75
    touch "$lists/updated"
  fi
  flock -u 8
}
