/* SPDX-License-Identifier: Apache-2.0 */
/* drive_facts.c - a drive's facts for the table in decide/drive.h. */
#include "reconciler/drive/drive_work.h"

/* How often in a row a guest is asked to unmount a drive that it does not have mounted. */
enum { SILENCES = 5 };

/* The disk was never claimed, so the VMM got nothing and need not be asked. A VMM without a monitor
 * would never answer. */
static bool was_given_nothing(const struct drive_work *work)
{
    return work->vmm == DRIVE_IN_VMM_UNKNOWN && !work->row.has_disk &&
           work->row.state == DRIVE_REQUESTED && drive_has_failed(&work->row);
}

/* Mounted, but perhaps not in all containers: another mount call tells. */
static bool may_lack_containers(const struct drive_work *work)
{
    return work->row.state == DRIVE_SEEN && work->guest == DRIVE_IN_GUEST_MOUNTED &&
           store_drive_mount_has_containers(&work->row);
}

/* The guest was asked before the VM had the disk. What it has under this drive's serial is then of
 * an earlier one. */
static bool is_of_earlier_drive(const struct drive_work *work)
{
    return work->vmm == DRIVE_IN_VMM_ABSENT && work->guest == DRIVE_IN_GUEST_MOUNTED &&
           (work->row.state == DRIVE_REQUESTED || work->row.state == DRIVE_CLAIMED);
}

static enum drive_in_guest in_guest(const struct drive_work *work)
{
    return may_lack_containers(work) || is_of_earlier_drive(work) ? DRIVE_IN_GUEST_ABSENT
                                                                  : work->guest;
}

void drive_work_count_silence(struct drive_work *work)
{
    enum status_code status = work->result.status;

    if (work->act != DRIVE_UNMOUNT)
        return;
    if (status == STATUS_UNAVAILABLE || status == STATUS_DEADLINE_EXCEEDED)
        work->silences++;
    else
        work->silences = 0;
}

/* The guest probably hangs, and it has nothing to write to the disk. */
static bool is_left_to_the_vmm(const struct drive_work *work)
{
    return work->silences >= SILENCES && drive_state_is_flushed(work->row.state) &&
           work->guest != DRIVE_IN_GUEST_MOUNTED;
}

/* Such a guest scans its bus at the mount of any drive. */
static bool may_return(const struct drive_work *work)
{
    return work->vmm > DRIVE_IN_VMM_ABSENT && !work->is_out_of_guest && !work->lacks_agent &&
           !is_left_to_the_vmm(work) && drive_act_makes_serial(work);
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
        .guest = in_guest(work),
    };

    return drive_decide(&facts);
}
