#!/bin/sh
# check-layers.sh [TREE] - who may include whom, checked.
#
# Prints FILE:LINE and the rule for every #include that breaks one; the exit status is then 1.
# `allowed` below is the whole table: a folder, and the prefixes of what its files may include. A
# header that begins with "Private to" stays in its own folder and those below it. Tests may include everything.

set -eu
cd "${1:-.}"

find lib model config store doctor agent-client reconciler crustctl guest-agent crust-qemu -name '*.[ch]' 2>/dev/null |
    LC_ALL=C sort | xargs -r awk '
BEGIN {
    allowed["lib"] = "lib/"
    allowed["model"] = "model/ lib/"
    allowed["config"] = "config/ lib/"
    allowed["store"] = "store/ model/ lib/"
    allowed["doctor"] = "doctor/ config/ model/ lib/"
    allowed["agent-client"] = "agent-client/ lib/"
    allowed["reconciler/watch"] = "reconciler/watch/ lib/"
    allowed["reconciler/observe"] = "reconciler/observe/ model/ lib/"
    allowed["reconciler/hypervisor"] = "reconciler/hypervisor/ model/ lib/"
    allowed["reconciler/serve"] = "reconciler/serve/ reconciler/command/command.h " \
                                  "reconciler/command/answers.h store/read.h " \
                                  "store/counters.h store/overview.h model/ lib/"
    allowed["reconciler/decide"] = "reconciler/decide/ reconciler/observe/observe.h " \
                                   "model/ lib/cleanup.h"
    heart = "reconciler/*.h reconciler/decide/ reconciler/act/ reconciler/cleanup/ " \
            "reconciler/command/ reconciler/helper/ reconciler/observe/ reconciler/hypervisor/ " \
            "store/ agent-client/ doctor/doctor.h config/ model/ lib/"
    allowed["reconciler"] = heart
    allowed["reconciler/act"] = heart
    allowed["reconciler/cleanup"] = heart
    allowed["reconciler/command"] = heart
    allowed["reconciler/helper"] = heart
    allowed["crustctl"] = "crustctl/ doctor/doctor.h config/ store/read.h model/ lib/"
    allowed["guest-agent"] = "guest-agent/ agent-client/ttrpc_codec.h " \
                             "agent-client/agent_messages.h agent-client/agent_address.h lib/"
    allowed["crust-qemu"] = "crust-qemu/ lib/cleanup.h"

    only["sqlite3.h"] = "store"
    only["ev.h"] = "lib"
    only["curl/"] = "lib"
    only["nghttp2/"] = "reconciler/serve"
    only["microhttpd.h"] = "reconciler/serve"
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
    else if (FILENAME != "reconciler/main.c") {
        count = split(allowed[folder], rules, " ")
        for (i = 1; i <= count; i++)
            if (matches(rules[i], name))
                return check_private(name)
        complain("includes \"" name "\": " folder "/ may include only " allowed[folder])
    } else
        check_private(name)
}

# Whether a header is private stands in its first lines.
function check_private(name,    line, i, owner) {
    owner = name
    sub(/\/[^\/]*$/, "", owner)
    if (index(folder "/", owner "/") == 1)
        return
    if (!(name in private)) {
        private[name] = 0
        for (i = 0; i < 20 && (getline line < name) > 0; i++)
            if (line ~ /Private to /)
                private[name] = 1
        close(name)
    }
    if (private[name])
        complain("includes \"" name "\": it is private to " owner "/")
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
