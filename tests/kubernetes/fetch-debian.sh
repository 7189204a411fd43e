#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fetch-debian.sh DESTDIR: Debian's programs for a cluster, unpacked but not installed: some start services.
#
# The packages come through apt, from wherever this machine gets its packages. A DESTDIR that is there
# is complete, because it appears by one rename: several of these may run at once.
set -eu

[ $# -eq 1 ] || { echo "usage: $0 DESTDIR" >&2; exit 2; }
destination=$1
[ ! -e "$destination/usr" ] || exit 0

mkdir -p "$(dirname "$destination")"
scratch=$(mktemp -d "$destination.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# As root, apt would download as its own user, who may not write here.
(cd "$scratch" && apt-get -q -o APT::Sandbox::User=root download etcd-server kubernetes-client \
    containerd runc containernetworking-plugins busybox-static >&2)
for package in "$scratch"/*.deb; do
    dpkg-deb -x "$package" "$scratch/unpacked"
done
chmod 755 "$scratch/unpacked"
mv -T "$scratch/unpacked" "$destination" 2>/dev/null || [ -e "$destination/usr" ]
