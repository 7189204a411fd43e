/* SPDX-License-Identifier: Apache-2.0 */
/* evidence_text.c - the evidence that a volume is blocked, or the reason why a claim was not
 * verified, as text for people: which source said what about which device. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "lib/path_guard.h"
#include "lib/process.h"
#include "reconciler/core/context.h"
#include "reconciler/core/volume_steps.h"

static const char *or_nothing(const char *text)
{
    return text[0] ? text : "no such drive";
}

static void say_mismatch(const struct store_volume *volume, char *text, size_t size)
{
    if (volume->record_contradicts)
        snprintf(text, size, "the metadata names %.200s (%s), the runtime gave the VM %s",
                 volume->device_path, volume->device_name, volume->recorded_file);
    else if (volume->list_error[0])
        snprintf(text, size, "the metadata names %.200s (%s), the VMM says: %s",
                 volume->device_path, volume->device_name, volume->list_error);
    else
        snprintf(text, size,
                 "the metadata names %.200s (%s), another disk now than the one that the VM was "
                 "given under this number",
                 volume->device_path, volume->device_name);
}

static void say_no_device(const struct context *context, const struct store_volume *volume,
                          char *text, size_t size)
{
    if (path_guard_check(context->root, volume->device_path) == PATH_MAY_HANG)
        snprintf(text, size,
                 "%s leads into a file system that may hang, or over too many names and links",
                 volume->device_path);
}

static void say_shared_drive(const struct context *context, const struct store_volume *volume,
                             char *text, size_t size)
{
    cleanup(store_drive_mount_done) struct store_drive_mount drive = {0};

    if (store_get_drive_mount_itself(context->store, volume->shared_drive, &drive) == STORE_FOUND)
        snprintf(text, size,
                 "volume %" PRId64 " (%.1000s) and drive %s of sandbox %s both lead to %.200s",
                 volume->volume_id, volume->target_path, drive.request.drive_id,
                 drive.request.sandbox_id, volume->device_name);
}

static void say_shared(const struct context *context, const struct store_volume *volume, char *text,
                       size_t size)
{
    struct store_volume other = {.volume_id = volume->shared_with};

    if (!volume->shared_with)
        say_shared_drive(context, volume, text, size);
    else if (store_get_volume_itself(context->store, &other) == 0)
        snprintf(text, size,
                 "volume %" PRId64 " (%.1000s) and volume %" PRId64
                 " (%.1000s) both lead to %.200s",
                 volume->volume_id, volume->target_path, other.volume_id, other.target_path,
                 volume->device_name);
}

static void say_bypassed(const struct store_volume *volume, char *text, size_t size)
{
    if (volume->bypassed)
        return; /* the view names the part that is mounted */
    if (volume->carrier == STORE_CARRIER_DIRECTORY)
        snprintf(
            text, size,
            "a container of sandbox %s has the directory %.1000s of the node, by the runtime's "
            "own record; the VMM's list: %s",
            volume->sandbox_id, volume->target_path,
            volume->list == STORE_LIST_LACKS ? or_nothing(volume->list_error)
                                             : reason_name(volume->hypervisor_reason));
    else
        snprintf(text, size,
                 "a container of sandbox %s has drive %s, by the runtime's own record; the VMM's "
                 "list: %s",
                 volume->sandbox_id, volume->recorded_drive_id, or_nothing(volume->list_error));
}

static void say_orphaned(const struct store_volume *volume, char *text, size_t size)
{
    if (volume->sandbox_id[0])
        snprintf(text, size,
                 "process %d, the VMM of sandbox %s, has outlived its shim: it ends by kill %d",
                 (int)volume->vmm_pid, volume->sandbox_id, (int)volume->vmm_pid);
    else
        snprintf(text, size,
                 "the VMM of one of the sandboxes has outlived its shim: crustctl doctor names it");
}

/* A VMM did not answer, and that is not because its pod is just starting. */
static bool is_lasting(const struct store_volume *volume, const struct decision *decision)
{
    return volume->hypervisor_error[0] && !reason_heals(decision->reason, decision->state);
}

int evidence_text_record(const struct context *context, struct store_volume *volume,
                         const struct decision *decision)
{
    enum volume_reason reason =
        decision->state == STATE_BLOCKED || decision->reason == REASON_NO_DEVICE ? decision->reason
                                                                                 : REASON_NONE;
    char text[STORE_PATH_BYTES * 2] = "";
    struct error still = {0};

    if (volume->hypervisor_reason == REASON_HYPERVISOR_UNREACHABLE &&
        process_stands_still(volume->vmm_pid, &still))
        snprintf(text, sizeof(text), "the VMM does not answer: %s", still.text);
    else if (volume->hypervisor_reason == REASON_VM_PAUSED ||
             (decision->state == STATE_UNKNOWN && is_lasting(volume, decision)))
        snprintf(text, sizeof(text), "%s", volume->hypervisor_error);
    else if (decision->reason == REASON_BUNDLE_UNREADABLE)
        snprintf(text, sizeof(text), "sandbox %s", volume->hiding);
    else if (reason != REASON_NONE && volume->orphaned)
        say_orphaned(volume, text, sizeof(text));
    else if (reason == REASON_IDENTITY_MISMATCH)
        say_mismatch(volume, text, sizeof(text));
    else if (reason == REASON_NO_DEVICE)
        say_no_device(context, volume, text, sizeof(text));
    else if (reason == REASON_DEVICE_SHARED)
        say_shared(context, volume, text, sizeof(text));
    else if (reason == REASON_BYPASSED)
        say_bypassed(volume, text, sizeof(text));
    return store_set_evidence(context->store, volume, text);
}
