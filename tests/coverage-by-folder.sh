#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# coverage-by-folder.sh CSV - the line coverage of each folder, from gcovr's table of files.

set -eu
LC_ALL=C awk -F, '
NR == 1 { next }
{
    folder = $1
    sub(/\/[^\/]*$/, "/", folder)
    total[folder] += $2
    covered[folder] += $3
}
END {
    for (folder in total)
        printf "%-26s %6d of %6d lines  %5.1f %%\n", folder, covered[folder], total[folder],
               total[folder] ? 100 * covered[folder] / total[folder] : 100
}' "$1" | LC_ALL=C sort
