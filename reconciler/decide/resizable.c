/* SPDX-License-Identifier: Apache-2.0 */
/* resizable.c - the decision table for whether a resize would succeed.
 *
 * In the order in which a resize would meet the obstacles, with two exceptions: an observed
 * obstacle outweighs a missing observation, and a policy that forbids counts only without any other
 * obstacle, so that a node in observe mode shows what it lacks.
 */
#include "reconciler/decide/resizable.h"

static struct resizable say_no(enum volume_reason reason)
{
    return (struct resizable){RESIZABLE_NO, reason};
}

static struct resizable say_unknown(enum volume_reason reason)
{
    return (struct resizable){RESIZABLE_UNKNOWN, reason};
}

/* Why decide() does not manage the volume; NONE: it does. */
static enum volume_reason unmanaged_reason(const struct decide_facts *resize)
{
    if (resize->status == DECIDE_INVALID)
        return REASON_INVALID_MOUNT_INFO;
    if (resize->permit == POLICY_NEVER)
        return REASON_POLICY;
    if (resize->device == DEVICE_UNSUITABLE)
        return REASON_NOT_A_BLOCK_DEVICE;
    if (resize->device == DEVICE_MISSING)
        return REASON_NO_DEVICE;
    return resize->live_sandboxes > 1 && !resize->read_only ? REASON_MULTIPLE_SANDBOXES
                                                            : REASON_NONE;
}

static enum volume_reason conflict_reason(const struct decide_facts *resize)
{
    switch (resize->conflict) {
    case CONFLICT_SANDBOX_ORPHANED:
        return REASON_SANDBOX_ORPHANED;
    case CONFLICT_ENTRIES_DISAGREE:
        return REASON_ENTRIES_DISAGREE;
    case CONFLICT_IDENTITY_MISMATCH:
        return REASON_IDENTITY_MISMATCH;
    case CONFLICT_DEVICE_SHARED:
        return REASON_DEVICE_SHARED;
    case CONFLICT_HOST_IN_USE:
        return REASON_HOST_IN_USE;
    case CONFLICT_BYPASSED:
        return REASON_BYPASSED;
    case CONFLICT_UNPLUGGED:
        return resize->live_sandboxes > 1 ? REASON_READ_ONLY : REASON_BYPASSED;
    case CONFLICT_DETACHED:
    case CONFLICT_NONE:
        break;
    }
    return resize->read_only ? REASON_READ_ONLY : REASON_NONE;
}

static bool is_shrunk(const struct decide_facts *resize)
{
    return resize->device_bytes < resize->largest_bytes ||
           resize->device_bytes < resize->hypervisor_bytes;
}

/* The observed obstacle to a resize of a managed volume; NONE: there is none. */
static enum volume_reason obstacle(const struct resizable_facts *facts)
{
    const struct decide_facts *resize = facts->resize;

    if (is_shrunk(resize))
        return REASON_SHRUNK;
    if (resize->device == DEVICE_FILE)
        return REASON_POLICY; /* a regular file is only ever observed */
    if (resize->is_undone)
        return REASON_RESIZE_UNDONE;
    if (resize->hypervisor_reason != REASON_NONE)
        return resize->hypervisor_reason;
    if (facts->monitor == MONITOR_UNABLE)
        return facts->monitor_reason;
    if (resize->guest_reason != REASON_NONE && resize->guest_reason != REASON_UNVERIFIED)
        return resize->guest_reason;
    return resize->permit == POLICY_OBSERVE ? REASON_POLICY : REASON_NONE;
}

static struct resizable decide_managed(const struct resizable_facts *facts)
{
    enum volume_reason reason = obstacle(facts);

    if (reason != REASON_NONE)
        return say_no(reason);
    if (facts->monitor == MONITOR_UNASKED)
        return say_unknown(REASON_DRIVES_NOT_READ);
    if (!facts->resize->guest_proven)
        return say_unknown(REASON_GUEST_NOT_ASKED);
    return (struct resizable){RESIZABLE_YES, REASON_NONE};
}

struct resizable resizable_decide(const struct resizable_facts *facts)
{
    const struct decide_facts *resize = facts->resize;
    enum volume_reason reason;

    if (resize->status == DECIDE_GONE || resize->live_sandboxes == 0)
        return (struct resizable){RESIZABLE_UNUSED, REASON_NONE};
    reason = unmanaged_reason(resize);
    if (reason == REASON_NONE)
        reason = conflict_reason(resize);
    if (reason != REASON_NONE)
        return say_no(reason);
    return resize->conflict == CONFLICT_DETACHED ? say_unknown(REASON_DETACHED)
                                                 : decide_managed(facts);
}

const char *resizable_name(enum resizable_answer answer)
{
    static const char *const names[RESIZABLE_ANSWERS] = {
        [RESIZABLE_YES] = "yes", [RESIZABLE_NO] = "no", [RESIZABLE_UNKNOWN] = "unknown"};

    return names[answer];
}
