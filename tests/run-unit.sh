#!/bin/sh
# run-unit.sh BINARY... - runs the unit tests, shows what they print, and adds up their counts.
#
# A binary that ends without cmocka's own summary (a crash, a sanitizer's report) counts as one
# failed test. The last line is "N passed, N failed, N skipped"; the exit status is 1 if any failed.

set -u

output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
passed=0 failed=0 skipped=0

# sum WORD: adds up the lines "[  WORD  ] N test(s)"
sum() {
    awk -v word="$1" '$1 == "[" && $2 == word && $4 ~ /^[0-9]+$/ { n += $4 } END { print n + 0 }' "$output"
}

for binary in "$@"; do
    printf '%s\n' "== ${binary##*/tests/unit/}"
    "$binary" >"$output" 2>&1
    status=$?
    cat "$output"
    binary_failed=$(sum FAILED)
    if [ "$status" -ne 0 ] && [ "$binary_failed" -eq 0 ]; then
        printf '%s\n' "$binary: ended with status $status"
        binary_failed=1
    fi
    passed=$((passed + $(sum PASSED)))
    failed=$((failed + binary_failed))
    skipped=$((skipped + $(sum SKIPPED)))
done

printf '%s\n' "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
