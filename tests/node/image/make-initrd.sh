#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make-initrd.sh ROOT OUT - an initrd for the unpacked node in ROOT: init, busybox, a few modules.
set -eu
root=$1 out=$2
version=$(basename "$root"/lib/modules/*)
scratch=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/bin" "$scratch/dev" "$scratch/root"
cp "$root/bin/busybox" "$scratch/bin/"
install -m 755 "$(dirname "$0")/init" "$scratch/init"

# In the order of loading, soft dependencies too; what is built into the kernel has no line.
for module in virtio_pci virtio_blk ext4; do
    chroot "$root" modprobe --set-version "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$scratch/modules"
while read -r module; do
    mkdir -p "$scratch$(dirname "$module")"
    cp "$root$module" "$scratch$module"
done <"$scratch/modules"
(cd "$scratch" && find . | cpio --quiet -o -H newc -R 0:0) >"$out"
