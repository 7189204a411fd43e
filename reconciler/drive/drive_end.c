/* SPDX-License-Identifier: Apache-2.0 */
/* drive_end.c - whether a drive may end. Whoever attaches its disk elsewhere next relies on this
 * answer. While the VM runs, the VMM must report that it does not have the disk, its process must
 * not have it open, and an exclusive open of the disk must succeed. A sandbox ends
 * with its VMM, or when another VMM runs under its id. A VMM that was killed may still live then,
 * because a thread waits for storage. So its process is looked for. The disk is not examined then:
 * it is free once that process is gone, and may have a new, rightful user already.
 */
#include "lib/process.h"
#include "reconciler/drive/drive_work.h"

/* Whether a VMM got the disk, or may have got it. */
static bool was_given(const struct store_drive_mount *row)
{
    return row->has_disk || drive_phase(row->state) != DRIVE_PLANNED;
}

/* What it says about the drive is its own word: a VMM that was taken over may keep what it was told
 * to give back. */
static void check_living(const struct drive_work *work, const struct store_helper_run *sandbox,
                         enum status_code *ret_code, struct error *error)
{
    const struct store_drive_mount *row = &work->row;
    const struct hypervisor_disk disk = drive_disk_identity(&row->disk);

    if (!row->has_disk || drive_phase(row->state) == DRIVE_PLANNED ||
        !hypervisor_drive_may_be_held(sandbox->vmm_pid, &disk))
        return;
    *ret_code = (enum status_code)error_set(
        error, STATUS_UNAVAILABLE,
        "process %d, the VMM of sandbox %s, says that it does not have the drive, and it may have "
        "the disk open",
        (int)sandbox->vmm_pid, sandbox->sandbox_id);
}

static void check_ended(const struct store_helper_run *sandbox, enum status_code *ret_code,
                        struct error *error)
{
    int r = process_has_ended(sandbox->vmm_pid, sandbox->vmm_start_ns);

    *ret_code = r > 0 ? STATUS_OK : STATUS_UNAVAILABLE;
    if (r < 0)
        (void)error_set_errno(error, r,
                              "cannot tell whether process %d, the VMM of sandbox %s, has ended",
                              (int)sandbox->vmm_pid, sandbox->sandbox_id);
    else if (r == 0)
        (void)error_set(error, STATUS_UNAVAILABLE,
                        "process %d, the VMM of sandbox %s, has not ended, although the sandbox "
                        "has: it may have the disk open",
                        (int)sandbox->vmm_pid, sandbox->sandbox_id);
}

int drive_check_process(const struct drive_work *work, enum status_code *ret_code,
                        struct error *error)
{
    struct store_helper_run sandbox;
    int r;

    *ret_code = STATUS_OK;
    if (!was_given(&work->row))
        return 0;
    r = store_get_helper_sandbox(work->drives->context->store, work->row.sandbox_ref, &sandbox);
    if (r < 0)
        return r;
    if (work->row.sandbox_is_alive)
        check_living(work, &sandbox, ret_code, error);
    else
        check_ended(&sandbox, ret_code, error);
    return 0;
}
