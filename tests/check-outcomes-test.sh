#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check-outcomes-test.sh - seeds decisions by a negative errno and sees check-outcomes.sh find them.

. "$(dirname "$0")/seeded-tree.sh"
mkdir -p "$tree/store"

refused() {
    printf '/* seeded */\n%s\n' "$1" >"$tree/store/seeded.c"
    found=$("$check" "$tree") && found="nothing"
    case $found in
    store/seeded.c:2:*) ;;
    *)
        echo "not refused: $1: $found"
        failed=1
        ;;
    esac
}

accepted() {
    printf '%s\n' "$1" >"$tree/store/seeded.c"
    "$check" "$tree" || failed=1
}

refused 'if (r == -ENOENT)'
refused 'return r != -EBUSY ? r : 0;'
refused 'if (-E2BIG == r)'
refused '    case -EINVAL:'
accepted 'if (errno == ENOENT) return -ENOENT;'
accepted 'return r == STORE_MISSING ? 0 : r;'
accepted '    case STORE_LOCKED:'
exit $failed
