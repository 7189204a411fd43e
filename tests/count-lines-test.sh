#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# count-lines-test.sh - seeds folders that are within their budget and above it, and sees count-lines tell them apart.

. "$(dirname "$0")/seeded-tree.sh"
mkdir -p "$tree/tests" "$tree/store" "$tree/reconciler/core"
printf '# folders\nstore 3 1\nreconciler/core 2 2\n' >"$tree/tests/line-budget.txt"
printf 'a\nb\nc\n' >"$tree/store/one.c"
printf 'a\n' >"$tree/reconciler/core/one.c"
printf 'a\n' >"$tree/reconciler/core/two.h"
printf 'a\nb\nc\nd\n' >"$tree/tests/not_counted.c"

refused() {
    if found=$("$check" "$tree") || ! printf '%s' "$found" | grep -q "^$1 .*MORE"; then
        echo "not refused: $1: $found"
        failed=1
    fi
}

"$check" "$tree" | grep -q '^all  *5 ' || failed=1
"$check" "$tree" >/dev/null || failed=1
printf 'd\n' >>"$tree/store/one.c"
refused store
printf 'a\nb\nc\n' >"$tree/store/one.c"
: >"$tree/reconciler/core/three.c"
refused reconciler/core
rm "$tree/reconciler/core/three.c"
mkdir "$tree/new" && printf 'a\n' >"$tree/new/one.h"
refused new
exit $failed
