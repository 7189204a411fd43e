/* SPDX-License-Identifier: Apache-2.0 */
/* stale.h - evidence about one metadata directory in, a verdict out.
 *
 * Pure: no I/O, no clock, no memory. The order of the tests is the table "Staleness" of
 * docs/states.md; every cell is tested. A wrong removal is worse than a leak, so missing evidence
 * keeps the directory, and only the last three rows, which depend on the sandboxes' end, remove it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "model/stale_reason.h"

/* Where the volume's path lies. */
enum stale_path {
    STALE_PATH_PUBLISH,   /* KUBELET/pods/UID/volumes/kubernetes.io~csi/PV/mount */
    STALE_PATH_EMPTY_DIR, /* the shim's own disk */
    STALE_PATH_OTHER,
    STALE_PATH_UNRESOLVED, /* a name that does not tell its path */
};

/* The sandboxes that the volume is or was used by, all of them together: the worst. */
enum stale_sandbox {
    STALE_SANDBOX_NEVER,   /* none is known */
    STALE_SANDBOX_SEEN,    /* no process of any, and each one's end was witnessed */
    STALE_SANDBOX_CLEARED, /* no process of any; cgroups and state directories are gone too */
    STALE_SANDBOX_TRACES,  /* no process of any, and neither of the two is so */
    STALE_SANDBOX_ALIVE,
    STALE_SANDBOX_UNSEEN, /* crustd does not see the host's processes */
};

/* What the kubelet's own directories say, read now. */
enum stale_kubelet {
    STALE_KUBELET_HOLDS,  /* the pod's directory, and in it the leaf or its vol_data.json */
    STALE_KUBELET_LEFT,   /* the pod's directory; neither leaf nor vol_data.json */
    STALE_KUBELET_GONE,   /* no directory of the pod */
    STALE_KUBELET_UNSEEN, /* no other pod's directory shows that this is the kubelet's root */
    STALE_KUBELET_MOVED,  /* on another file system than at start */
};

/* Obstacles that keep any directory, whatever the evidence about it. */
enum stale_daemon {
    STALE_DAEMON_FIT,
    STALE_DAEMON_SOURCES,  /* one vanished, or a watcher does not work */
    STALE_DAEMON_DATABASE, /* records written now could be lost */
    STALE_DAEMON_TRASH,    /* there is no place that a directory can be moved to */
};

/* The directory itself, read now. */
enum stale_entry {
    STALE_ENTRY_VALID,
    STALE_ENTRY_EXTRA,   /* reads well, and holds names that are no part of the metadata */
    STALE_ENTRY_INVALID, /* not valid metadata */
};

enum stale_mode { STALE_MODE_OFF, STALE_MODE_REPORT, STALE_MODE_DELETE };

/* A limit on a removal that is otherwise decided. */
enum stale_limit {
    STALE_LIMIT_NONE,
    STALE_LIMIT_BREAKER, /* more than half of all volumes, and at least five, at once */
    STALE_LIMIT_RATE,
};

struct stale_facts {
    enum stale_mode mode;
    enum stale_path path;
    enum stale_sandbox sandbox;
    enum stale_kubelet kubelet;
    enum stale_entry entry;
    bool restored; /* as a person had it put back */
    bool settled;  /* stale and unchanged for as long as is asked for */
    enum stale_daemon daemon;
    enum stale_limit limit;
};

enum stale_verdict { STALE_NOT, STALE_KEEP, STALE_REMOVE };

struct stale_decision {
    enum stale_verdict verdict;
    enum stale_reason reason;
};

struct stale_decision stale_decide(const struct stale_facts *facts);

/* The first condition by which it does not look stale; only if the verdict is STALE_NOT and the
 * mode is not off. */
enum stale_reason stale_why_not(const struct stale_facts *facts);

/* ---- a sandbox-id file beside others ------------------------------------------------------ */

/* The file of a dead sandbox in the directory of a volume that is in use: what the kubelet says of
 * the volume does not matter for it, everything else does. facts.sandbox is that sandbox's. */
struct stale_decision stale_decide_file(const struct stale_facts *facts);

/* ---- time ---------------------------------------------------------------------------------- */

/* All CLOCK_BOOTTIME. */
struct stale_times {
    uint64_t since_ns;   /* stale and unchanged */
    uint64_t well_ns;    /* everything could be seen since then; 0: it can't be */
    uint64_t kubelet_ns; /* the kubelet was started; 0 unknown */
    uint64_t grace_ns;
};

/* When the grace time is over; UINT64_MAX: not as things are. */
uint64_t stale_settles(const struct stale_times *times);

/* ---- the breaker --------------------------------------------------------------------------- */

/* Whether a person has to confirm so many at once. Sandboxes whose end was witnessed do not count.
 */
bool stale_breaks(unsigned long removable, unsigned long all_volumes);
