#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check-circles-test.sh - seeds circles and sees check-circles.py find them.

. "$(dirname "$0")/seeded-tree.sh"

# write FILE LINE...: a file of these lines, compiled
write() {
    file=$1
    shift
    mkdir -p "$tree/$(dirname "$file")" "$tree/build/$(dirname "$file")"
    printf '%s\n' "$@" >"$tree/$file"
    "${CC:-cc}" -c -o "$tree/build/${file%.c}.o" "$tree/$file"
}

# accept LINE...: the circles that are accepted
accept() {
    mkdir -p "$tree/tests"
    printf '%s\n' '# comment' "$@" >"$tree/tests/circles.txt"
}

# expect WORD...: what is found, in one line; nothing: no fault
expect() {
    found=$("$check" "$tree" 2>&1) && found=
    if [ "$#" -eq 0 ] && [ -n "$found" ]; then
        echo "refused: $found"
        failed=1
    elif [ "$#" -gt 0 ] && ! printf '%s\n' "$found" | grep -qF "$*"; then
        echo "not found: $*: $found"
        failed=1
    fi
}

accept
write core/queue.c 'void queue_add(void);' 'void queue_add(void) {}'
write core/pass.c 'void queue_add(void);' 'void act_start(void (*done)(void));' 'void pass_run(void);' \
    'void pass_run(void) { queue_add(); act_start(pass_run); }'
write act/act.c 'void act_start(void (*done)(void));' 'void act_start(void (*done)(void)) { done(); }'
write act/main.c 'int main(void) { return 0; }'
write core/main.c 'int main(void) { return 0; }'
expect # a callback is no circle

write act/act.c 'void pass_run(void);' 'void act_start(void (*done)(void));' \
    'void act_start(void (*done)(void)) { done ? done() : pass_run(); }'
expect 'a circle: act/act.c core/pass.c'
expect 'act/act.c needs pass_run of core/pass.c'
accept 'act/act.c core/pass.c'
expect
accept 'act/act.c core/pass.c core/queue.c'
expect 'tests/circles.txt: core/queue.c is in no circle any more'
write core/queue.c 'void pass_run(void);' 'void queue_add(void);' 'void queue_add(void) { pass_run(); }'
accept 'act/act.c core/pass.c'
expect 'a circle: act/act.c core/pass.c core/queue.c'
write core/queue.c 'void queue_add(void);' 'void queue_add(void) {}'
write act/act.c 'void act_start(void (*done)(void));' 'void act_start(void (*done)(void)) { done(); }'
expect 'tests/circles.txt: act/act.c is in no circle any more'

[ "$failed" -eq 0 ] && echo "check-circles finds every seeded circle"
