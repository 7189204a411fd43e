/* SPDX-License-Identifier: Apache-2.0 */
/* drive_search.c - the search for other users of a drive's disk, before its VM gets it.
 *
 * The claim is on record before the search, so of two drives attached at the same time at least one
 * finds the other. It takes a while where many processes run, so it is begun while the guest is
 * waited for.
 */
#include "lib/clock.h"
#include "reconciler/drive/drive_work.h"
#include "reconciler/drive/in_use.h"

/* Somebody may take the disk after a search, also directly before the VM gets it. */
#define VALID_NS NSEC_PER_SEC

static const enum status_code codes[] = {
    [DRIVE_IN_USE_NOT] = STATUS_OK,
    [DRIVE_IN_USE_BY_OTHERS] = STATUS_FAILED_PRECONDITION,
    [DRIVE_IN_USE_UNKNOWN] = STATUS_UNAVAILABLE,
};

static void on_searched(struct drive_in_use_call *call, const struct drive_in_use_reply *reply,
                        void *userdata)
{
    struct drive_work *work = userdata;
    drive_disk_done *done = work->search_done;
    struct error error = reply->error;
    enum status_code status = codes[reply->outcome];

    work->search = drive_in_use_call_free(call);
    work->search_done = NULL;
    if (done)
        done(work, status, status == STATUS_OK ? NULL : &error);
    else if (status == STATUS_OK)
        work->searched_ns = clock_boottime();
}

static int begin(struct drive_work *work)
{
    struct drive_in_use_request request = {
        .disk = &work->row.disk,
        .drive_id = work->row.request.drive_id,
        .own_vmm = work->vmm == DRIVE_IN_VMM_PARTLY ? work->sandbox.vmm_pid : 0,
        .writable = work->row.request.writable,
    };

    return drive_in_use_call_new(work->drives->context, &request, on_searched, work, &work->search);
}

void drive_search_ahead(struct drive_work *work)
{
    if (work->vmm != DRIVE_IN_VMM_ABSENT || work->disk < 0)
        return;
    drive_search_stop(work);
    (void)begin(work);
}

void drive_search(struct drive_work *work, drive_disk_done *done)
{
    bool is_done = work->searched_ns && clock_boottime() - work->searched_ns < VALID_NS;
    struct error error;

    work->searched_ns = 0;
    if (is_done) {
        done(work, STATUS_OK, NULL);
        return;
    }
    work->search_done = done;
    if (work->search || begin(work) == 0)
        return;
    work->search_done = NULL;
    (void)error_set(&error, STATUS_UNAVAILABLE, "out of memory");
    done(work, STATUS_UNAVAILABLE, &error);
}

void drive_search_stop(struct drive_work *work)
{
    work->search = drive_in_use_call_free(work->search);
    work->search_done = NULL;
    work->searched_ns = 0;
}
