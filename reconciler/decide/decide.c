/* SPDX-License-Identifier: Apache-2.0 */
/* decide.c - the decision table for resizes.
 *
 * Read from top to bottom: first whether crustd manages the volume, then whether exactly one
 * sandbox has it and nothing forbids touching it, then how far its resize has come: host,
 * hypervisor, guest. An unknown size never counts as equal, and nothing ever shrinks.
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

uint64_t decide_baseline(uint64_t hypervisor_bytes, uint64_t first_bytes)
{
    return hypervisor_bytes ? hypervisor_bytes : first_bytes;
}

/* An obstacle below the device outweighs a result that was not verified. A file system that was
 * seen to fill the device shows the VM's size, too, which some VMMs do not tell. */
static enum volume_reason remark(const struct decide_facts *facts, bool is_synced)
{
    bool is_seen =
        (facts->hypervisor_bytes || facts->guest_proven) && facts->list_read && is_synced;

    switch (facts->lower) {
    case LOWER_STALE:
        return REASON_HOST_STALE;
    case LOWER_PENDING:
        return REASON_HOST_LAYER_PENDING;
    case LOWER_IN_STEP:
        break;
    }
    return is_seen && facts->guest_reason != REASON_UNVERIFIED ? REASON_NONE : REASON_UNVERIFIED;
}

static bool wants_list(const struct decide_facts *facts)
{
    return (!facts->list_read || facts->list_again) && facts->may_try;
}

/* Waiting for the VMM's next attempt does not delay the guest's first one. */
static enum decide_action guest_action(const struct decide_facts *facts, bool is_synced)
{
    bool is_untried = facts->hypervisor_reason != REASON_NONE && facts->guest_reason == REASON_NONE;

    if (!(is_synced && facts->guest_proven) && facts->permit == POLICY_GROW &&
        (facts->may_try || is_untried))
        return ACTION_RESIZE_GUEST;
    return wants_list(facts) ? ACTION_QUERY_HYPERVISOR : ACTION_NONE;
}

/* The VMM has the device's size: it said so, or nothing contradicts it. Its list is read before the
 * guest is asked, but the guest is also asked if the list cannot be read. A file system is grown to
 * its device even if no change of the device was observed, because it may have grown while no pod
 * had it. A file system that is known to fill its device gets the call all the same, once per
 * binding, so that this guest's abilities are known before they are needed. A failure there is not
 * reported as a stuck resize. A guest that is paused is not called; its VMM is asked whether it
 * runs again. */
static struct decision decide_guest(const struct decide_facts *facts)
{
    bool is_synced = facts->guest_synced_bytes >= facts->device_bytes;
    bool has_debt = !is_synced && facts->resize_open;
    struct decision decision = {STATE_IN_SYNC, remark(facts, is_synced), ACTION_NONE};
    bool is_paused = facts->hypervisor_reason == REASON_VM_PAUSED;

    if (has_debt)
        decision = say(STATE_BLOCK_GROWN, is_paused ? REASON_VM_PAUSED : facts->guest_reason);
    if (is_paused)
        decision.action = facts->may_try ? ACTION_QUERY_HYPERVISOR : ACTION_NONE;
    else if (wants_list(facts) && facts->hypervisor_reason == REASON_NONE)
        decision.action = ACTION_QUERY_HYPERVISOR;
    else if (!has_debt && facts->lower == LOWER_STALE && facts->may_rescan &&
             facts->permit == POLICY_GROW)
        decision.action = ACTION_RESCAN_DISK;
    else
        decision.action = guest_action(facts, is_synced);
    return decision;
}

static struct decision decide_resize(const struct decide_facts *facts)
{
    enum decide_action again = facts->list_again ? ACTION_QUERY_HYPERVISOR : ACTION_NONE;

    if (facts->is_undone)
        return try_to(facts, again, STATE_BLOCKED, REASON_RESIZE_UNDONE);
    if (facts->permit == POLICY_OBSERVE)
        return try_to(facts, again, STATE_HOST_GROWN, REASON_POLICY);
    if (!facts->is_still)
        return (struct decision){STATE_HOST_GROWN, REASON_NONE, ACTION_WAIT};
    if (facts->hypervisor_reason != REASON_NONE)
        return try_to(facts, ACTION_RESIZE_HYPERVISOR, STATE_BLOCKED, facts->hypervisor_reason);
    return try_to(facts, ACTION_RESIZE_HYPERVISOR, STATE_HOST_GROWN, REASON_NONE);
}

/* A VMM whose list has no sizes can be told to read the present size of the device again: that
 * changes nothing, and the answer has the size. */
static struct decision decide_unknown(const struct decide_facts *facts)
{
    enum decide_action action = ACTION_QUERY_HYPERVISOR;

    if (facts->list_read && facts->permit == POLICY_GROW)
        action = ACTION_RESIZE_HYPERVISOR;
    else if (!wants_list(facts))
        action = ACTION_NONE;
    return try_to(facts, action, STATE_UNKNOWN, facts->hypervisor_reason);
}

static struct decision decide_conflict(const struct decide_facts *facts)
{
    switch (facts->conflict) {
    case CONFLICT_SANDBOX_ORPHANED:
        return say(STATE_BLOCKED, REASON_SANDBOX_ORPHANED);
    case CONFLICT_ENTRIES_DISAGREE:
        return say(STATE_BLOCKED, REASON_ENTRIES_DISAGREE);
    case CONFLICT_DEVICE_SHARED:
        return say(STATE_BLOCKED, REASON_DEVICE_SHARED);
    case CONFLICT_HOST_IN_USE:
        return say(STATE_BLOCKED, REASON_HOST_IN_USE);
    case CONFLICT_IDENTITY_MISMATCH:
        return say(STATE_BLOCKED, REASON_IDENTITY_MISMATCH);
    case CONFLICT_BYPASSED:
        return say(STATE_BLOCKED, REASON_BYPASSED);
    case CONFLICT_UNPLUGGED:
        return try_to(facts, ACTION_QUERY_HYPERVISOR, STATE_BLOCKED, REASON_BYPASSED);
    case CONFLICT_DETACHED:
    case CONFLICT_NONE:
        break;
    }
    return say(STATE_DETACHED, REASON_NONE);
}

/* Found in the one VMM that has the volume. */
static bool is_of_drive(const struct decide_facts *facts)
{
    return facts->conflict == CONFLICT_UNPLUGGED || facts->conflict == CONFLICT_DETACHED;
}

/* Nothing can grow its file system, so its VMM need not know the new size. Only its presence is
 * checked. */
static struct decision decide_reader(const struct decide_facts *facts)
{
    return try_to(facts, wants_list(facts) ? ACTION_QUERY_HYPERVISOR : ACTION_NONE, STATE_UNMANAGED,
                  REASON_READ_ONLY);
}

struct decision decide(const struct decide_facts *facts)
{
    bool has_readers = facts->read_only && facts->live_sandboxes > 1;

    if (facts->status != DECIDE_PRESENT)
        return say(STATE_UNMANAGED,
                   facts->status == DECIDE_INVALID ? REASON_INVALID_MOUNT_INFO : REASON_NONE);
    if (facts->permit == POLICY_NEVER)
        return say(STATE_UNMANAGED, REASON_POLICY);
    if (facts->device == DEVICE_UNSUITABLE)
        return say(STATE_UNMANAGED, REASON_NOT_A_BLOCK_DEVICE);
    if (facts->live_sandboxes == 0)
        return say(STATE_UNBOUND, facts->may_be_hidden              ? REASON_BUNDLE_UNREADABLE
                                  : facts->device == DEVICE_MISSING ? REASON_NO_DEVICE
                                                                    : REASON_NONE);
    if (facts->device == DEVICE_MISSING)
        return say(STATE_BLOCKED, REASON_NO_DEVICE);
    if (facts->live_sandboxes > 1 && !has_readers)
        return say(STATE_BLOCKED, REASON_MULTIPLE_SANDBOXES);
    if (facts->conflict != CONFLICT_NONE && !(has_readers && is_of_drive(facts)))
        return decide_conflict(facts);
    if (has_readers)
        return say(STATE_UNMANAGED, REASON_READ_ONLY);
    if (facts->hypervisor_reason == REASON_IDENTITY_MISMATCH)
        return try_to(facts, ACTION_QUERY_HYPERVISOR, STATE_BLOCKED, REASON_IDENTITY_MISMATCH);
    if (facts->read_only)
        return decide_reader(facts);
    if (facts->device_bytes < facts->largest_bytes || facts->device_bytes < facts->hypervisor_bytes)
        return say(STATE_SHRUNK, REASON_NONE);
    if (facts->device_bytes > decide_baseline(facts->hypervisor_bytes, facts->first_bytes))
        return decide_resize(facts);
    return facts->hypervisor_bytes || facts->size_assumed ? decide_guest(facts)
                                                          : decide_unknown(facts);
}

const char *decide_action_name(enum decide_action action)
{
    switch (action) {
    case ACTION_QUERY_HYPERVISOR:
        return "query_hypervisor";
    case ACTION_RESIZE_HYPERVISOR:
        return "resize_hypervisor";
    case ACTION_RESIZE_GUEST:
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

/* ---- backoff -------------------------------------------------------------------------------- */

uint64_t backoff_bound(uint32_t failures)
{
    uint64_t bound = BACKOFF_FIRST_NS;

    for (uint32_t i = 1; i < failures && bound < BACKOFF_LARGEST_NS; i++)
        bound *= 2;
    return bound < BACKOFF_LARGEST_NS ? bound : BACKOFF_LARGEST_NS;
}

uint64_t backoff_delay(uint32_t failures, uint64_t random)
{
    uint64_t bound = backoff_bound(failures);
    uint64_t least = bound / 100;

    return least + random % (bound - least + 1);
}

/* ---- resizable ------------------------------------------------------------------------------ */

/* The decision table for whether a resize would succeed.
 *
 * In the order in which a resize would meet the obstacles, with two exceptions: an observed
 * obstacle outweighs a missing observation, and a policy that forbids counts only without any other
 * obstacle, so that a node in observe mode shows what it lacks.
 */

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
