/* SPDX-License-Identifier: Apache-2.0 */
/* stale.c - the decision table for staleness.
 *
 * Read from top to bottom: whether it looks stale at all, then each piece of evidence that must be
 * there, then what crustd itself must be able to do, then patience, the configuration, the limits.
 * The reason is the first condition that is not met, in the order that helps a person most:
 * conditions of this volume before those of the node.
 *
 * A volume looks stale if its sandboxes are gone, or if the kubelet has released it. Neither is
 * true of a volume whose pod is only just starting, nor of one in ordinary use.
 */
#include "reconciler/decide/stale.h"

static bool is_ended(const struct stale_facts *facts)
{
    return facts->sandbox == STALE_SANDBOX_SEEN || facts->sandbox == STALE_SANDBOX_CLEARED ||
           facts->sandbox == STALE_SANDBOX_TRACES;
}

static enum stale_reason missing_about_kubelet(const struct stale_facts *facts)
{
    switch (facts->kubelet) {
    case STALE_KUBELET_UNSEEN:
        return STALE_REASON_KUBELET_UNSEEN;
    case STALE_KUBELET_MOVED:
        return STALE_REASON_KUBELET_MOVED;
    case STALE_KUBELET_HOLDS:
        return STALE_REASON_PUBLISHED;
    case STALE_KUBELET_LEFT:
        if (facts->sandbox == STALE_SANDBOX_NEVER)
            return STALE_REASON_POD_EXISTS;
        break;
    case STALE_KUBELET_GONE:
        break;
    }
    return STALE_REASON_NONE;
}

/* The first condition that keeps the directory; of_kubelet: the evidence of the kubelet that is
 * missing. NONE: it can go. */
static enum stale_reason why_kept(const struct stale_facts *facts, enum stale_reason of_kubelet)
{
    static const enum stale_reason of_daemon[] = {
        [STALE_DAEMON_FIT] = STALE_REASON_NONE,
        [STALE_DAEMON_SOURCES] = STALE_REASON_SOURCE_UNHEALTHY,
        [STALE_DAEMON_DATABASE] = STALE_REASON_DATABASE,
        [STALE_DAEMON_TRASH] = STALE_REASON_TRASH,
    };

    if (facts->restored)
        return STALE_REASON_RESTORED;
    if (facts->entry == STALE_ENTRY_INVALID)
        return STALE_REASON_INVALID;
    if (facts->entry == STALE_ENTRY_EXTRA)
        return STALE_REASON_UNKNOWN_FILE;
    if (facts->path == STALE_PATH_UNRESOLVED)
        return STALE_REASON_PATH_UNKNOWN;
    if (facts->path == STALE_PATH_OTHER)
        return STALE_REASON_NOT_KUBELET_PATH;
    if (facts->sandbox == STALE_SANDBOX_ALIVE)
        return STALE_REASON_SANDBOX_ALIVE;
    if (facts->sandbox == STALE_SANDBOX_UNSEEN)
        return STALE_REASON_PID_NAMESPACE;
    if (of_kubelet)
        return of_kubelet;
    if (facts->sandbox == STALE_SANDBOX_TRACES)
        return STALE_REASON_SANDBOX_UNPROVEN;
    if (facts->daemon != STALE_DAEMON_FIT)
        return of_daemon[facts->daemon];
    if (!facts->settled)
        return STALE_REASON_GRACE;
    if (facts->mode != STALE_MODE_DELETE)
        return STALE_REASON_REPORT_ONLY;
    if (facts->limit == STALE_LIMIT_BREAKER)
        return STALE_REASON_BREAKER;
    return facts->limit == STALE_LIMIT_RATE ? STALE_REASON_RATE_LIMIT : STALE_REASON_NONE;
}

static struct stale_decision decide_all(const struct stale_facts *facts,
                                        enum stale_reason of_kubelet)
{
    enum stale_reason kept = why_kept(facts, of_kubelet);

    if (kept)
        return (struct stale_decision){STALE_KEEP, kept};
    return (struct stale_decision){
        STALE_REMOVE, facts->sandbox == STALE_SANDBOX_SEEN      ? STALE_REASON_SANDBOX_ENDED
                      : facts->sandbox == STALE_SANDBOX_CLEARED ? STALE_REASON_SANDBOX_CLEARED
                                                                : STALE_REASON_NEVER_USED};
}

struct stale_decision stale_decide(const struct stale_facts *facts)
{
    bool is_released = facts->path == STALE_PATH_PUBLISH && (facts->kubelet == STALE_KUBELET_GONE ||
                                                             facts->kubelet == STALE_KUBELET_LEFT);

    if (facts->mode == STALE_MODE_OFF || facts->path == STALE_PATH_EMPTY_DIR ||
        !(is_ended(facts) || is_released))
        return (struct stale_decision){STALE_NOT, STALE_REASON_NONE};
    return decide_all(facts, missing_about_kubelet(facts));
}

enum stale_reason stale_why_not(const struct stale_facts *facts)
{
    if (facts->path == STALE_PATH_EMPTY_DIR)
        return STALE_REASON_EMPTY_DIR;
    if (facts->sandbox == STALE_SANDBOX_ALIVE)
        return STALE_REASON_IN_USE;
    if (facts->sandbox == STALE_SANDBOX_UNSEEN)
        return STALE_REASON_PID_NAMESPACE;
    if (facts->path == STALE_PATH_UNRESOLVED)
        return STALE_REASON_PATH_UNKNOWN;
    if (facts->path == STALE_PATH_OTHER)
        return STALE_REASON_NOT_KUBELET_PATH;
    if (facts->kubelet == STALE_KUBELET_UNSEEN)
        return STALE_REASON_KUBELET_UNSEEN;
    return facts->kubelet == STALE_KUBELET_MOVED ? STALE_REASON_KUBELET_MOVED
                                                 : STALE_REASON_NOT_USED_YET;
}

struct stale_decision stale_decide_file(const struct stale_facts *facts)
{
    if (facts->mode == STALE_MODE_OFF || facts->path == STALE_PATH_EMPTY_DIR || !is_ended(facts))
        return (struct stale_decision){STALE_NOT, STALE_REASON_NONE};
    return decide_all(facts, STALE_REASON_NONE);
}

uint64_t stale_settles(const struct stale_times *times)
{
    uint64_t from = times->since_ns;

    if (!times->well_ns)
        return UINT64_MAX;
    if (from < times->well_ns)
        from = times->well_ns;
    if (from < times->kubelet_ns)
        from = times->kubelet_ns;
    return from + times->grace_ns;
}

bool stale_breaks(unsigned long removable, unsigned long all_volumes)
{
    return removable >= 5 && removable > all_volumes / 2;
}
