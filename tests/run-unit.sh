#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run-unit.sh BINARY... - runs the unit tests, as many at a time as there are processors and one
# more, because they wait a lot; shows what they print, and adds up their counts.
#
# A binary that ends without cmocka's own summary (a crash, a sanitizer's report) counts as one
# failed test, and so does one that does not end: it is killed after $UNIT_SECONDS, 300 by default,
# and 5 seconds later once more, if it has not ended by then.
# What the tests leave in their scratch directories (scratch.h) is gone at the end, also that of
# a test that was killed: TMPDIR and UNIT_MEMORY are this run's own.
# The last line is "N passed, N failed, N skipped"; the exit status is 1 if any failed.

set -u

export UNIT_SECONDS="${UNIT_SECONDS:-300}"
outputs=$(mktemp -d) || exit 1
UNIT_MEMORY=$(mktemp -d /dev/shm/crust-unit-XXXXXX 2>/dev/null) # "" without that tmpfs
trap 'rm -rf --one-file-system "$outputs" ${UNIT_MEMORY:+"$UNIT_MEMORY"}' EXIT
trap 'exit 130' INT TERM
chmod 711 "$outputs" ${UNIT_MEMORY:+"$UNIT_MEMORY"} # a test may become another user
export UNIT_MEMORY TMPDIR="$outputs"
passed=0 failed=0 skipped=0

# name_of BINARY: of its files in $outputs
name_of() {
    printf '%s' "${1##*/tests/unit/}" | tr / -
}

# sum OUTPUT WORD: adds up the lines "[  WORD  ] N test(s)"
sum() {
    awk -v word="$2" '$1 == "[" && $2 == word && $4 ~ /^[0-9]+$/ { n += $4 } END { print n + 0 }' "$1"
}

for binary in "$@"; do
    printf '%s\n%s\n' "$binary" "$outputs/$(name_of "$binary")"
done | xargs -n 2 -P "$(($(nproc) + 1))" sh -c 'began=$(date +%s)
    timeout -k 5 "$UNIT_SECONDS" "$1" >"$2" 2>&1
    echo "$? $(($(date +%s) - began))" >"$2.status"' run

for binary in "$@"; do
    output=$outputs/$(name_of "$binary")
    printf '%s\n' "== ${binary##*/tests/unit/}"
    cat "$output"
    read -r status seconds <"$output.status"
    binary_failed=$(sum "$output" FAILED)
    # timeout's status, or that of a SIGKILL, which need not be its own
    if [ "$status" -eq 124 ] || { [ "$status" -eq 137 ] && [ "$seconds" -ge "$UNIT_SECONDS" ]; }; then
        printf '%s\n' "$binary: had not ended after $UNIT_SECONDS seconds"
        binary_failed=$((binary_failed + 1))
    elif [ "$status" -ne 0 ] && [ "$binary_failed" -eq 0 ]; then
        printf '%s\n' "$binary: ended with status $status"
        binary_failed=1
    fi
    passed=$((passed + $(sum "$output" PASSED)))
    failed=$((failed + binary_failed))
    skipped=$((skipped + $(sum "$output" SKIPPED)))
done

printf '%s\n' "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
