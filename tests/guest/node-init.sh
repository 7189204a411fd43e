#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# node-init.sh - PID 1 of a guest that is a node: with real SCSI disks and device mapper, for crustd
# to run in.
#
# Loads the modules, then takes shell commands on the second serial port, one per line. After what
# a command prints comes a line "done STATUS".
export PATH=/bin
/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null # the kernel may have done it
mount -t tmpfs tmpfs /run
while read -r module; do
    insmod "$module"
done < /modules/load
exec < /dev/ttyS1 > /dev/ttyS1 2>&1
stty raw -echo
echo ready
while read -r line; do
    eval "$line"
    echo "done $?"
done
poweroff -f
