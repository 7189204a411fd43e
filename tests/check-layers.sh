#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check-layers.sh [TREE] - who may include whom, checked.
#
# Prints FILE:LINE and the rule for every #include that breaks one; the exit status is then 1.
# `allowed` below is the whole table: a folder, and the prefixes of what its files may include. A
# header that says "Private to FOLDER/" at its top is included by files below that folder only. Tests may include
# everything.

set -eu
cd "${1:-.}"

find lib model config store doctor watch observe hypervisor agent-client reconciler api crustctl guest-agent \
    crust-qemu -name '*.[ch]' 2>/dev/null |
    LC_ALL=C sort | xargs -r awk '
BEGIN {
    allowed["lib"] = "lib/"
    allowed["model"] = "model/ lib/"
    allowed["config"] = "config/ model/ lib/"
    allowed["store"] = "store/ model/ lib/"
    allowed["doctor"] = "doctor/ config/ model/ lib/"
    allowed["agent-client"] = "agent-client/ model/ lib/"
    allowed["watch"] = "watch/ lib/"
    allowed["observe"] = "observe/ model/ lib/"
    allowed["hypervisor"] = "hypervisor/ model/ lib/"
    allowed["api"] = "api/ reconciler/command/command.h reconciler/command/drive_form.h " \
                     "reconciler/command/answers.h " \
                     "store/read.h model/ lib/"
    allowed["reconciler/decide"] = "reconciler/decide/ observe/observe.h " \
                                   "model/ lib/cleanup.h"
    core = "reconciler/core/ reconciler/decide/ reconciler/act/ reconciler/cleanup/ " \
            "reconciler/command/ reconciler/helper/ reconciler/drive/ reconciler/kubernetes/ observe/ hypervisor/ " \
            "store/ agent-client/ doctor/doctor.h watch/watch.h config/ model/ lib/"
    allowed["reconciler"] = "reconciler/*.h reconciler/core/database.h " \
                            "config/ lib/"
    allowed["reconciler/core"] = core
    allowed["reconciler/act"] = core
    allowed["reconciler/cleanup"] = core
    allowed["reconciler/command"] = core
    allowed["reconciler/helper"] = core
    allowed["reconciler/drive"] = core
    allowed["reconciler/kubernetes"] = "reconciler/kubernetes/ reconciler/core/context.h " \
                                       "store/ config/ model/ lib/"
    allowed["crustctl"] = "crustctl/ doctor/doctor.h config/ store/read.h model/ lib/"
    allowed["guest-agent"] = "guest-agent/ agent-client/ttrpc_codec.h " \
                             "agent-client/agent_messages.h agent-client/agent_address.h " \
                             "agent-client/drive_call.h lib/"
    allowed["crust-qemu"] = "crust-qemu/ lib/cleanup.h"

    only["sqlite3.h"] = "store"
    only["ev.h"] = "lib"
    only["curl/"] = "lib"
    only["nghttp2/"] = "api"
    only["microhttpd.h"] = "api"
}

function complain(text) {
    print FILENAME ":" FNR ": " text
    broken = 1
}

# A rule "folder/" allows all below it, "folder/*.h" what is directly in it, and a file itself.
function matches(rule, name) {
    if (rule ~ /\/$/)
        return index(name, rule) == 1
    if (rule ~ /\/\*\.h$/) {
        sub(/\*\.h$/, "", rule)
        return index(name, rule) == 1 && index(substr(name, length(rule) + 1), "/") == 0
    }
    return name == rule
}

function check_ours(name,    rules, count, i) {
    if (name !~ /\.h$/)
        complain("includes \"" name "\": only headers are included")
    else if (name !~ /\//)
        complain("includes \"" name "\": include from the root of the tree")
    else if (FILENAME !~ /^reconciler\/main\.c$/) {
        count = split(allowed[folder], rules, " ")
        for (i = 1; i <= count; i++)
            if (matches(rules[i], name))
                return check_private(name)
        complain("includes \"" name "\": " folder "/ may include only " allowed[folder])
    } else
        check_private(name)
}

# Whether a header is private stands in its first lines.
# The folder that a header says it is private to, "" for a public one.
function owner_of(name,    top, line, i) {
    if (!(name in owners)) {
        owners[name] = top = ""
        for (i = 0; i < 20 && (getline line < name) > 0; i++) {
            sub(/^ \* /, "", line)
            top = top " " line
        }
        close(name)
        if (match(top, /Private to [a-z\/-]+\//))
            owners[name] = substr(top, RSTART + 11, RLENGTH - 11)
    }
    return owners[name]
}

function check_private(name,    owner) {
    owner = owner_of(name)
    if (owner != "" && index(folder "/", owner) != 1)
        complain("includes \"" name "\": it is private to " owner)
}

function check_third_party(name,    prefix) {
    for (prefix in only)
        if (folder != only[prefix] &&
            (name == prefix || (prefix ~ /\/$/ && index(name, prefix) == 1)))
            complain("includes <" name ">: only " only[prefix] "/ may")
}

FNR == 1 {
    folder = FILENAME
    sub(/\/[^\/]*$/, "", folder)
    if (!(folder in allowed))
        complain("the table in check-layers.sh has no row for " folder "/")
}

/^[ \t]*#[ \t]*include[ \t]*["<]/ {
    name = $0
    ours = name ~ /^[^<"]*"/
    sub(/^[^<"]*["<]/, "", name)
    sub(/[">].*$/, "", name)
    if (ours)
        check_ours(name)
    else
        check_third_party(name)
}

END { exit broken }
' || exit 1 # xargs says 123
