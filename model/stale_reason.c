/* SPDX-License-Identifier: Apache-2.0 */
/* stale_reason.c - the table of reasons for keeping and removing stale metadata. */
#include "model/stale_reason.h"

#include "lib/text.h"
#include "model/volume.h"

#define ROW(reason, ...) [STALE_REASON_##reason] = {__VA_ARGS__}

static const struct {
    const char *name;
    const char *meaning;
    const char *remedy;
} reasons[STALE_REASONS] = {
    ROW(NONE, "none", NULL, NULL),

    /* ---- kept ---- */
    ROW(RESTORED, "restored", "An operator restored it, and it has not changed since.",
        "Remove it by hand if it is of no use: crustctl direct-volume remove."),
    ROW(INVALID, "invalid_mount_info",
        "Its directory is not valid metadata, so crustd knows too little of it.",
        "crustctl explain VOL names the problem; remove the directory by hand if it is of no use."),
    ROW(UNKNOWN_FILE, "unknown_file",
        "Its directory holds a file that is no part of a volume's metadata.",
        "crustctl explain VOL names the file; move it elsewhere, or remove the directory by hand."),
    ROW(PATH_UNKNOWN, "path_unknown", "Its name is a hash, and no path is known that has it.",
        "Remove the directory by hand if it is of no use."),
    ROW(NOT_KUBELET_PATH, "not_kubelet_path",
        "Its path is not one of the kubelet's, so nothing tells whether it is needed.",
        "Remove it by hand if it is of no use: crustctl direct-volume remove."),
    ROW(SANDBOX_ALIVE, "sandbox_alive",
        "The kubelet let go of it, and a process of its sandbox is still there.",
        "Find out what keeps the pod's VM or shim alive: crustctl sandboxes, ps."),
    ROW(PID_NAMESPACE, "pid_namespace",
        "crustd does not see the host's processes, so it cannot tell which sandboxes are alive.",
        "Run crustd in the host's pid namespace: hostPID in a pod."),
    ROW(KUBELET_UNSEEN, "kubelet_unseen",
        "No pod is there below the kubelet's directory, so it may not be mounted.",
        "paths.kubelet must be the kubelet's --root-dir, visible to crustd."),
    ROW(KUBELET_MOVED, "kubelet_moved",
        "The kubelet's directory is on another file system than at crustd's start.",
        "If that is right, restart crustd."),
    ROW(PUBLISHED, "published",
        "Its sandbox is gone, and the kubelet still has the volume's directory.",
        "If the pod is gone as well, look at the kubelet's and the CSI driver's logs."),
    ROW(POD_EXISTS, "pod_exists",
        "No sandbox is on record for it, and its pod's directory is there.",
        "It goes once the pod is deleted. If it is deleted, look at KUBELET/pods/UID and the "
        "kubelet's log (orphaned pod)."),
    ROW(SANDBOX_UNPROVEN, "sandbox_unproven",
        "No process of its sandbox is there, but its end was not seen, and its state directories "
        "or cgroups are.",
        "Have the runtime clean up (crictl rmp), or remove the sandbox's state directories."),
    ROW(SOURCE_UNHEALTHY, "source_unhealthy",
        "A directory that crustd watches vanished, or a watcher does not work.",
        "crustctl status names it: bring it back, or restart crustd if it is gone for good."),
    ROW(DATABASE, "database_degraded", "crustd's records could be lost, so nothing is removed.",
        "crustctl status says why."),
    ROW(TRASH, "trash_unusable", "There is no place on the same mount that it could be moved to.",
        "The log says why; set paths.kata_trash or paths.crust_trash."),
    ROW(GRACE, "grace", "It has not been stale and unchanged for long enough.",
        "It goes by itself; crustctl gc --dry-run says when. If it lasts, crustd or the kubelet "
        "restarts again and again, or the directory changes."),
    ROW(REPORT_ONLY, "report_only", "cleanup.mode = report.",
        "crustctl gc removes it; cleanup.mode = delete does."),
    ROW(BREAKER, "breaker",
        "More than half of all volumes look stale at once, and the end of their sandboxes was not "
        "observed.",
        "If that is right (crustctl gc --dry-run), confirm it: crustctl gc."),
    ROW(RATE_LIMIT, "rate_limit", "cleanup.max_per_minute is used up; it goes next.", NULL),

    /* ---- removed ---- */
    ROW(SANDBOX_ENDED, "sandbox_ended",
        "Its sandbox was seen to end, and the kubelet let go of it.", NULL),
    ROW(SANDBOX_CLEARED, "sandbox_cleared",
        "Nothing of its sandbox is left, and the kubelet let go of it.", NULL),
    ROW(NEVER_USED, "never_used", "No sandbox is on record for it, and its pod is gone.", NULL),
    ROW(DEAD_SANDBOX_FILE, "dead_sandbox_file",
        "The file of a dead sandbox, beside that of a live one.", NULL),
    ROW(STAGED_AGAIN, "staged_again",
        "It was staged anew while it was being removed: that is newer, and stays.", NULL),

    /* ---- put back, failed, restored ---- */
    ROW(CHANGED, "changed", "Somebody wrote to it while it was being removed, so it was put back.",
        NULL),
    ROW(CANNOT_MOVE, "cannot_move", "It could not be moved to the trash; the log says why.", NULL),
    ROW(LOST_FROM_TRASH, "lost_from_trash", "Somebody took it out of the trash.", NULL),
    ROW(REQUESTED, "requested", "An operator restored it.", NULL),

    /* ---- does not look stale ---- */
    ROW(EMPTY_DIR, "empty_dir", "It is an emptyDir, or its volume-type is blk: the runtime's own.",
        NULL),
    ROW(IN_USE, "in_use",
        "A process of its sandbox is there, and the kubelet has not let go of the volume.",
        "If its pod is gone, see what holds the VM or shim: crustctl sandboxes, ps."),
    ROW(NOT_USED_YET, "not_used_yet",
        "No sandbox is on record for it, and the kubelet has the volume's directory or its "
        "vol_data.json, so its pod may be starting.",
        "If the pod is deleted, look at KUBELET/pods/UID and the kubelet's log (orphaned pod)."),
    ROW(NOT_OBSERVED, "not_observed",
        "Its directory is not what crustd has on record, so it is observed again first.",
        "If it lasts, look at the log, and at what writes to the directory."),
};

WORDS(stale_reason, enum stale_reason, reasons, STALE_REASONS, STALE_REASON_NONE)

const char *stale_reason_meaning(enum stale_reason reason)
{
    return reasons[reason].meaning;
}

const char *stale_reason_remedy(enum stale_reason reason)
{
    return reasons[reason].remedy;
}

static const char *const decisions[CLEANUP_DECISIONS] = {"kept", "removed", "put-back", "restored",
                                                         "failed"};

WORDS(cleanup_decision, enum cleanup_decision, decisions, CLEANUP_DECISIONS, CLEANUP_DECISIONS)
