#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# crust-qemu-on-node install|remove - puts crust-qemu onto the node that this pod runs on, or takes it
# away again; for clusters, where nobody runs `make install` on the nodes.
#
# CRUST_ROOT is the node's root, in a pod /proc/1/root. What is put there:
#   /opt/crustd/bin/crust-qemu-system-ARCH    what Kata's `path` names; /usr may be read-only
#   /run/crustd/qemu                          where the monitors' sockets are
#   /etc/tmpfiles.d/crust-qemu.conf           makes that directory at the next boot, before any pod
# It stays when the pod goes: where Kata's path names a program that is gone, no pod starts. So
# `remove` refuses while a configuration of Kata's on the node names it, and says which.

set -eu

root=${CRUST_ROOT:?the root of the node}
root=${root%/}
program=crust-qemu-system-$(uname -m)
source=${0%/*}/$program
directory=/opt/crustd/bin
monitors=/run/crustd/qemu
boot=/etc/tmpfiles.d/crust-qemu.conf

fail() {
    echo "crust-qemu-on-node: $*" >&2
    exit 1
}

# A link with a target of its own root would lead into this container.
check_path() {
    for part in /opt /opt/crustd "$directory" /run /run/crustd "$monitors" /etc /etc/tmpfiles.d; do
        case $(readlink "$root$part" || :) in
            /*) fail "$part is an absolute link on the node: put $program there by other means" ;;
        esac
    done
}

# A VM may start meanwhile: it finds the old program or the new one.
replace() {
    rm -f "$2.new"
    cat "$1" >"$2.new"
    chmod "$3" "$2.new"
    mv -f "$2.new" "$2"
}

install_program() {
    mkdir -p "$root$directory"
    replace "$source" "$root$directory/$program" 755
}

make_monitors() {
    mkdir -p "$root/run/crustd"
    [ -d "$root$monitors" ] || mkdir -m 700 "$root$monitors"
    # crust-qemu adds no monitor where others have any right to it, or may replace it.
    chmod go-w "$root/run/crustd"
    chmod 700 "$root$monitors"
    [ -d "$root/usr/lib/tmpfiles.d" ] || return 0
    mkdir -p "$root${boot%/*}"
    {
        echo "# Of crustd's DaemonSet: monitors that crust-qemu adds to QEMU."
        echo "d /run/crustd 0755 root root -"
        echo "d $monitors 0700 root root -"
    } >"$root$boot"
}

remove_all() {
    rm -f "$root$directory/$program" "$root$boot"
    # What holds something else stays, and so do the sockets of VMs that run.
    for one in "$directory" "${directory%/*}" "$monitors"; do
        rmdir "$root$one" 2>/dev/null || :
    done
}

umask 022
check_path
case ${1:-} in
    install)
        [ -r "$source" ] || fail "there is no $source to install"
        install_program
        make_monitors
        echo "installed $directory/$program"
        ;;
    remove)
        crustctl --root "${root:-/}" crust-qemu
        remove_all
        echo "removed $directory/$program"
        ;;
    *) fail "install or remove" ;;
esac
