/* SPDX-License-Identifier: Apache-2.0 */
/* drive_end.c - whether a drive may end. Whoever attaches its disk elsewhere next relies on this
 * answer. While the VM runs, the VMM must report that it does not have the disk, and an exclusive
 * open of the disk must succeed. A sandbox counts as ended when its runtime has removed its files,
 * but a VMM that was killed may still live, because a thread waits for storage. So its process is
 * looked for. The disk is not examined then: it is free once that process is gone, and may have a
 * new, rightful user already.
 */
#include "lib/process.h"
#include "reconciler/drive/drive_work.h"

/* Whether a VMM got the disk, or may have got it. */
static bool was_given(const struct store_drive_mount *row)
{
    return row->has_disk || drive_phase(row->state) != DRIVE_PLANNED;
}

int drive_check_process(const struct drive_work *work, enum status_code *ret_code,
                        struct error *error)
{
    struct store_helper_run sandbox;
    int r;

    *ret_code = STATUS_OK;
    if (work->row.sandbox_is_alive || !was_given(&work->row))
        return 0;
    r = store_get_helper_sandbox(work->drives->context->store, work->row.sandbox_ref, &sandbox);
    if (r < 0)
        return r;
    r = process_has_ended(sandbox.vmm_pid, sandbox.vmm_start_ns);
    *ret_code = r > 0 ? STATUS_OK : STATUS_UNAVAILABLE;
    if (r < 0)
        (void)error_set_errno(error, r,
                              "cannot tell whether process %d, the VMM of sandbox %s, has ended",
                              (int)sandbox.vmm_pid, sandbox.sandbox_id);
    else if (r == 0)
        (void)error_set(error, STATUS_UNAVAILABLE,
                        "process %d, the VMM of sandbox %s, has not ended, although the sandbox "
                        "has: it may have the disk open",
                        (int)sandbox.vmm_pid, sandbox.sandbox_id);
    return 0;
}
