#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build-image.sh PACKAGE FOLDER: writes an OCI layout into FOLDER from a Debian package of Sluice. The layout has an image for each
# plane, tagged controlplane and dataplane. Both images share one layer: Debian's essential packages, the package, and its dependencies.
# Downloads packages only from Debian mirrors. Requires no daemon; requires root, or a user that may create user namespaces.
# $SLUICE_IMAGE_RELEASE is the Debian release, by default that of this machine.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: build-image.sh PACKAGE FOLDER" >&2; exit 2; }
for program in dpkg-scanpackages mmdebstrap umoci; do
  command -v $program >/dev/null || { echo "$program is not installed. Install dpkg-dev, mmdebstrap and umoci." >&2; exit 1; }
done
package=$(readlink -f "$1")
version=$(dpkg-deb -f "$package" Version)
architecture=$(dpkg-deb -f "$package" Architecture)
release=${SLUICE_IMAGE_RELEASE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
mkdir -p "$2"
out=$(readlink -f "$2")
[ ! -e "$out/index.json" ] || { echo "$out already contains an image. Remove it first." >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

# Apt installs the package from a repository that contains only this package.
mkdir "$work/repository"
cp "$package" "$work/repository/"
(cd "$work/repository" && dpkg-scanpackages -m . 2>/dev/null >Packages)

# Creates the folders that a plane's unit and tmpfiles.d would create. Documentation is left out, but licenses are kept.
mmdebstrap --quiet --variant=essential --architectures="$architecture" \
  --include="sluice-gateway,systemd-standalone-sysusers,librte-meta-net,librte-meta-mempool,ibverbs-providers" \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --customize-hook='chroot "$1" install -d -o root -g sluice-controlplane -m 1775 /run/sluice' \
  --customize-hook='chroot "$1" install -d -o root -g sluice -m 3770 /run/sluice/segment' \
  --customize-hook='chroot "$1" install -d -o root -g sluice-controlplane -m 3770 /etc/sluice/exports.d' \
  --customize-hook='chroot "$1" install -d -o sluice-controlplane -g sluice-controlplane -m 0750 /var/lib/sluice' \
  --customize-hook='chroot "$1" install -d -o sluice-dataplane -g sluice-dataplane -m 0755 /run/sluice-dataplane' \
  --customize-hook='rm -rf "$1"/etc/apt/sources.list.d "$1"/var/log/*.log "$1"/var/log/apt "$1"/var/cache/ldconfig' \
  --skip=output/dev --skip=cleanup/run \
  "$release" "$work/layer.tar" \
  "deb http://deb.debian.org/debian $release main" \
  "deb http://deb.debian.org/debian $release-updates main" \
  "deb http://security.debian.org/debian-security $release-security main" \
  "deb [trusted=yes] copy:$work/repository ./"

image=$work/image
umoci init --layout "$image"
umoci new --image "$image:layer"
umoci raw add-layer --image "$image:layer" "$work/layer.tar"
plane() { # TAG WORD...: tags an image that runs this command
  local tag=$1 words=() word
  shift
  for word in "$@"; do words+=(--config.entrypoint "$word"); done
  [ "$tag" = controlplane ] || words+=(--config.env RUNTIME_DIRECTORY=/run/sluice-dataplane) # DPDK's runtime folder
  umoci config --image "$image:layer" --tag "$tag" --architecture "$architecture" --config.user "sluice-$tag" "${words[@]}" \
    --config.label org.opencontainers.image.title="sluice-$tag" --config.label org.opencontainers.image.version="$version" \
    --config.label org.opencontainers.image.licenses=Apache-2.0
}
plane controlplane /usr/bin/sluice-controlplane --config /etc/sluice/sluice.toml
plane dataplane /usr/bin/sluice-dataplane --segment /run/sluice/segment/sluice --wait 60
umoci rm --image "$image:layer"
umoci gc --layout "$image"
cp -r "$image/." "$out/"
