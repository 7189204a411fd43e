#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check-outcomes.sh [TREE] - a result that is decided by has a name.
#
# A negative errno is a failure that its caller forwards (lib/result.h). What a caller tells apart
# is an outcome or a failure that the called module's header names. So nothing is compared with a
# negative errno, nor is one a case of a switch. Prints FILE:LINE of what breaks that; the exit
# status is then 1. Tests compare as they like.

set -eu
cd "${1:-.}"

find . \( -path ./tests -o -path ./docs -o -path ./build \) -prune -o -name '*.[ch]' -print | sed 's|^\./||' |
    LC_ALL=C sort | xargs -r awk '
/[!=]=[ \t]*-E[A-Z0-9]+|-E[A-Z0-9]+[ \t]*[!=]=|case[ \t]+-E[A-Z0-9]+/ {
    print FILENAME ":" FNR ": decides by a negative errno; the module that returns it names its outcomes"
    broken = 1
}
END { exit broken }
' || exit 1 # xargs says 123
