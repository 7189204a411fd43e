/* SPDX-License-Identifier: Apache-2.0 */
/* decide_drive.c - the decision table for drive mounts.
 *
 * No VMM protects a mounted disk: removal succeeds, and the guest loses data without an error. So
 * the order of the acts has to protect it. A disk is removed from the VMM only if the guest was
 * never asked to mount it, or has answered that it unmounted it. A guest that has to remove the
 * device itself is asked to directly before each attempt to remove it from the VMM. Whether the
 * guest can mount a disk is found out before the VM gets it. A drive that another client removed
 * from the VM is not attached again automatically: it is lost, and its client is told.
 */
#include "reconciler/decide/decide_drive.h"

enum drive_phase drive_phase(enum drive_state state)
{
    static const enum drive_phase phases[DRIVE_STATES + 1] = {
        [DRIVE_REQUESTED] = DRIVE_PLANNED,
        [DRIVE_CLAIMED] = DRIVE_PLANNED,
        [DRIVE_ATTACHED] = DRIVE_PLANNED,
        [DRIVE_SEEN] = DRIVE_MOUNTING,
        [DRIVE_MOUNTED] = DRIVE_MOUNTING,
        [DRIVE_READY] = DRIVE_IN_USE,
        [DRIVE_UNMOUNTING] = DRIVE_LEAVING_GUEST,
        [DRIVE_UNMOUNTED] = DRIVE_FLUSHED,
        [DRIVE_REMOVING] = DRIVE_FLUSHED,
        [DRIVE_REMOVED] = DRIVE_ENDED,
        [DRIVE_FAILED] = DRIVE_ENDED,
        [DRIVE_LOST] = DRIVE_ENDED,
        [DRIVE_STATES] = DRIVE_LEAVING_GUEST, /* of another version: treated as mounted */
    };

    return phases[state];
}

static struct drive_decision say(enum drive_act act, enum drive_state state)
{
    return (struct drive_decision){act, state};
}

/* The guest does not have it mounted, or was never asked to mount it. */
static bool is_free(const struct drive_facts *facts)
{
    enum drive_phase phase = drive_phase(facts->state);

    return (phase == DRIVE_PLANNED && facts->guest != DRIVE_IN_GUEST_MOUNTED) ||
           phase == DRIVE_FLUSHED;
}

/* The state stays DRIVE_UNMOUNTING until the guest has answered that it unmounted the drive. */
static struct drive_decision remove_rest(const struct drive_facts *facts)
{
    if (facts->may_return)
        return say(DRIVE_UNMOUNT, is_free(facts) ? facts->state : DRIVE_UNMOUNTING);
    return say(DRIVE_REMOVE, is_free(facts) ? DRIVE_REMOVING : DRIVE_UNMOUNTING);
}

/* The VMM does not have the complete device. */
static struct drive_decision bring_in(const struct drive_facts *facts)
{
    bool is_absent = facts->vmm == DRIVE_IN_VMM_ABSENT;

    if (drive_phase(facts->state) != DRIVE_PLANNED)
        return is_absent ? say(DRIVE_END, DRIVE_LOST) : remove_rest(facts);
    if (is_absent && !facts->is_open)
        return say(DRIVE_CLAIM, DRIVE_REQUESTED);
    if (is_absent && facts->guest == DRIVE_IN_GUEST_UNKNOWN)
        return say(DRIVE_LOOK_GUEST, facts->state);
    return say(DRIVE_ATTACH, DRIVE_CLAIMED);
}

/* The VMM has the device. */
static struct drive_decision mount(const struct drive_facts *facts)
{
    enum drive_phase phase = drive_phase(facts->state);

    if (phase == DRIVE_FLUSHED)
        return remove_rest(facts);
    if (phase == DRIVE_LEAVING_GUEST)
        return say(DRIVE_UNMOUNT, DRIVE_UNMOUNTING);
    if (facts->guest == DRIVE_IN_GUEST_UNKNOWN)
        return say(DRIVE_LOOK_GUEST, phase == DRIVE_PLANNED ? DRIVE_ATTACHED : facts->state);
    if (facts->guest == DRIVE_IN_GUEST_ABSENT)
        return say(DRIVE_MOUNT, DRIVE_SEEN);
    return say(phase == DRIVE_IN_USE ? DRIVE_DO_NOTHING : DRIVE_ANSWER, DRIVE_READY);
}

struct drive_decision drive_decide(const struct drive_facts *facts)
{
    enum drive_phase phase = drive_phase(facts->state);

    if (phase == DRIVE_ENDED)
        return say(DRIVE_DO_NOTHING, facts->state);
    if (!facts->vm_is_alive)
        return say(DRIVE_END, phase == DRIVE_PLANNED ? DRIVE_FAILED : DRIVE_LOST);
    if (facts->vmm == DRIVE_IN_VMM_UNKNOWN)
        return say(DRIVE_LOOK_VMM, facts->state);
    if (facts->vmm == DRIVE_IN_VMM_LEAVING)
        return remove_rest(facts);
    if (facts->is_wanted)
        return facts->vmm == DRIVE_IN_VMM_HAS ? mount(facts) : bring_in(facts);
    if (facts->vmm == DRIVE_IN_VMM_ABSENT)
        return say(DRIVE_END, is_free(facts) ? DRIVE_REMOVED : DRIVE_LOST);
    if (is_free(facts) || facts->vmm != DRIVE_IN_VMM_HAS)
        return remove_rest(facts);
    return say(DRIVE_UNMOUNT, DRIVE_UNMOUNTING);
}
