#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run-unit-test.sh - run-unit.sh counts what passes, and names what fails, crashes or does not end.

set -eu

run=$(dirname "$0")/run-unit.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/tests/unit"

# binary NAME COMMAND: a test binary
binary() {
    printf '#!/bin/sh\n%s\n' "$2" >"$tree/tests/unit/$1"
    chmod +x "$tree/tests/unit/$1"
}

binary passes 'echo "[  PASSED  ] 2 test(s)."'
binary fails 'echo "[  PASSED  ] 1 test(s)."; echo "[  FAILED  ] 1 test(s), listed below:"; exit 1'
binary crashes 'kill -SEGV $$'
binary hangs 'sleep 1000'
binary is-killed 'kill -KILL $$'
binary stays "trap '' TERM; while :; do sleep 1; done"
binary litters 'mktemp -d >>"$LEFT"; mktemp -d -p "${UNIT_MEMORY:-$TMPDIR}" >>"$LEFT"; kill -KILL $$'

export LEFT="$tree/left"
said=$(UNIT_SECONDS=2 timeout 60 "$run" "$tree"/tests/unit/*) && { echo "it did not fail"; exit 1; }
for line in "$tree/tests/unit/hangs: had not ended after 2 seconds" \
    "$tree/tests/unit/crashes: ended with status 139" \
    "$tree/tests/unit/stays: had not ended after 2 seconds" \
    "$tree/tests/unit/is-killed: ended with status 137" "3 passed, 6 failed, 0 skipped"; do
    printf '%s\n' "$said" | grep -qxF "$line" || { printf 'not said: %s\n%s\n' "$line" "$said"; exit 1; }
done
[ "$(wc -l <"$LEFT")" -eq 2 ]
while read -r left; do
    [ ! -e "$left" ] || { echo "left behind: $left"; exit 1; }
done <"$LEFT"
[ "$("$run" "$tree/tests/unit/passes" | tail -1)" = "2 passed, 0 failed, 0 skipped" ]
