#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run-fuzz.sh replay|search BINARY... - runs fuzz targets and counts how they ended.
#
# replay: each BINARY (built with tests/fuzz/replay.c) reads all of tests/fuzz/corpus/NAME/.
# search: each BINARY (built with libFuzzer) looks for new inputs for FUZZ_SECONDS (60). What it
# finds goes to build/fuzz/NAME/, and what fails to build/fuzz/NAME-crash-*: once the fault is
# mended, that file belongs into the corpus. How often each was executed is appended to
# build/fuzz/executions, and the sum of this run is printed. The last line is "N passed, N failed, N
# skipped".

set -u

mode=$1
shift
corpora=$(dirname "$0")/fuzz/corpus
passed=0 failed=0 executions=0

# search BINARY CORPUS NAME
search() {
    mkdir -p "build/fuzz/$3"
    "$1" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/$3-" "build/fuzz/$3" "$2" >"build/fuzz/$3.log" 2>&1
    search_status=$?
    tail -n 20 "build/fuzz/$3.log"
    number=$(awk '$1 == "stat::number_of_executed_units:" { n = $2 } END { print n + 0 }' "build/fuzz/$3.log")
    executions=$((executions + number))
    printf '%s %s %s\n' "$(date -u +%F)" "$3" "$number" >>build/fuzz/executions
    return "$search_status"
}

for binary in "$@"; do
    name=$(basename "$binary" _fuzz)
    corpus=$corpora/$name
    printf '%s\n' "== $name"
    if [ -z "$(ls -A "$corpus" 2>/dev/null)" ]; then
        printf '%s\n' "$corpus: a target without a corpus"
        failed=$((failed + 1))
        continue
    fi
    case $mode in
    replay) "$binary" "$corpus" ;;
    search) search "$binary" "$corpus" "$name" ;;
    esac && passed=$((passed + 1)) || failed=$((failed + 1))
done

[ "$mode" = replay ] || printf '%s\n' "$executions executions"
printf '%s\n' "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
