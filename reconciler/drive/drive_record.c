/* SPDX-License-Identifier: Apache-2.0 */
/* drive_record.c - records the result of a drive's last act.
 *
 * An act that failed is tried again if the failure may heal. A failure that does not heal ends an
 * attach: the drive is no longer wanted, its row keeps the reason, and it is removed as by a
 * detach. Failures of that removal do not replace the reason. A drive that was ready once is never
 * removed because of a failure. A detach that the guest refuses because it uses the disk changes
 * nothing: the drive is wanted again.
 */
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "reconciler/act/actor.h"
#include "reconciler/drive/drive_work.h"

/* Clients are not answered before so many attempts have failed because another client holds the
 * monitor, which usually lasts a moment. */
enum { BRIEF_FAILURES = 4 };

/* A mount in a container ends with the container, and no event tells the host that a new one runs:
 * so the guest is asked again and again. */
#define ENTER_NS (5 * NSEC_PER_SEC)
/* If the guest does not answer, or its own container enters the others. */
#define ENTER_LATER_NS (60 * NSEC_PER_SEC)

static struct store *store_of(const struct drive_work *work)
{
    return work->drives->context->store;
}

bool drive_status_heals(enum status_code status)
{
    return status == STATUS_OK || status == STATUS_UNAVAILABLE ||
           status == STATUS_DEADLINE_EXCEEDED;
}

bool drive_has_failed(const struct store_drive_mount *row)
{
    return !row->wanted && row->ready_ms == 0 && !drive_status_heals(row->status);
}

/* ---- the record ---- */

int drive_work_read(struct drive_work *work)
{
    struct store_drive_mount row;
    int r = store_get_drive_mount(store_of(work), NULL, work->drive_ref, &row);

    if (r < 0) { /* a call that runs has the row of before */
        store_drive_mount_done(&row);
        return r;
    }
    store_drive_mount_done(&work->row);
    work->row = row;
    if (r == STORE_NOT_FOUND) { /* deleted with its sandbox when the history was trimmed */
        work->row.drive_ref = work->drive_ref;
        work->row.state = DRIVE_LOST;
    }
    return 0;
}

int drive_work_set_state(struct drive_work *work, enum drive_state state, enum status_code status,
                         const char *message)
{
    int r = store_set_drive_mount_state(store_of(work), work->drive_ref, state, status, message);

    if (r == 0 && state != work->row.state && work->row.has_disk)
        r = drives_note_volumes(work->drives, &work->row.disk);
    work->drives->dirty = true;
    work->row.state = state;
    work->row.status = status;
    if (message != work->row.message) {
        (void)snprintf(work->row.message, sizeof(work->row.message), "%s", message);
        work->failed_to_enter = false;
    }
    return r;
}

/* A drive whose attach failed keeps its status and message. One whose claim could not be made again
 * keeps the message that says so. */
static int set_success(struct drive_work *work, enum drive_state state)
{
    const bool is_lacking = work->lacks_claim && !work->result.remark[0];

    if (drive_has_failed(&work->row))
        return drive_work_set_state(work, state, work->row.status, work->row.message);
    return drive_work_set_state(work, state, STATUS_OK,
                                is_lacking ? work->row.message : work->result.remark);
}

static int set_failure(struct drive_work *work, enum status_code status)
{
    if (drive_has_failed(&work->row))
        return 0;
    return drive_work_set_state(work, work->row.state, status, work->result.error.text);
}

void drive_work_log_failure(const struct drive_work *work)
{
    const struct store_drive_mount_request *request = &work->row.request;
    const struct log_ids ids = {.sandbox = request->sandbox_id, .device = request->host_path};

    log_warning(&ids, "drive %s: %s: %s: %s", request->drive_id, drive_acts[work->act].name,
                status_name((int)work->result.status), work->result.error.text);
}

/* ---- results ---- */

static uint64_t enter_pause(const struct drive_work *work)
{
    return work->result.by_container ? ENTER_LATER_NS : ENTER_NS;
}

static int record_success(struct drive_work *work)
{
    struct store *store = store_of(work);
    struct store_drive_mount_disk disk = work->row.disk;
    int r = 0;

    /* These acts come before each attempt of another one, so their success does not end its
     * failures in a row. */
    if (work->act != DRIVE_LOOK_VMM && work->act != DRIVE_LOOK_GUEST &&
        !(work->act == DRIVE_UNMOUNT && drive_state_is_flushed(work->row.state)))
        work->failures = 0;
    work->next_ns = 0;
    work->wants_disk = false;
    if (work->result.guest_device[0])
        r = store_set_drive_mount_guest_device(store, work->drive_ref, work->result.guest_device);
    if (r == 0 && work->result.serial[0])
        r = store_set_drive_mount_serial(store, work->drive_ref, work->result.serial);
    if (r < 0)
        return r;
    switch (work->act) {
    case DRIVE_CLAIM:
        r = store_set_drive_mount_disk(store, work->drive_ref, &work->result.disk);
        return r < 0 ? r : set_success(work, work->row.state);
    case DRIVE_MOUNT:
        work->enter_ns = clock_boottime() + enter_pause(work);
        return set_success(work, DRIVE_MOUNTED);
    case DRIVE_UNMOUNT:
        work->guest_unmounted = true;
        return set_success(work, DRIVE_UNMOUNTED);
    case DRIVE_LIMIT:
        work->has_new_limits = false;
        drive_waits_note(work, STATUS_OK);
        work->drives->dirty = true;
        return store_set_drive_mount_limits(store, work->drive_ref, &work->new_limits);
    case DRIVE_GROW:
        if (work->result.by_container) /* the drive's container was told of the former size */
            work->enter_ns = 0;
        disk.size_bytes = work->new_bytes;
        r = store_set_drive_mount_disk(store, work->drive_ref, &disk);
        return r < 0 ? r : set_success(work, work->row.state);
    case DRIVE_END:
        work->has_free_disk = true;
        return 0;
    default:
        return set_success(work, work->row.state);
    }
}

static void wait_longer(struct drive_work *work)
{
    work->failures++;
    work->next_ns = clock_boottime() + actor_backoff(work->failures);
    work->due = false;
    work->waits_to_grow = work->act == DRIVE_RESIZE || work->act == DRIVE_GROW;
}

int drive_work_retry_later(struct drive_work *work, enum status_code status)
{
    wait_longer(work);
    if (!work->result.is_brief || work->failures > BRIEF_FAILURES)
        drive_waits_note(work, status);
    return set_failure(work, status);
}

/* The guest uses the disk, so the drive stays as it was. If its removal from the VMM has begun,
 * that cannot be undone: the guest is asked to unmount it again, after a pause. */
static int refuse_detach(struct drive_work *work)
{
    int r = store_set_drive_mount_wanted(store_of(work), work->drive_ref, true);

    work->row.wanted = true;
    if (work->vmm == DRIVE_IN_VMM_HAS)
        work->failures = 0;
    else
        wait_longer(work);
    drive_waits_note(work, STATUS_FAILED_PRECONDITION);
    return r < 0 ? r
                 : drive_work_set_state(work, work->row.ready_ms ? DRIVE_READY : DRIVE_MOUNTED,
                                        STATUS_FAILED_PRECONDITION, work->result.error.text);
}

/* A process in the guest uses the disk: either the drive is still mounted, or it is unmounted and
 * only another mount namespace still has it. In the second case the removal continues: the client
 * learns what holds the disk, but the row gets a status that heals, because no attach failed. */
static int record_held(struct drive_work *work)
{
    if (work->guest == DRIVE_IN_GUEST_UNKNOWN && !work->is_held) {
        work->is_held = true;
        work->held = work->result.error;
        return 0;
    }
    if (work->is_held)
        work->result.error = work->held;
    work->is_held = false;
    work->act = DRIVE_UNMOUNT;
    if (work->guest == DRIVE_IN_GUEST_MOUNTED && !drive_has_failed(&work->row) &&
        !drive_is_unrecorded(&work->row))
        return refuse_detach(work);
    wait_longer(work);
    drive_waits_note(work, STATUS_FAILED_PRECONDITION);
    return set_failure(work, STATUS_UNAVAILABLE);
}

static int give_up_attach(struct drive_work *work, enum drive_state state)
{
    int r = drive_work_set_state(work, state, work->result.status, work->result.error.text);

    work->row.wanted = false;
    work->failures = 0;
    return r < 0 ? r : store_set_drive_mount_wanted(store_of(work), work->drive_ref, false);
}

static int fail_attach(struct drive_work *work)
{
    enum status_code status = work->result.status;

    if (drive_status_heals(status) || work->row.ready_ms)
        return drive_work_retry_later(work,
                                      drive_status_heals(status) ? STATUS_UNAVAILABLE : status);
    return give_up_attach(work, work->row.state);
}

/* Without the claim, somebody else may write to the disk, so the guest must not become a second
 * writer. If the guest has the disk mounted already, it keeps it, and the row says so. */
static int record_reclaim(struct drive_work *work)
{
    char remark[DRIVE_REMARK_BYTES] = "";
    bool lacked = work->lacks_claim;
    unsigned next = drive_work_ask_table(work).act;

    work->lacks_claim = work->result.status != STATUS_OK;
    work->tried_claim = true;
    if (work->lacks_claim && drive_acts[next].does & ACT_MAKES_WRITER) {
        (void)error_prefix(&work->result.error,
                           "the disk cannot be claimed again, so the guest does not get it: ");
        drive_work_log_failure(work);
        work->act = next; /* the act that clients wait for */
        return fail_attach(work);
    }
    if (work->lacks_claim) {
        (void)error_prefix(&work->result.error,
                           "the disk cannot be claimed again, so others can open it: ");
        (void)snprintf(remark, sizeof(remark), "%s", work->result.error.text);
        if (!lacked)
            drive_work_log_failure(work);
    }
    if (work->row.status != STATUS_OK || (!lacked && !work->lacks_claim))
        return 0;
    return drive_work_set_state(work, work->row.state, STATUS_OK, remark);
}

static int record_failure(struct drive_work *work)
{
    enum status_code status = work->result.status;

    if (work->act == DRIVE_END) /* the client asked for a removal */
        work->act = DRIVE_REMOVE;
    drive_work_log_failure(work);
    if (work->act == DRIVE_LIMIT) {
        work->has_new_limits = false;
        drive_waits_note(work, status);
        return 0;
    }
    if (work->result.wants_disk && !work->wants_disk) {
        work->wants_disk = true;
        return 0;
    }
    if (work->result.retry_at_once && work->row.wanted)
        return 0;
    if (work->act == DRIVE_UNMOUNT && status == STATUS_FAILED_PRECONDITION)
        return record_held(work);
    if (work->row.wanted)
        return fail_attach(work);
    if (work->act == DRIVE_CLAIM || work->act == DRIVE_ATTACH || work->act == DRIVE_LOOK_GUEST ||
        work->act == DRIVE_MOUNT || work->act == DRIVE_RESIZE || work->act == DRIVE_GROW)
        return 0; /* a detach came meanwhile */
    return drive_work_retry_later(work, STATUS_UNAVAILABLE);
}

/* No client waits for this, and a container that is down for a while is not a failure of the
 * drive. */
static int record_entered(struct drive_work *work)
{
    const struct drive_result *result = &work->result;
    int r;

    work->enter_ns = clock_boottime() + enter_pause(work);
    if (!work->row.wanted)
        return 0;
    if (result->status == STATUS_OK)
        return work->failed_to_enter ? set_success(work, work->row.state) : 0;
    if (drive_status_heals(result->status)) {
        work->enter_ns = clock_boottime() + ENTER_LATER_NS;
        return 0;
    }
    if (strcmp(work->row.message, result->error.text) != 0)
        drive_work_log_failure(work);
    r = set_failure(work, result->status);
    work->failed_to_enter = true;
    return r;
}

/* The VM has a device of this name although this drive's disk was never claimed: it was attached
 * under a row that was lost. The guest may have it mounted, so the removal starts with an unmount.
 * With a wrong serial the guest would not find the disk and would report it as unmounted. */
static int record_unrecorded(struct drive_work *work)
{
    if (drive_act_makes_serial(work) && !work->result.serial[0]) {
        work->vmm = DRIVE_IN_VMM_UNKNOWN; /* to be read again */
        work->result.status = STATUS_UNAVAILABLE;
        (void)error_set(&work->result.error, (int)STATUS_UNAVAILABLE,
                        "the VM has a disk of this drive_id that is not on record, and the serial "
                        "by which its guest finds it is not known");
        drive_work_log_failure(work);
        return drive_work_retry_later(work, STATUS_UNAVAILABLE);
    }
    if (work->result.serial[0]) {
        int r = store_set_drive_mount_serial(store_of(work), work->drive_ref, work->result.serial);

        if (r < 0)
            return r;
    }
    if (work->row.wanted) {
        work->result.status = STATUS_FAILED_PRECONDITION;
        (void)error_set(&work->result.error, (int)STATUS_FAILED_PRECONDITION,
                        "the VM has a disk of this drive_id that is not on record: it is unmounted "
                        "and removed first");
        drive_work_log_failure(work);
        return give_up_attach(work, DRIVE_UNMOUNTING);
    }
    return drive_work_set_state(work, DRIVE_UNMOUNTING, work->row.status, work->row.message);
}

int drive_work_record(struct drive_work *work)
{
    const enum status_code status = work->result.status;
    int r = work->drive_ref ? drive_work_read(work) : 0;

    work->step = DRIVE_IDLE;
    work->due = true;
    if (!work->drive_ref)
        drive_unrecorded_record_list(work);
    if (r < 0 || !work->drive_ref || drive_state_is_end(work->row.state))
        return r;
    if (work->act == DRIVE_ENTER)
        return record_entered(work);
    if (work->act == DRIVE_LOOK_VMM && work->vmm == DRIVE_IN_VMM_HAS && !work->row.has_disk &&
        drive_phase(work->row.state) == DRIVE_PLANNED)
        return record_unrecorded(work);
    if (work->act == DRIVE_RECLAIM)
        return record_reclaim(work);
    work->tried_claim = false;
    if (work->act == DRIVE_UNMOUNT) {
        bool is_silent = status == STATUS_UNAVAILABLE || status == STATUS_DEADLINE_EXCEEDED;

        work->unmount_timeouts = is_silent ? work->unmount_timeouts + 1 : 0;
    }
    if (work->act == DRIVE_REMOVE)
        work->guest_unmounted = work->lacks_agent = false;
    /* The guest was asked whether it has a drive that by its state is not mounted, and has no agent
     * that lists drives. So it has none that scans the bus for them. */
    if (work->act == DRIVE_LOOK_GUEST && status == STATUS_FAILED_PRECONDITION &&
        drive_state_is_flushed(work->row.state))
        work->lacks_agent = true;
    if (work->is_held && !work->lacks_agent)
        return record_held(work);
    return status == STATUS_OK ? record_success(work) : record_failure(work);
}
