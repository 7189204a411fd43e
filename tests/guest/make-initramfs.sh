#!/bin/sh
# make-initramfs.sh KERNELDIR INIT AGENT OUT: all of the test guest's user space, a cpio archive.
#
# KERNELDIR is what fetch-kernel.sh left, INIT and AGENT are static programs. The archive holds
# /init, /sbin/crust-guest-agent and, for each module that the guest may ask for, the .ko files and
# /modules/NAME.load, which lists them in the order of loading. It is not compressed: unpacking is
# slower under software emulation than loading a few more megabytes.
set -eu

[ $# -eq 4 ] || { echo "usage: $0 KERNELDIR INIT AGENT OUT" >&2; exit 2; }
kernel=$1 init=$2 agent=$3 out=$4
modules="virtio_pci virtio_blk virtio_scsi sd_mod virtio_console ext4 xfs btrfs"

scratch=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
root=$scratch/root
mkdir -p "$root/modules" "$root/sbin" "$root/proc" "$root/sys" "$root/dev"

# A module's file; empty if it is built in. The kernel takes - and _ for the same letter in names.
module_file() {
    pattern=$(echo "$1" | sed 's/[-_]/[-_]/g')
    file=$(find "$kernel/modules/kernel" -name "$pattern.ko" | head -n 1)
    if [ -z "$file" ] && ! grep -q "/$pattern\.ko$" "$kernel/modules/modules.builtin"; then
        echo "$0: the kernel has no module $1" >&2
        return 1
    fi
    echo "$file"
}

# modules.dep comes into being when a kernel package is installed, which ours is not, so the
# dependencies are read from where depmod reads them too: the module itself. What it only asks the
# crypto layer for by name is not written there.
dependencies() {
    case $1 in
    */libcrc32c.ko) echo crc32c_generic ;;
    */btrfs.ko) echo crc32c_generic xxhash_generic sha256_generic blake2b_generic ;;
    esac
    grep -az '^depends=' "$1" | tr '\0,' '\n' | sed 's/^depends=//'
}

# Prints the files that NAME needs, dependencies first; some come up more than once.
load_order() (
    file=$(module_file "$1")
    [ -n "$file" ] || return 0
    for dependency in $(dependencies "$file"); do
        load_order "$dependency"
    done
    echo "$file"
)

for module in $modules; do
    load_order "$module" > "$scratch/order"
    awk '!seen[$0]++' "$scratch/order" | while read -r file; do
        name=$(basename "$file")
        [ -e "$root/modules/$name" ] || cp "$file" "$root/modules/$name"
        echo "/modules/$name" >> "$root/modules/$module.load"
    done
done

install -m 755 "$init" "$root/init"
install -m 755 "$agent" "$root/sbin/crust-guest-agent"
(cd "$root" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) > "$scratch/archive"
mv "$scratch/archive" "$out"
