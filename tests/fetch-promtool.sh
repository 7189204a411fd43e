#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fetch-promtool.sh DESTDIR: DESTDIR/promtool and DESTDIR/prometheus out of Debian's package prometheus, which is
# unpacked and not installed, because installing it would start a server.
#
# What is there is complete, because each appears by one rename: several of these may run at once.
set -eu

[ $# -eq 1 ] || { echo "usage: $0 DESTDIR" >&2; exit 2; }
destination=$1
[ ! -e "$destination/promtool" ] || [ ! -e "$destination/prometheus" ] || exit 0

mkdir -p "$destination"
scratch=$(mktemp -d "$destination/promtool.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# As root, apt would download as its own user, who may not write here.
(cd "$scratch" && apt-get -q -o APT::Sandbox::User=root download prometheus >&2)
dpkg-deb -x "$scratch"/prometheus_*.deb "$scratch/unpacked"
for program in promtool prometheus; do
    mv "$scratch/unpacked/usr/bin/$program" "$destination/$program"
done
