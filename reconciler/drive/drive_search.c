/* SPDX-License-Identifier: Apache-2.0 */
/* drive_search.c - the search for other users of a drive's disk, before its VM gets it.
 *
 * The processes are searched once the disk is claimed: that takes a while where many run, and the
 * VMM and the guest are waited for anyway. The record is searched last, when this claim is on it:
 * so of two drives attached at the same time at least one finds the other.
 */
#include "lib/clock.h"
#include "reconciler/drive/drive_work.h"
#include "reconciler/drive/in_use.h"

/* Somebody may take the disk after a search, also directly before the VM gets it. */
#define VALID_NS NSEC_PER_SEC

static const enum status_code codes[] = {
    [DRIVE_IN_USE_NOT] = STATUS_OK,
    [DRIVE_IN_USE_BY_OTHERS] = STATUS_FAILED_PRECONDITION,
    [DRIVE_IN_USE_BY_ORPHAN] = STATUS_UNAVAILABLE,
    [DRIVE_IN_USE_UNKNOWN] = STATUS_UNAVAILABLE,
};

static struct drive_in_use_request request_of(const struct drive_work *work)
{
    return (struct drive_in_use_request){
        .disk = work->has_claimed_ahead ? &work->claimed : &work->row.disk,
        .backing = work->disk >= 0 ? &work->backing : NULL,
        .drive_id = work->row.request.drive_id,
        .own_vmm = work->vmm == DRIVE_IN_VMM_PARTLY ? work->sandbox.vmm_pid : 0,
        .writable = work->row.request.writable,
    };
}

static void finish(struct drive_work *work, const struct drive_in_use_reply *reply)
{
    drive_disk_done *done = work->search_done;
    enum status_code status = codes[reply->outcome];

    work->search_done = NULL;
    done(work, status, status == STATUS_OK ? NULL : &reply->error);
}

/* No process has the disk. */
static void search_record(struct drive_work *work)
{
    const struct drive_in_use_request request = request_of(work);
    const struct drive_in_use_reply reply =
        drive_in_use_search_record(work->drives->context, &request);

    finish(work, &reply);
}

static void on_searched(struct drive_in_use_call *call, const struct drive_in_use_reply *reply,
                        void *userdata)
{
    struct drive_work *work = userdata;
    const struct drive_in_use_reply copy = *reply;

    work->search = drive_in_use_call_free(call);
    if (!work->search_done)
        work->searched_ns = copy.outcome == DRIVE_IN_USE_NOT ? clock_boottime() : 0;
    else if (copy.outcome == DRIVE_IN_USE_NOT)
        search_record(work);
    else
        finish(work, &copy);
}

static int begin(struct drive_work *work)
{
    const struct drive_in_use_request request = request_of(work);

    return drive_in_use_call_new(work->drives->context, &request, on_searched, work, &work->search);
}

static bool has_searched(const struct drive_work *work)
{
    return work->searched_ns && clock_boottime() - work->searched_ns < VALID_NS;
}

/* What the VMM may have of the drive is not left out of this search. */
void drive_search_ahead(struct drive_work *work)
{
    if (work->vmm != DRIVE_IN_VMM_PARTLY && work->disk >= 0 && !work->search && !has_searched(work))
        (void)begin(work);
}

void drive_search(struct drive_work *work, drive_disk_done *done)
{
    struct drive_in_use_reply reply = {.outcome = DRIVE_IN_USE_UNKNOWN};
    bool is_done = has_searched(work);

    work->searched_ns = 0;
    if (work->vmm != DRIVE_IN_VMM_ABSENT) {
        drive_search_stop(work);
        is_done = false;
    }
    work->search_done = done;
    if (is_done) {
        search_record(work);
    } else if (!work->search && begin(work) < 0) {
        (void)error_set(&reply.error, STATUS_UNAVAILABLE, "out of memory");
        finish(work, &reply);
    }
}

void drive_search_stop(struct drive_work *work)
{
    work->search = drive_in_use_call_free(work->search);
    work->search_done = NULL;
    work->searched_ns = 0;
}
