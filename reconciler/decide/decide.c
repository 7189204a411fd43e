/* decide.c - the decision table for growth.
 *
 * Read from top to bottom: first whether the volume is ours to manage, then whether exactly one
 * sandbox has it and nothing forbids touching it, then how far its growth has come: host,
 * hypervisor, guest. What is unknown is never taken for equal, and nothing ever shrinks.
 *
 * A state says how things stand and does not depend on may_try; only the action does. So a volume
 * that waits for its next attempt reads the same as one that is just being tried again.
 */
#include "reconciler/decide/decide.h"

static struct decision say(enum volume_state state, enum volume_reason reason)
{
    return (struct decision){state, reason, ACTION_NONE};
}

static struct decision try_to(const struct decide_facts *facts, enum decide_action action,
                              enum volume_state state, enum volume_reason reason)
{
    return (struct decision){state, reason, facts->may_try ? action : ACTION_NONE};
}

uint64_t decide_baseline(const struct decide_facts *facts)
{
    return facts->hypervisor_bytes ? facts->hypervisor_bytes : facts->first_bytes;
}

static enum volume_reason conflict_reason(enum decide_conflict conflict)
{
    switch (conflict) {
    case CONFLICT_ENTRIES_DISAGREE:
        return REASON_ENTRIES_DISAGREE;
    case CONFLICT_DEVICE_SHARED:
        return REASON_DEVICE_SHARED;
    case CONFLICT_HOST_IN_USE:
        return REASON_HOST_IN_USE;
    case CONFLICT_IDENTITY_MISMATCH:
        return REASON_IDENTITY_MISMATCH;
    case CONFLICT_BYPASSED:
        return REASON_BYPASSED;
    case CONFLICT_NONE:
        break;
    }
    return REASON_NONE;
}

/* What keeps growth from coming up to the device outweighs a remark about the guest. */
static enum volume_reason remark(const struct decide_facts *facts, enum volume_reason on_guest)
{
    switch (facts->beneath) {
    case BENEATH_STALE:
        return REASON_HOST_STALE;
    case BENEATH_PENDING:
        return REASON_HOST_LAYER_PENDING;
    case BENEATH_IN_STEP:
        break;
    }
    return on_guest;
}

static enum volume_reason remark_on_guest(const struct decide_facts *facts, bool is_synced)
{
    if (is_synced)
        return facts->guest_reason == REASON_UNVERIFIED ? REASON_UNVERIFIED : REASON_NONE;
    if (facts->permit == PERMIT_OBSERVE)
        return REASON_NONE;
    return facts->guest_reason == REASON_NONE ? REASON_NONE : REASON_UNVERIFIED;
}

/* The VMM has the device's size, as far as it says. */
static struct decision decide_guest(const struct decide_facts *facts)
{
    bool is_synced = facts->guest_synced_bytes >= facts->device_bytes;
    enum decide_action action = ACTION_GROW_GUEST;

    if (is_synced || facts->permit == PERMIT_OBSERVE)
        action = ACTION_NONE;
    if (!is_synced && facts->growth_open)
        return try_to(facts, action, STATE_BLOCK_GROWN, facts->guest_reason);

    if (facts->beneath == BENEATH_STALE && facts->may_rescan && facts->permit == PERMIT_GROW)
        return (struct decision){STATE_IN_SYNC, REASON_HOST_STALE, ACTION_RESCAN_DISK};

    /* First seen attached and equal: the file system is grown once, in case somebody grew the
     * device and told the VMM before crustd came. That this may fail is no growth that hangs. */
    return try_to(facts, action, STATE_IN_SYNC, remark(facts, remark_on_guest(facts, is_synced)));
}

static struct decision decide_growth(const struct decide_facts *facts)
{
    if (facts->permit == PERMIT_OBSERVE)
        return say(STATE_HOST_GROWN, REASON_POLICY);
    if (!facts->is_still)
        return (struct decision){STATE_HOST_GROWN, REASON_NONE, ACTION_WAIT};
    if (facts->hypervisor_reason != REASON_NONE)
        return try_to(facts, ACTION_RESIZE_HYPERVISOR, STATE_BLOCKED, facts->hypervisor_reason);
    return try_to(facts, ACTION_RESIZE_HYPERVISOR, STATE_HOST_GROWN, REASON_NONE);
}

/* Told to read the size that the device has anyway, a VMM changes nothing and says it. */
static struct decision decide_unknown(const struct decide_facts *facts)
{
    enum decide_action action = ACTION_QUERY_HYPERVISOR;

    if (!facts->asks_hypervisor)
        action = facts->permit == PERMIT_GROW ? ACTION_RESIZE_HYPERVISOR : ACTION_NONE;
    return try_to(facts, action, STATE_UNKNOWN, facts->hypervisor_reason);
}

struct decision decide(const struct decide_facts *facts)
{
    if (facts->status != DECIDE_PRESENT)
        return say(STATE_UNMANAGED,
                   facts->status == DECIDE_INVALID ? REASON_INVALID_MOUNT_INFO : REASON_NONE);
    if (facts->permit == PERMIT_NEVER)
        return say(STATE_UNMANAGED, REASON_POLICY);
    if (facts->device == DEVICE_UNSUITABLE)
        return say(STATE_UNMANAGED, REASON_NOT_A_BLOCK_DEVICE);
    if (facts->live_sandboxes == 0)
        return say(STATE_UNBOUND, REASON_NONE);
    if (facts->device == DEVICE_MISSING)
        return say(STATE_BLOCKED, REASON_NO_DEVICE);
    if (facts->live_sandboxes > 1)
        return say(STATE_BLOCKED, REASON_MULTIPLE_SANDBOXES);
    if (facts->conflict != CONFLICT_NONE)
        return say(STATE_BLOCKED, conflict_reason(facts->conflict));
    if (facts->hypervisor_reason == REASON_IDENTITY_MISMATCH)
        return try_to(facts, ACTION_QUERY_HYPERVISOR, STATE_BLOCKED, REASON_IDENTITY_MISMATCH);
    if (facts->device_bytes < facts->largest_bytes || facts->device_bytes < facts->hypervisor_bytes)
        return say(STATE_SHRUNK, REASON_NONE);
    if (facts->device_bytes > decide_baseline(facts))
        return decide_growth(facts);
    if (facts->hypervisor_bytes == 0)
        return decide_unknown(facts);
    return decide_guest(facts);
}

const char *decide_action_name(enum decide_action action)
{
    switch (action) {
    case ACTION_QUERY_HYPERVISOR:
        return "query_hypervisor";
    case ACTION_RESIZE_HYPERVISOR:
        return "resize_hypervisor";
    case ACTION_GROW_GUEST:
        return "grow_guest";
    case ACTION_RESCAN_DISK:
        return "rescan_disk";
    case ACTION_WAIT:
        return "wait";
    case ACTION_NONE:
        break;
    }
    return "none";
}
