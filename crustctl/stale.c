/* stale.c - the table of reasons for keeping and removing stale metadata. */
#include "crustctl/stale.h"

#include <stdio.h>
#include <string.h>

#include "crustctl/display.h"

const struct stale_text stale_texts[] = {
    /* ---- kept ---- */
    {"restored", "A person had it put back, and it has not changed since.",
     "Remove it by hand if it is of no use: kata-runtime direct-volume remove."},
    {"invalid_mount_info", "Its directory does not read well, so crustd knows too little of it.",
     "crustctl volume VOL shows the problem; remove the directory by hand if it is of no use."},
    {"unknown_file", "Its directory holds a file that is no part of a volume's metadata.",
     "crustctl volume VOL names the file; move it elsewhere, or remove the directory by hand."},
    {"path_unknown", "Its name is a hash, and no path is known that has it.",
     "Remove the directory by hand if it is of no use."},
    {"not_kubelet_path", "Its path is none of the kubelet's, so nobody says whether it is needed.",
     "Remove it by hand if it is of no use: kata-runtime direct-volume remove."},
    {"sandbox_alive", "The kubelet let go of it, and a process of its sandbox is still there.",
     "See what holds the pod's VM or shim: crustctl sandboxes, ps."},
    {"pid_namespace", "crustd does not see the host's processes, so it knows nothing of lives.",
     "Run crustd in the host's pid namespace: hostPID in a pod."},
    {"kubelet_unseen", "No pod is there below the kubelet's directory, so it may not be mounted.",
     "paths.kubelet must be the kubelet's --root-dir, visible to crustd."},
    {"kubelet_moved", "The kubelet's directory is on another file system than at crustd's start.",
     "If that is right, restart crustd."},
    {"published", "Its sandbox is gone, and the kubelet still has the volume's directory.",
     "If the pod is gone as well, look at the kubelet's and the CSI driver's logs."},
    {"pod_exists", "No sandbox ever used it, and its pod's directory is there.",
     "It goes once the pod is deleted."},
    {"sandbox_unproven",
     "No process of its sandbox is there, but its end was not seen, and its state directories or "
     "cgroups are.",
     "Have the runtime clean up (crictl rmp), or remove the sandbox's state directories."},
    {"source_unhealthy", "A directory that crustd watches vanished, or a sense does not work.",
     "crustctl status and the log say which."},
    {"database_degraded", "crustd's records could be lost, so nothing is removed.",
     "crustctl status says why."},
    {"trash_unusable", "There is no place on the same mount that it could be moved to.",
     "The log says why; set paths.kata_trash or paths.crust_trash."},
    {"grace", "It has not been stale and unchanged for long enough.",
     "It goes by itself; cleanup.grace_seconds and cleanup.unbound_grace_seconds say when."},
    {"report_only", "cleanup.mode = report.",
     "crustctl gc removes it; cleanup.mode = delete does."},
    {"breaker",
     "More than half of all volumes look stale at once, and nobody saw their sandboxes end.",
     "If that is right (crustctl gc --dry-run), confirm it: crustctl gc."},
    {"rate_limit", "cleanup.max_per_minute is used up; it goes next.", NULL},

    /* ---- removed ---- */
    {"sandbox_ended", "Its sandbox was seen to end, and the kubelet let go of it.", NULL},
    {"sandbox_cleared", "Nothing of its sandbox is left, and the kubelet let go of it.", NULL},
    {"never_used", "No sandbox ever used it, and its pod is gone.", NULL},
    {"dead_sandbox_file", "The file of a dead sandbox, beside that of a live one.", NULL},
    {"staged_again", "It was staged anew while it was being removed: that is newer, and stays.",
     NULL},

    /* ---- put back, failed, restored ---- */
    {"changed", "Somebody wrote to it while it was being removed, so it was put back.", NULL},
    {"cannot_move", "It could not be moved to the trash; the log says why.", NULL},
    {"lost_from_trash", "Somebody took it out of the trash.", NULL},
    {"requested", "A person had it put back.", NULL},
    {0},
};

const struct stale_text *stale_find(const char *reason)
{
    for (const struct stale_text *text = stale_texts; text->reason; text++)
        if (strcmp(text->reason, reason) == 0)
            return text;
    return NULL;
}

int stale_print(const struct stale_text *text, unsigned width, struct buffer *out)
{
    char line[512];

    (void)snprintf(line, sizeof(line), "%s: %s%s%s", text->reason, text->meaning,
                   text->remedy ? " " : "", text->remedy ? text->remedy : "");
    return display_append_wrapped(out, line, NULL, 2, width);
}
