#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fetch-kernel.sh DESTDIR: Debian's cloud kernel for the test guest, unpacked but not installed.
#
# Leaves DESTDIR/vmlinuz, DESTDIR/modules (the package's tree of .ko files) and DESTDIR/version.
# The package comes through apt, from wherever this machine gets its packages. A DESTDIR that is
# there is complete, because it appears by one rename: several of these may run at once.
set -eu

[ $# -eq 1 ] || { echo "usage: $0 DESTDIR" >&2; exit 2; }
destination=$1
[ ! -e "$destination/vmlinuz" ] || exit 0

# linux-image-cloud-amd64 is empty and depends on the kernel of the day, which is what we want.
package=$(apt-cache show --no-all-versions linux-image-cloud-amd64 2>/dev/null |
    grep -o 'linux-image-[0-9][^ ,|]*-cloud-amd64' | head -n 1) || true
if [ -z "$package" ]; then
    echo "$0: apt does not know linux-image-cloud-amd64: run apt-get update" >&2
    exit 1
fi

mkdir -p "$(dirname "$destination")"
scratch=$(mktemp -d "$destination.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# As root, apt would download as its own user, who may not write here.
(cd "$scratch" && apt-get -q -o APT::Sandbox::User=root download "$package" >&2)
dpkg-deb -x "$scratch/$package"_*.deb "$scratch/unpacked"

mkdir "$scratch/kernel"
mv "$scratch"/unpacked/boot/vmlinuz-* "$scratch/kernel/vmlinuz"
mv "$scratch"/unpacked/lib/modules/* "$scratch/kernel/modules"
basename "$scratch/$package"_*.deb .deb > "$scratch/kernel/version"
chmod 755 "$scratch/kernel"

# Loses against one that was faster, and then theirs is as good.
mv -T "$scratch/kernel" "$destination" 2>/dev/null || [ -e "$destination/vmlinuz" ]
