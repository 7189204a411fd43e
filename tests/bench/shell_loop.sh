#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shell_loop.sh DEVICE NODE MONITOR [DEVICE NODE MONITOR]...: what is often written in crustd's place, out of
# udevadm, blockdev and socat.
#
# For each change of one of the devices: its size, and block_resize over QMP. Nothing is checked, no answer
# is read, an event that comes before the first read is lost. Ends when killed.
set -eu

resize() {
    name=$1
    shift
    while [ $# -ge 3 ]; do
        if [ "$1" = "/dev/$name" ]; then
            printf '%s\n' '{"execute":"qmp_capabilities"}' \
                '{"execute":"block_resize","arguments":{"node-name":"'"$2"'","size":'"$(blockdev --getsize64 "$1")"'}}' \
                '{"execute":"query-block"}' |
                socat -t 1 - "UNIX-CONNECT:$3" >/dev/null
        fi
        shift 3
    done
}

udevadm monitor --kernel --subsystem-match=block | while read -r _ action path _; do
    case $action in
    will) echo ready ;; # "monitor will print the received events for:"
    change) resize "${path##*/}" "$@" ;;
    esac
done
