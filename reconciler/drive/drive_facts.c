/* SPDX-License-Identifier: Apache-2.0 */
/* drive_facts.c - what the table in decide/drive.h is told of a drive. */
#include "reconciler/drive/drive_work.h"

/* Its disk was never claimed, so the VMM was given nothing, and need not be asked: one without a
 * monitor would never answer. */
static bool was_given_nothing(const struct drive_work *work)
{
    return work->vmm == DRIVE_IN_VMM_UNKNOWN && !work->row.has_disk &&
           work->row.state == DRIVE_REQUESTED && drive_has_failed(&work->row);
}

/* In its place, and whether in the containers is not known: to mount it once more says so. */
static bool may_lack_containers(const struct drive_work *work)
{
    return work->row.state == DRIVE_SEEN && work->guest == DRIVE_IN_GUEST_MOUNTED &&
           store_drive_mount_has_containers(&work->row);
}

/* Any drive's mount has such a guest scan its bus. */
static bool may_return(const struct drive_work *work)
{
    return work->vmm > DRIVE_IN_VMM_ABSENT && !work->is_out_of_guest && !work->lacks_agent &&
           drive_act_makes_serial(work);
}

struct drive_decision drive_work_ask_table(const struct drive_work *work)
{
    const struct drive_facts facts = {
        .state = work->row.state,
        .vm_is_alive = work->row.sandbox_is_alive,
        .is_wanted = work->row.wanted,
        .is_open = work->disk >= 0,
        .may_return = may_return(work),
        .vmm = was_given_nothing(work) ? DRIVE_IN_VMM_ABSENT : work->vmm,
        .guest = may_lack_containers(work) ? DRIVE_IN_GUEST_ABSENT : work->guest,
    };

    return drive_decide(&facts);
}
