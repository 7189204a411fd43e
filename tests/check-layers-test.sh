#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check-layers-test.sh - seeds one violation of each rule and sees check-layers.sh find it.

. "$(dirname "$0")/seeded-tree.sh"

# seed FILE LINE: a file with one line of code
seed() {
    mkdir -p "$tree/$(dirname "$1")"
    printf '/* seeded */\n%s\n' "$2" >"$tree/$1"
}

# expect_fault FILE LINE PATTERN: the line is refused at its place, for this reason
expect_fault() {
    seed "$1" "$2"
    if found=$("$check" "$tree"); then
        echo "not refused: $1: $2"
        failed=1
    elif ! printf '%s\n' "$found" | grep -qF "$1:2: includes" ||
        ! printf '%s\n' "$found" | grep -qF "$3"; then
        echo "refused for another reason: $1: $2: $found"
        failed=1
    fi
    rm "$tree/$1"
}

expect_fine() {
    seed "$1" "$2"
    if ! found=$("$check" "$tree"); then
        echo "refused: $found"
        failed=1
    fi
    rm "$tree/$1"
}

seed hypervisor/hypervisor.h '/* Private to hypervisor/. */'
seed reconciler/cleanup/cleanup_pass.h '/* Private to reconciler/cleanup/. */'
seed reconciler/core/reconciler_internal.h '/* Private to reconciler/. */'
seed watch/watch.h ''
seed store/read.h ''
seed model/reason.h ''

expect_fine lib/a.c '#include "lib/log.h"'
expect_fine store/a.c '#include <sqlite3.h>'
expect_fine store/a.c '#include "model/reason.h"'
expect_fine api/a.c '#include "store/read.h"'
expect_fine api/a.c '#include "reconciler/command/command.h"'
expect_fine reconciler/core/a.c '#include "observe/device.h"'
expect_fine reconciler/act/a.c '#include "reconciler/core/reconciler_internal.h"'
expect_fine reconciler/main.c '#include "watch/watch.h"'
expect_fine guest-agent/a.c '#include "agent-client/ttrpc_codec.h"'

expect_fault lib/a.c '#include "store/read.h"' 'lib/ may include only lib/'
expect_fault model/a.c '#include "store/store.h"' 'model/ may include only'
expect_fault config/a.c '#include "store/store.h"' 'config/ may include only'
expect_fault store/a.c '#include "config/config.h"' 'store/ may include only'
expect_fault agent-client/a.c '#include "store/read.h"' 'agent-client/ may include only'
expect_fault watch/a.c '#include "observe/device.h"' 'watch/ may'
expect_fault observe/a.c '#include "store/store.h"' 'observe/ may'
expect_fault reconciler/decide/a.c '#include "watch/watch.h"' 'reconciler/decide/ may include only'
expect_fault reconciler/core/a.c '  #  include "api/http.h"' 'reconciler/core/ may include only'
expect_fault reconciler/decide/a.c '#include "store/store.h"' 'reconciler/decide/ may include only'
expect_fault reconciler/decide/a.c '#include "lib/path.h"' 'reconciler/decide/ may include only'
expect_fault reconciler/core/a.c '#include "reconciler/cleanup/cleanup_pass.h"' 'it is private to'
expect_fault reconciler/cleanup/a.c '#include "api/http.h"' 'reconciler/cleanup/ may'
expect_fault api/a.c '#include "store/store.h"' 'api/ may include only'
expect_fault api/a.c '#include "reconciler/act/actor.h"' 'api/ may include only'
expect_fault doctor/a.c '#include "store/read.h"' 'doctor/ may include only'
expect_fault api/a.c '#include "doctor/doctor.h"' 'api/ may include only'
expect_fault guest-agent/a.c '#include "model/reason.h"' 'guest-agent/ may include only'
expect_fault crustctl/a.c '#include "doctor/checks.h"' 'crustctl/ may include only'
expect_fault crustctl/a.c '#include "reconciler/command/command.h"' 'crustctl/ may include only'
expect_fault guest-agent/a.c '#include "agent-client/agent_client.h"' 'guest-agent/ may include only'
expect_fault reconciler/core/a.c '#include "hypervisor/hypervisor.h"' 'it is private to'
expect_fault lib/a.c '#include "log.h"' 'include from the root'
expect_fault lib/a.c '#include "lib/log.c"' 'only headers are included'
expect_fault crustctl/a.c '#include <sqlite3.h>' 'only store/ may'
expect_fault watch/a.c '#include <ev.h>' 'only lib/ may'
expect_fault hypervisor/a.c '#include <curl/curl.h>' 'only lib/ may'
expect_fault lib/a.c '#include <nghttp2/nghttp2.h>' 'only api/ may'
expect_fault reconciler/core/a.c '#include <microhttpd.h>' 'only api/ may'

[ "$failed" -eq 0 ] && echo "check-layers finds every seeded violation"
