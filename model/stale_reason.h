/* SPDX-License-Identifier: Apache-2.0 */
/* stale_reason.h - why metadata that looks stale was kept or removed, and how a cleanup ended: the
 * reasons in audit_cleanups. */
#pragma once

enum stale_reason {
    STALE_REASON_NONE,

    /* kept */
    STALE_REASON_RESTORED,
    STALE_REASON_INVALID,
    STALE_REASON_UNKNOWN_FILE,
    STALE_REASON_PATH_UNKNOWN,
    STALE_REASON_NOT_KUBELET_PATH,
    STALE_REASON_SANDBOX_ALIVE,
    STALE_REASON_PID_NAMESPACE,
    STALE_REASON_KUBELET_UNSEEN,
    STALE_REASON_KUBELET_MOVED,
    STALE_REASON_PUBLISHED,
    STALE_REASON_POD_EXISTS,
    STALE_REASON_SANDBOX_UNPROVEN,
    STALE_REASON_SOURCE_UNHEALTHY,
    STALE_REASON_DATABASE,
    STALE_REASON_TRASH,
    STALE_REASON_GRACE,
    STALE_REASON_REPORT_ONLY,
    STALE_REASON_BREAKER,
    STALE_REASON_RATE_LIMIT,

    /* removed */
    STALE_REASON_SANDBOX_ENDED,
    STALE_REASON_SANDBOX_CLEARED,
    STALE_REASON_NEVER_USED,
    STALE_REASON_DEAD_SANDBOX_FILE,
    STALE_REASON_STAGED_AGAIN,

    /* put back, failed, restored */
    STALE_REASON_CHANGED,
    STALE_REASON_CANNOT_MOVE,
    STALE_REASON_LOST_FROM_TRASH,
    STALE_REASON_REQUESTED,

    /* Not stale. Only answers about a single volume have these; they are never recorded. */
    STALE_REASON_EMPTY_DIR,
    STALE_REASON_IN_USE,
    STALE_REASON_NOT_USED_YET,
    STALE_REASON_NOT_OBSERVED,
    STALE_REASONS,
};

const char *stale_reason_name(enum stale_reason reason);

/* STALE_REASON_NONE: "" or a reason of another version. */
enum stale_reason stale_reason_from_name(const char *name);

/* A sentence whose "it" is the metadata; NULL for STALE_REASON_NONE. */
const char *stale_reason_meaning(enum stale_reason reason);

/* NULL: nothing is to be done. */
const char *stale_reason_remedy(enum stale_reason reason);

/* What is decided about stale metadata, as audit_cleanups and the metrics have it. */
enum cleanup_decision {
    CLEANUP_KEPT,
    CLEANUP_REMOVED,
    CLEANUP_PUT_BACK,
    CLEANUP_RESTORED,
    CLEANUP_FAILED,
    CLEANUP_DECISIONS,
};
const char *cleanup_decision_name(enum cleanup_decision decision);
/* CLEANUP_DECISIONS: any other word. */
enum cleanup_decision cleanup_decision_from_name(const char *name);
