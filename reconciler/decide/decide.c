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
    return (struct decision){state, reason, ACTION_NONE, false};
}

static struct decision try_to(const struct decide_facts *facts, enum decide_action action,
                              enum volume_state state, enum volume_reason reason)
{
    return (struct decision){state, reason, facts->may_try ? action : ACTION_NONE, false};
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

    if (facts->lower != LOWER_IN_STEP)
        return facts->lower == LOWER_STALE ? REASON_HOST_STALE : REASON_HOST_LAYER_PENDING;
    return is_seen && facts->guest_reason != REASON_UNVERIFIED ? REASON_NONE : REASON_UNVERIFIED;
}

static bool wants_list(const struct decide_facts *facts)
{
    return (!facts->list_read || facts->list_again) && facts->may_try;
}

/* The VMM has the device's size: it said so, or nothing contradicts it. A file system is grown to
 * its device even if no growth was observed, because the device may have grown while no pod had it.
 * One that fills its device gets the call once per binding, so that this guest's abilities are
 * known before they are needed; a failure of that is not reported as a stuck resize. */
static struct decision decide_guest(const struct decide_facts *facts)
{
    bool is_synced = facts->is_raw || facts->guest_synced_bytes >= facts->device_bytes;
    bool has_debt = !is_synced && facts->resize_open;
    bool is_paused = facts->hypervisor_reason == REASON_VM_PAUSED;
    /* The VMM's next attempt does not delay the guest's first one. */
    bool is_untried = facts->hypervisor_reason != REASON_NONE && facts->guest_reason == REASON_NONE;
    struct decision decision = say(STATE_IN_SYNC, remark(facts, is_synced));

    if (has_debt)
        decision = say(STATE_BLOCK_GROWN, is_paused ? REASON_VM_PAUSED : facts->guest_reason);
    if (is_paused) /* the guest cannot answer; the VMM says whether it runs again */
        decision.action = facts->may_try ? ACTION_QUERY_HYPERVISOR : ACTION_NONE;
    else if (wants_list(facts) && facts->hypervisor_reason == REASON_NONE) /* it can be read */
        decision.action = ACTION_QUERY_HYPERVISOR;
    else if (!has_debt && facts->lower == LOWER_STALE && facts->may_rescan &&
             facts->policy == POLICY_GROW)
        decision.action = ACTION_RESCAN_DISK;
    else if (!facts->is_raw && !(is_synced && facts->guest_proven) &&
             policy_grows_file_system(facts->policy) && (facts->may_try || is_untried))
        decision.action = ACTION_RESIZE_GUEST;
    else if (wants_list(facts))
        decision.action = ACTION_QUERY_HYPERVISOR;
    else if (facts->is_raw && !facts->hypervisor_bytes && facts->list_read && facts->may_try &&
             facts->policy == POLICY_GROW) /* no guest shows it: see decide_unknown() */
        decision.action = ACTION_RESIZE_HYPERVISOR;
    return decision;
}

static struct decision decide_resize(const struct decide_facts *facts)
{
    enum decide_action again = facts->list_again ? ACTION_QUERY_HYPERVISOR : ACTION_NONE;

    if (facts->is_undone)
        return try_to(facts, again, STATE_BLOCKED, REASON_RESIZE_UNDONE);
    if (facts->policy == POLICY_OBSERVE)
        return try_to(facts, again, STATE_HOST_GROWN, REASON_POLICY);
    if (facts->policy == POLICY_GUEST) /* a drive that was plugged again has the file's new size */
        return try_to(facts, wants_list(facts) ? ACTION_QUERY_HYPERVISOR : ACTION_NONE,
                      STATE_HOST_GROWN, REASON_POLICY);
    if (!facts->is_still)
        return (struct decision){STATE_HOST_GROWN, REASON_NONE, ACTION_WAIT, false};
    return try_to(facts, ACTION_RESIZE_HYPERVISOR,
                  facts->hypervisor_reason != REASON_NONE ? STATE_BLOCKED : STATE_HOST_GROWN,
                  facts->hypervisor_reason);
}

/* A VMM whose list has no sizes can be told to read the present size of the device again: that
 * changes nothing, and the answer has the size. */
static struct decision decide_unknown(const struct decide_facts *facts)
{
    enum decide_action action = ACTION_QUERY_HYPERVISOR;

    if (facts->list_read && facts->policy == POLICY_GROW)
        action = ACTION_RESIZE_HYPERVISOR;
    else if (!wants_list(facts))
        action = ACTION_NONE;
    return try_to(facts, action, STATE_UNKNOWN, facts->hypervisor_reason);
}

/* DETACHED has a state of its own. */
static const enum volume_reason conflict_reasons[] = {
    [CONFLICT_NONE] = REASON_NONE,
    [CONFLICT_SANDBOX_ORPHANED] = REASON_SANDBOX_ORPHANED,
    [CONFLICT_ENTRIES_DISAGREE] = REASON_ENTRIES_DISAGREE,
    [CONFLICT_IDENTITY_MISMATCH] = REASON_IDENTITY_MISMATCH,
    [CONFLICT_DEVICE_SHARED] = REASON_DEVICE_SHARED,
    [CONFLICT_HOST_IN_USE] = REASON_HOST_IN_USE,
    [CONFLICT_BYPASSED] = REASON_BYPASSED,
    [CONFLICT_UNPLUGGED] = REASON_BYPASSED,
    [CONFLICT_DETACHED] = REASON_NONE,
};

static bool is_shrunk(const struct decide_facts *facts)
{
    return facts->device_bytes < facts->largest_bytes ||
           facts->device_bytes < facts->hypervisor_bytes;
}

static bool is_larger(const struct decide_facts *facts)
{
    return facts->device_bytes > decide_baseline(facts->hypervisor_bytes, facts->first_bytes);
}

/* One sandbox has the volume, or several only read it, and crustd may resize it. */
static struct decision decide_managed(const struct decide_facts *facts)
{
    bool has_readers = facts->live_sandboxes > 1;
    bool lacks_drive =
        facts->conflict == CONFLICT_UNPLUGGED || facts->conflict == CONFLICT_DETACHED;

    if (has_readers && (lacks_drive || facts->conflict == CONFLICT_NONE))
        return say(STATE_UNMANAGED, REASON_READ_ONLY);
    if (facts->conflict == CONFLICT_DETACHED)
        return say(STATE_DETACHED, REASON_NONE);
    if (facts->conflict != CONFLICT_NONE)
        return try_to(facts, lacks_drive ? ACTION_QUERY_HYPERVISOR : ACTION_NONE, STATE_BLOCKED,
                      conflict_reasons[facts->conflict]);
    if (facts->hypervisor_reason == REASON_IDENTITY_MISMATCH)
        return try_to(facts, ACTION_QUERY_HYPERVISOR, STATE_BLOCKED, REASON_IDENTITY_MISMATCH);
    /* Nothing can grow its file system, so its VMM need not know the new size. Only its presence is
     * checked. */
    if (facts->read_only)
        return try_to(facts, wants_list(facts) ? ACTION_QUERY_HYPERVISOR : ACTION_NONE,
                      STATE_UNMANAGED, REASON_READ_ONLY);
    if (is_shrunk(facts))
        return say(STATE_SHRUNK, REASON_NONE);
    if (is_larger(facts))
        return decide_resize(facts);
    return facts->hypervisor_bytes || facts->size_assumed ? decide_guest(facts)
                                                          : decide_unknown(facts);
}

struct decision decide(const struct decide_facts *facts)
{
    struct decision decision;

    if (facts->status != DECIDE_PRESENT)
        return say(STATE_UNMANAGED,
                   facts->status == DECIDE_INVALID ? REASON_INVALID_MOUNT_INFO : REASON_NONE);
    if (facts->policy == POLICY_NEVER)
        return say(STATE_UNMANAGED, REASON_POLICY);
    if (facts->device == DEVICE_UNSUITABLE)
        return say(STATE_UNMANAGED, REASON_NOT_A_BLOCK_DEVICE);
    if (facts->live_sandboxes == 0)
        return say(STATE_UNBOUND, facts->may_be_hidden              ? REASON_BUNDLE_UNREADABLE
                                  : facts->device == DEVICE_MISSING ? REASON_NO_DEVICE
                                                                    : REASON_NONE);
    if (facts->device == DEVICE_MISSING)
        return say(STATE_BLOCKED, REASON_NO_DEVICE);
    if (facts->live_sandboxes > 1 && !facts->read_only)
        return say(STATE_BLOCKED, REASON_MULTIPLE_SANDBOXES);
    if (facts->policy == POLICY_FIXED)
        return say(STATE_BLOCKED, REASON_POLICY);
    decision = decide_managed(facts);
    decision.opens_resize = facts->is_bound && !facts->read_only && is_larger(facts) &&
                            facts->conflict != CONFLICT_IDENTITY_MISMATCH &&
                            facts->conflict != CONFLICT_ENTRIES_DISAGREE &&
                            (!facts->resize_open || facts->resize_bytes < facts->device_bytes);
    return decision;
}

const char *decide_action_name(enum decide_action action)
{
    static const char *const names[] = {
        [ACTION_NONE] = "none",
        [ACTION_QUERY_HYPERVISOR] = "query_hypervisor",
        [ACTION_RESIZE_HYPERVISOR] = "resize_hypervisor",
        [ACTION_RESIZE_GUEST] = "grow_guest", /* the journal's word, which is published */
        [ACTION_RESCAN_DISK] = "rescan_disk",
        [ACTION_WAIT] = "wait",
    };

    return names[action];
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

/* The obstacles in the order in which a resize would meet them, with two exceptions: an observed
 * obstacle outweighs a missing observation, and a policy that forbids counts only without any other
 * obstacle, so that a node in observe mode shows what it lacks. */
static enum volume_reason find_obstacle(const struct resizable_facts *facts)
{
    const struct decide_facts *resize = facts->resize;
    bool has_several = resize->live_sandboxes > 1;

    if (resize->status == DECIDE_INVALID)
        return REASON_INVALID_MOUNT_INFO;
    if (resize->policy == POLICY_NEVER || resize->policy == POLICY_FIXED)
        return REASON_POLICY;
    if (resize->device == DEVICE_UNSUITABLE)
        return REASON_NOT_A_BLOCK_DEVICE;
    if (resize->device == DEVICE_MISSING)
        return REASON_NO_DEVICE;
    if (has_several && !resize->read_only)
        return REASON_MULTIPLE_SANDBOXES;
    if (conflict_reasons[resize->conflict] != REASON_NONE)
        return has_several && resize->conflict == CONFLICT_UNPLUGGED
                   ? REASON_READ_ONLY
                   : conflict_reasons[resize->conflict];
    if (resize->read_only)
        return REASON_READ_ONLY;
    if (resize->conflict == CONFLICT_DETACHED)
        return REASON_DETACHED;
    if (is_shrunk(resize))
        return REASON_SHRUNK;
    if (resize->device == DEVICE_FILE)
        return REASON_POLICY; /* crustd sends no VMM the new size of a regular file */
    if (resize->is_undone)
        return REASON_RESIZE_UNDONE;
    if (resize->hypervisor_reason != REASON_NONE)
        return resize->hypervisor_reason;
    if (facts->monitor == MONITOR_UNABLE)
        return facts->monitor_reason;
    if (resize->guest_reason != REASON_NONE && resize->guest_reason != REASON_UNVERIFIED)
        return resize->guest_reason;
    return resize->policy != POLICY_GROW ? REASON_POLICY : REASON_NONE;
}

struct resizable resizable_decide(const struct resizable_facts *facts)
{
    enum volume_reason obstacle;

    if (facts->resize->status == DECIDE_GONE || facts->resize->live_sandboxes == 0)
        return (struct resizable){RESIZABLE_UNUSED, REASON_NONE};
    obstacle = find_obstacle(facts);
    if (obstacle == REASON_DETACHED)
        return (struct resizable){RESIZABLE_UNKNOWN, REASON_DETACHED};
    if (obstacle != REASON_NONE)
        return (struct resizable){RESIZABLE_NO, obstacle};
    if (facts->monitor == MONITOR_UNASKED)
        return (struct resizable){RESIZABLE_UNKNOWN, REASON_DRIVES_NOT_READ};
    if (!facts->resize->guest_proven && !facts->resize->is_raw)
        return (struct resizable){RESIZABLE_UNKNOWN, REASON_GUEST_NOT_ASKED};
    return (struct resizable){RESIZABLE_YES, REASON_NONE};
}

const char *resizable_name(enum resizable_answer answer)
{
    static const char *const names[RESIZABLE_ANSWERS] = {
        [RESIZABLE_YES] = "yes", [RESIZABLE_NO] = "no", [RESIZABLE_UNKNOWN] = "unknown"};

    return names[answer];
}
