#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh PART... - what `make check` and `make check-all` do, stage by stage, to the end even if one fails.
#
# The parts: core (make check), clang, sanitizers, long, node. Each builds what it needs.
#
# A stage that runs tests ends with "N passed, N failed, N skipped", which is added up; without that
# line it counts as one failed test. Any other stage is one test. What failed is repeated at the
# end, briefly, because it is far up by then. The last line is the sum.

set -u
cd "$(dirname "$0")/.." || exit 1

output=$(mktemp) || exit 1
trap 'rm -f "$output" "$output.failures"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 skipped=0
summary=
began=$(date +%s)

closing='^[0-9]* passed, [0-9]* failed, [0-9]* skipped$'

# run COMMAND...: shows what it prints and keeps it in $output; returns its status
run() {
    { "$@" 2>&1 </dev/null; echo "status $?" >"$output.status"; } | tee "$output"
    read -r _ status <"$output.status"
    rm -f "$output.status"
    return "$status"
}

# failures NAME: what $output says of failed tests, unittest's and cmocka's: 30 lines of each at most
failures() {
    awk -v stage="$1" '
        /^(FAIL|ERROR): / { left = 30; print "-- " stage }
        /^Ran [0-9]+ tests? in / { left = 0 }
        /^\[ *(ERROR|LINE|FAILED) *\]/ { print "-- " stage ": " substr($0, 1, 300); next }
        left-- > 0 { print substr($0, 1, 300) }' "$output" >>"$output.failures"
}

# add NAME PASSED FAILED SKIPPED: a stage that has ended; each begins where the one before ended
add() {
    now=$(date +%s)
    passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
    summary="$summary$(printf '%-32s %6d passed %4d failed %4d skipped %6d s' "$@" $((now - began)))
"
    began=$now
}

# stage NAME COMMAND...: is one test
stage() {
    name=$1
    shift
    printf '\n==== %s\n' "$name"
    if run "$@"; then
        add "$name" 1 0 0
    else
        add "$name" 0 1 0
        { echo "-- $name" && tail -n 15 "$output"; } >>"$output.failures"
    fi
}

# tests NAME COMMAND...: counts its tests itself
tests() {
    name=$1
    shift
    printf '\n==== %s\n' "$name"
    run "$@"
    status=$?
    line=$(grep "$closing" "$output" | tail -n 1 | tr -cd '0-9 ')
    # shellcheck disable=SC2086 # three words
    set -- ${line:-0 1 0}
    # One that fails without naming a test, or has none, has failed.
    if [ "$2" -eq 0 ] && { [ "$status" -ne 0 ] || [ $(($1 + $3)) -eq 0 ]; }; then
        set -- "$1" 1 "$3"
    fi
    [ "$2" -eq 0 ] || failures "$name"
    add "$name" "$1" "$2" "$3"
}

jobs=-j$(nproc 2>/dev/null || echo 2)

# What everybody runs before a change is offered.
part_core() {
    stage "build with gcc" make "$jobs" CC=gcc WERROR=1 tests
    stage "lint" make CC=gcc lint
    tests "unit tests" make CC=gcc WERROR=1 unit
    tests "integration tests" make CC=gcc WERROR=1 e2e PART=core
}

part_clang() {
    stage "build with clang" make "$jobs" CC=clang WERROR=1 BUILD=build/clang tests
}

part_sanitizers() {
    stage "build with sanitizers" make "$jobs" CC=gcc WERROR=1 SANITIZE=address,undefined tests
    tests "unit tests, sanitized" make CC=gcc WERROR=1 SANITIZE=address,undefined unit
    tests "fuzz corpora, sanitized" make CC=gcc WERROR=1 SANITIZE=address,undefined replay
}

part_long() {
    tests "every decision" env CRUST_EVERY=1 make --no-print-directory CC=gcc WERROR=1 t T=decide/decide
    tests "long integration tests" make "$jobs" CC=gcc WERROR=1 e2e PART=long
}

part_node() {
    tests "tests on nodes, and a cluster" make "$jobs" CC=gcc WERROR=1 node SCENARIOS=core
}

stage "dependencies" make deps
case " $* " in
*" node "*)
    # What nodes are made of takes minutes to make, mostly of one processor. It is made beside all that follows, by
    # what that leaves; who comes to need it before it is done waits for it. It ends with this script.
    setpriv --pdeathsig TERM nice -n 19 tests/kubernetes/parts.py >/dev/null 2>&1 </dev/null &
    ;;
esac
for part in "$@"; do
    "part_$part"
done

# What root built belongs to the person who called sudo.
if [ -n "${SUDO_UID:-}" ] && [ -d build ]; then
    chown -R "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" build
fi

[ ! -s "$output.failures" ] || { printf '\n==== what failed\n' && cat "$output.failures"; }
printf '\n%s\n' "$summary"
printf '%s\n' "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
