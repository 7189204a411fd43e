# SPDX-License-Identifier: Apache-2.0
# modules.sh - kernel modules into an initramfs; sourced with $kernel (what fetch-kernel.sh left) and
# $root (the initramfs' tree, with modules/) set.

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

# Copies what NAME needs to /modules, and prints the paths there in the order of loading.
copy_module() {
    load_order "$1" | awk '!seen[$0]++' | while read -r file; do
        name=$(basename "$file")
        [ -e "$root/modules/$name" ] || cp "$file" "$root/modules/$name"
        echo "/modules/$name"
    done
}
