/* SPDX-License-Identifier: Apache-2.0 */
/* drive_claim.c - the claim of a drive's disk, as an act.
 *
 * A confidential guest gets no disk, so that is found out before the claim.
 */
#include <stdio.h>

#include "reconciler/drive/drive_work.h"
#include "reconciler/drive/in_use.h"
#include "reconciler/helper/guest.h"

/* ---- who has the disk ---- */

static void name_holder(struct drive_work *work, const char *holder)
{
    (void)error_set(&work->result.error, STATUS_FAILED_PRECONDITION, "%s is open exclusively: %s",
                    work->row.request.host_path, holder);
}

static void on_holder_searched(struct drive_in_use_call *call,
                               const struct drive_in_use_reply *reply, void *userdata)
{
    struct drive_work *work = userdata;
    struct error error = reply->error;
    bool is_orphan = reply->outcome == DRIVE_IN_USE_BY_ORPHAN;

    if (is_orphan || reply->outcome == DRIVE_IN_USE_BY_OTHERS)
        name_holder(work, error.text);
    work->search = drive_in_use_call_free(call);
    drive_act_finish(work, is_orphan ? STATUS_UNAVAILABLE : STATUS_FAILED_PRECONDITION, NULL);
}

/* Any user of the disk is reported, so the search is for a writable drive. */
static void search_holder(struct drive_work *work)
{
    struct drive_in_use_request request = {
        .disk = &work->result.disk,
        .drive_id = work->row.request.drive_id,
        .writable = true,
    };

    if (drive_in_use_call_new(work->drives->context, &request, on_holder_searched, work,
                              &work->search) < 0)
        drive_act_finish(work, STATUS_FAILED_PRECONDITION, NULL);
}

/* The kernel reports only that the disk is in use. The message names the user if it can be
 * found. */
void drive_claim_fail(struct drive_work *work, enum status_code status, const struct error *error)
{
    const struct drive_work *holder;
    char text[ERROR_TEXT_BYTES];

    work->result.error = *error;
    holder = work->result.is_taken ? drive_disk_find_claim(work->drives, &work->result.disk) : NULL;
    if (holder) { /* it may not be on record yet, so the search might miss it */
        (void)snprintf(text, sizeof(text), "sandbox %s has the disk as drive %s, %s",
                       holder->sandbox_id, holder->row.request.drive_id,
                       holder->row.request.writable ? "writable" : "read-only");
        name_holder(work, text);
    }
    if (work->result.is_taken && !holder)
        search_holder(work);
    else
        drive_act_finish(work, status, NULL);
}

/* ---- the claim ---- */

static void on_claimed(struct drive_work *work, enum status_code status, const struct error *error)
{
    if (status == STATUS_OK)
        drive_act_finish(work, status, NULL);
    else
        drive_claim_fail(work, status, error);
}

static void on_traits(const struct guest_traits *traits, const struct error *error, void *userdata)
{
    struct drive_work *work = userdata;
    bool is_confidential = !error && traits->is_confidential;
    struct error why = {0};

    if (error)
        why = *error;
    work->traits = helper_guest_free(work->traits);
    if (error) {
        (void)error_prefix(&why, "cannot tell whether the guest is confidential: ");
        drive_act_finish(work, STATUS_UNAVAILABLE, &why);
    } else if (is_confidential) {
        drive_act_fail(work, STATUS_FAILED_PRECONDITION,
                       "the guest is confidential: disks of the node are not attached to it");
    } else {
        drive_disk_claim(work, on_claimed);
    }
}

void drive_claim_begin(struct drive_work *work)
{
    if (helper_guest_new(work->drives->context, &work->sandbox, on_traits, work, &work->traits) < 0)
        drive_act_fail(work, STATUS_UNAVAILABLE, "out of memory");
}
