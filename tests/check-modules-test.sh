#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check-modules-test.sh - seeds violations of each rule and sees check-modules.py find them.

. "$(dirname "$0")/seeded-tree.sh"

# write FILE LINE...: a file of these lines; a .c file is compiled as well
write() {
    file=$1
    shift
    mkdir -p "$tree/$(dirname "$file")" "$tree/build/$(dirname "$file")"
    printf '%s\n' "$@" >"$tree/$file"
    case $file in *.c) "${CC:-cc}" -I"$tree" -c -o "$tree/build/${file%.c}.o" "$tree/$file" ;; esac
}

# table LINE...: what is said of the modules beside their files
table() {
    write tests/modules.txt 'folders core act' 'queue core/queue.*' 'core core/*' 'shim act/shim.*' 'act act/*' "$@"
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

table
write core/queue.h 'void queue_add(void);' 'extern int queue_length;'
write core/queue.c '#include "core/queue.h"' 'int queue_length;' 'void queue_add(void) { queue_length++; }'
write act/act.h 'void act_start(void (*done)(void));'
write core/pass.h 'void pass_run(void);'
write core/pass.c '#include "core/queue.h"' '#include "core/pass.h"' '#include "act/act.h"' \
    'void pass_run(void) { queue_add(); act_start(pass_run); }'
write act/shim.c 'void shim_ask(void (*done)(void));' 'void shim_ask(void (*done)(void)) { done(); }'
write act/act.c '#include "act/act.h"' 'void shim_ask(void (*done)(void));' \
    'void act_start(void (*done)(void)) { shim_ask(done); }'
expect # a callback is no cycle

write act/shim.c 'void act_start(void (*done)(void));' 'void shim_ask(void (*done)(void));' \
    'void shim_ask(void (*done)(void)) { act_start(done); }'
expect 'a cycle of calls: act shim'
expect 'act -> shim: act/act.c needs shim_ask of act/shim.c'
table 'cycle calls act shim'
expect
table 'cycle calls act shim core'
expect 'modules.txt allows more than there is: cycle calls act core shim'
table 'cycle includes act shim'
expect 'a cycle of calls: act shim'
table
write act/shim.c 'int queue_length_of_shim;'
write act/act.c 'void act_start(void (*done)(void));' 'void shim_ask(void (*done)(void));' 'void pass_run(void);' \
    'void act_start(void (*done)(void)) { (void)done; pass_run(); }'
expect 'a cycle of calls: act core'
write act/act.c 'void act_start(void (*done)(void));' 'void act_start(void (*done)(void)) { done(); }'
expect

write core/queue.h '#include "core/pass.h"' 'void queue_add(void);' 'extern int queue_length;'
expect 'a cycle of includes: core queue'
write core/queue.h 'void queue_add(void);' 'extern int queue_length;'
table 'private core/queue.h'
expect 'core/pass.c: includes "core/queue.h", which is private to the module queue'
table
write tests/modules.txt 'folders core act' 'queue core/queue.*' 'act act/*'
expect 'core/pass.c: modules.txt assigns it to no module'

[ "$failed" -eq 0 ] && echo "check-modules finds every seeded violation"
