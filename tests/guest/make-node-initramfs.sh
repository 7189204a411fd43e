#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make-node-initramfs.sh KERNELDIR OUT PROGRAM...: a node for crustd to run in, a cpio archive.
#
# KERNELDIR is what fetch-kernel.sh left. The archive holds node-init.sh as /init, the programs in
# /bin with the libraries that they are linked with or load, and what SCSI disks and device mapper
# need.
set -eu

[ $# -ge 3 ] || { echo "usage: $0 KERNELDIR OUT PROGRAM..." >&2; exit 2; }
kernel=$1 out=$2
shift 2
here=$(dirname "$0")
# shellcheck source=tests/guest/modules.sh
. "$here/modules.sh"
modules="virtio_pci virtio_scsi sd_mod dm_mod dm_multipath dm_round_robin"

scratch=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
root=$scratch/root
mkdir -p "$root/modules" "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/run" \
    "$root/etc/crustd" "$root/var/lib/crustd"

for module in $modules; do
    copy_module "$module"
done | awk '!seen[$0]++' > "$root/modules/load"

copy_libraries() {
    while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
}

# "NAME => PATH (ADDRESS)", and the loader's "PATH (ADDRESS)"; a static program has none.
linked_with() {
    { ldd "$1" 2>/dev/null || true; } | grep -o '/[^ ]* (' | tr -d ' ('
}

for program in "$@"; do
    install -m 755 "$program" "$root/bin/"
    linked_with "$program" | copy_libraries
done
# crustd and crustctl load it themselves.
curl=$(/sbin/ldconfig -p | sed -n 's/.*libcurl-gnutls\.so\.4 .*x86-64.* => //p')
{ echo "$curl" && linked_with "$curl"; } | copy_libraries
install -m 755 "$here/node-init.sh" "$root/init"
(cd "$root" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) > "$scratch/archive"
mv "$scratch/archive" "$out"
