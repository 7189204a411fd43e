#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check-docs-test.sh - seeds one violation of each rule and sees check-docs.py find it.

. "$(dirname "$0")/seeded-tree.sh"

mkdir -p "$tree/docs" "$tree/lib"
printf '# Here\n\n## A heading, with `code`\n' >"$tree/docs/here.md"

# expect FILE TEXT PATTERN: a file with this text is refused for this reason; without a pattern, it is fine
expect() {
    printf "$2\n" >"$tree/$1"
    if found=$("$check" "$tree"); then
        [ -z "${3-}" ] || { echo "not refused: $1: $2"; failed=1; }
    elif [ -z "${3-}" ] || ! printf '%s\n' "$found" | grep -qF -- "$3"; then
        echo "refused: $1: $2: $found"
        failed=1
    fi
    rm "$tree/$1"
}

expect docs/a.md '[x](here.md)'
expect docs/a.md '[x](here.md#a-heading-with-code)'
expect docs/a.md '[x](https://example.org/gone.html)'
expect docs/a.md '    [x](gone.html), as an example'
expect docs/a.md '[x](gone.html)' 'docs/a.md:1: links to gone.html'
expect docs/a.md '[x](here.md#elsewhere)' 'there is no such heading'
expect docs/a.md '[x](#elsewhere)' 'there is no such heading'
expect docs/a.md 'see here.md'
expect docs/a.md '\nsee gone.md' 'docs/a.md:2: names gone.md'
expect lib/a.c '/* as docs/here.md says; firecracker/docs/vsock.md says so too */'
expect lib/a.c '/* as docs/gone.md says */' 'lib/a.c:1: names docs/gone.md'
expect lib/a.c '/* as docs/here.md#a-heading-with-code says */'
expect lib/a.c '/* as docs/here.md#elsewhere says */' 'lib/a.c:1: names docs/here.md#elsewhere'
expect docs/a.md 'as lib/gone.c does' 'names lib/gone.c'
expect lib/a.c '/* tests/e2e/gone.py tries it */' 'names tests/e2e/gone.py'
expect docs/maintaining.md 'look at `gone()`' 'names `gone()`'
expect docs/maintaining.md 'look at `gone.c`' 'names `gone.c`'
expect docs/glossary.md '| word | what it is |\n| b | B. |\n| a | A. |' 'not in alphabetical order'
expect docs/glossary.md "$(for i in $(seq 10 50); do printf '| w%%s | W. |\\n' "$i"; done)" '41 words'

exit $failed
