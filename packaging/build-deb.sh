#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build-deb.sh DIRECTORY - builds the Debian packages and lays them into DIRECTORY.
#
# They are built in a copy of the tree without what was built in it: the same sources and tools make the same
# bytes, wherever and whenever (debian/changelog has the date).
set -eu

[ $# -eq 1 ] || { echo "usage: $0 DIRECTORY" >&2; exit 2; }
mkdir -p "$1"
target=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

version=$(packaging/version.sh)
revision=$(packaging/version.sh --archived)
scratch=$(mktemp -d "$target/build.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# Mode and order of the copy are the same everywhere.
umask 022
mkdir "$scratch/crustd"
tar -c --exclude-vcs --exclude=./build --exclude='./build-*' --exclude=__pycache__ . | tar -x -C "$scratch/crustd" --no-same-owner --no-same-permissions
cd "$scratch/crustd"
# Of the checkout, which the copy is not.
sed -i "1s/(.*) [A-Za-z]*;/($version) unstable;/" debian/changelog
echo "$revision" >packaging/revision
dpkg-buildpackage --build=binary --no-sign --jobs="${JOBS:-auto}"
cd ..
rm -f "$target"/*.deb "$target"/*.buildinfo "$target"/*.changes
mv ./*.deb ./*.buildinfo ./*.changes "$target/"
