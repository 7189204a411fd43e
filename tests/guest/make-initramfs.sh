#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make-initramfs.sh KERNELDIR INIT AGENT NAME OUT [MODULE]...: all of the test guest's user space, a cpio
# archive.
#
# KERNELDIR is what fetch-kernel.sh left, INIT and AGENT are static programs. The archive holds
# /init, /sbin/NAME and, for each module that the guest may ask for, the .ko files and
# /modules/NAME.load, which lists them in the order of loading. It is not compressed: unpacking is
# slower under software emulation than loading a few more megabytes.
set -eu

[ $# -ge 5 ] || { echo "usage: $0 KERNELDIR INIT AGENT NAME OUT [MODULE]..." >&2; exit 2; }
kernel=$1 init=$2 agent=$3 name=$4 out=$5
shift 5
# shellcheck source=tests/guest/modules.sh
. "$(dirname "$0")/modules.sh"
modules="virtio_pci virtio_blk virtio_scsi sd_mod virtio_console vmw_vsock_virtio_transport
    ext4 xfs btrfs $*"

scratch=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
root=$scratch/root
mkdir -p "$root/modules" "$root/sbin" "$root/proc" "$root/sys" "$root/dev"

for module in $modules; do
    copy_module "$module" > "$root/modules/$module.load"
done

install -m 755 "$init" "$root/init"
install -m 755 "$agent" "$root/sbin/$name"
(cd "$root" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) > "$scratch/archive"
mv "$scratch/archive" "$out"
