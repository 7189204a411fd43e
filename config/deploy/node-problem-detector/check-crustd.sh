#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check-crustd.sh ready|able|stalled - for node-problem-detector's custom plugin monitor, crustd.json beside it.
#
# Exit code 0: well; 1: a problem, which the output names; 2: not known. CRUSTCTL is how crustctl is called, for a detector
# in a pod: "chroot /host crustctl".

crustctl=${CRUSTCTL:-crustctl}

case $1 in
ready)
    said=$($crustctl health 2>&1)
    case $? in
    0) echo "crustd is ready"; exit 0 ;;
    126 | 127) echo "crustctl health cannot be run: $said" | head -n 1; exit 2 ;;
    esac
    echo "$said" | head -n 1
    exit 1
    ;;
able)
    said=$($crustctl doctor --problems 2>&1)
    case $? in
    0) echo "volumes of this node can be resized"; exit 0 ;;
    5) echo "$said" | sed -n 's/^error *//p' | head -n 1; exit 1 ;;
    esac
    echo "crustctl doctor says nothing: $said" | head -n 1
    exit 2
    ;;
stalled)
    if ! said=$($crustctl -o json volumes --stalled 2>&1); then
        echo "$said" | head -n 1
        exit 2
    fi
    count=$(echo "$said" | grep -o '"volume_id":' | wc -l)
    [ "$count" -gt 0 ] || { echo "no volume's resize is stalled"; exit 0; }
    echo "$count stalled, first: $(echo "$said" | grep -o '"pv":"[^"]*"' | head -n 1 | cut -d '"' -f 4); crustctl explain says why"
    exit 1
    ;;
esac
echo "usage: check-crustd.sh ready|able|stalled"
exit 2
