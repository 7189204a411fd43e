/* SPDX-License-Identifier: Apache-2.0 */
/* drive_wait.c - clients are answered when the drive is in the state that they want, or when an
 * attempt has failed.
 *
 * A client waits for a row, not for an act: any number of clients may wait for one drive, and a
 * client that gives up changes nothing. A failure that may heal is answered with UNAVAILABLE while
 * crustd goes on trying, so clients choose how often they repeat the call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/collections.h"
#include "reconciler/core/work_queue.h"
#include "reconciler/drive/drive_work.h"

/* As many as clients can have calls in progress. */
enum { WAITING = 2048 };

struct drive_wait {
    struct drive_wait *next;
    struct drives *drives;
    enum drive_wait_kind kind;
    struct drive_work *work; /* outlives the wait; NULL: there is no such drive */
    char drive_id[DRIVE_ID_CHARS + 1];
    bool asks_vms;  /* the id has no row, but a VM may have it */
    bool has_asked; /* in a pass */
    reconciler_drive_done *done;
    void *userdata;
};

/* ---- the answer ---- */

struct reconciler_drive drive_describe(const struct store_drive_mount *row)
{
    return (struct reconciler_drive){
        .drive_id = row->request.drive_id,
        .sandbox_id = row->request.sandbox_id,
        .host_path = row->request.host_path,
        .vm_path = row->request.vm_path,
        .fs_type = row->request.fs_type,
        .options = row->request.options ? row->request.options : "[]",
        .containers = row->request.containers,
        .writable = row->request.writable,
        .limits = row->request.limits,
        .serial = row->serial,
        .guest_device = row->guest_device,
        .size_bytes = row->disk.size_bytes,
        .wanted = row->wanted,
        .state = row->state,
        .status = row->status,
        .message = row->message,
    };
}

static void answer(struct drive_wait *wait, enum status_code code,
                   const struct store_drive_mount *row, const struct error *error)
{
    struct store_drive_mount none = {.state = DRIVE_REMOVED};
    struct reconciler_drive drive;

    (void)snprintf(none.request.drive_id, sizeof(none.request.drive_id), "%s", wait->drive_id);
    drive = drive_describe(row ? row : &none);
    LL_DELETE(wait->drives->waits, wait);
    wait->done(wait->userdata, code, code == STATUS_OK ? &drive : NULL, error);
    free(wait);
}

struct drive_wait *reconciler_drive_cancel(struct drive_wait *wait)
{
    if (wait) {
        LL_DELETE(wait->drives->waits, wait);
        free(wait);
    }
    return NULL;
}

void drive_waits_fail(struct drives *drives, enum status_code code, const char *why)
{
    struct error error = {0};

    (void)error_set(&error, (int)code, "%s", why);
    while (drives->waits)
        answer(drives->waits, code, NULL, &error);
}

void drive_waits_done(struct drives *drives)
{
    while (drives->waits)
        (void)reconciler_drive_cancel(drives->waits);
}

/* ---- when a call is answered ---- */

enum { STILL_WAITS = -1 }; /* no status */

static int judge_ended(const struct drive_wait *wait, const struct store_drive_mount *row,
                       struct error *error)
{
    if (wait->kind == WAIT_DETACH)
        return STATUS_OK;
    if (wait->kind == WAIT_LIMIT)
        return error_set(error, STATUS_NOT_FOUND, "the drive has ended: %s", row->message);
    if (row->state == DRIVE_FAILED)
        return error_set(error, (int)row->status, "%s", row->message);
    if (row->state == DRIVE_LOST)
        return error_set(error, STATUS_FAILED_PRECONDITION, "%s", row->message);
    return error_set(error, STATUS_FAILED_PRECONDITION, "the drive was detached meanwhile");
}

/* Whether this client waits for what happened. */
static bool concerns(const struct drive_work *work, const struct drive_wait *wait)
{
    const struct drive_news *news = &work->news;

    if (!news->is_any)
        return false;
    if (wait->kind == WAIT_LIMIT)
        return news->act == DRIVE_LIMIT;
    if (wait->kind == WAIT_DETACH)
        return news->act < DRIVE_ACTS;
    return news->act < DRIVE_ACTS && !(news->act == DRIVE_UNMOUNT && work->row.wanted);
}

static int judge(const struct drive_wait *wait, const struct drive_work *work, struct error *error)
{
    const struct store_drive_mount *row = &work->row;

    if (!row->drive_ref)
        return STILL_WAITS;
    if (drive_state_is_end(row->state))
        return judge_ended(wait, row, error);
    if (wait->kind == WAIT_ATTACH && row->wanted && row->state == DRIVE_READY &&
        work->vmm == DRIVE_IN_VMM_HAS && work->guest == DRIVE_IN_GUEST_MOUNTED)
        return STATUS_OK;
    if (concerns(work, wait)) {
        *error = work->news.error;
        return (int)work->news.status;
    }
    if (wait->kind == WAIT_LIMIT && !row->wanted)
        return error_set(error, STATUS_FAILED_PRECONDITION, "the drive is being detached");
    return STILL_WAITS;
}

/* Judges the detach of an id without a row. */
static int judge_unknown(const struct drive_wait *wait, struct error *error)
{
    int known = DRIVE_UNRECORDED_KNOWN;

    if (wait->asks_vms)
        known =
            wait->has_asked ? drive_unrecorded_known(wait->drives, error) : DRIVE_UNRECORDED_ASKED;
    if (known == DRIVE_UNRECORDED_ASKED || (wait->asks_vms && wait->drives->has_new_lists))
        return STILL_WAITS;
    return known == DRIVE_UNRECORDED_UNKNOWN ? (int)STATUS_UNAVAILABLE : (int)STATUS_OK;
}

/* A wait that is over, with its answer; NULL: none is. */
static struct drive_wait *find_over(const struct drives *drives, struct drive_work **ret_work,
                                    enum status_code *ret_code, struct error *error)
{
    for (struct drive_wait *wait = drives->waits; wait; wait = wait->next) {
        int code = wait->work ? judge(wait, wait->work, error) : judge_unknown(wait, error);

        if (code == STILL_WAITS)
            continue;
        *ret_work = wait->work;
        *ret_code = (enum status_code)code;
        return wait;
    }
    return NULL;
}

bool drive_waits_are_over(const struct drives *drives)
{
    struct drive_work *work;
    enum status_code code;
    struct error error;

    return drives->has_news && find_over(drives, &work, &code, &error) != NULL;
}

void drive_waits_tell(struct drives *drives)
{
    struct drive_wait *wait;
    struct drive_work *work;
    enum status_code code;
    struct error error = {0};

    if (!drives->has_news)
        return;
    drives->has_new_waits = false;
    while ((wait = find_over(drives, &work, &code, &error))) { /* `done` may begin and end others */
        answer(wait, code, work ? &work->row : NULL, &error);
        error = (struct error){0};
    }
    drives->has_news = false;
}

/* ---- ids without a row ---- */

/* If a VM has answered that it has the drive, this client waits for the row made for it. */
static int find_row(struct drive_wait *wait)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};
    int64_t drive_ref = 0;
    int r = store_get_drive_mount(wait->drives->context->store, wait->drive_id, 0, &row);

    if (r < 0)
        return r;
    if (r == STORE_FOUND && !drive_state_is_end(row.state) && !row.wanted)
        drive_ref = row.drive_ref; /* the row was made for another client */
    else
        r = drive_unrecorded_record(wait->drives, wait->drive_id, &drive_ref);
    if (drive_ref)
        wait->work = drive_work_find(wait->drives, drive_ref);
    return r < 0 ? r : 0;
}

int drive_waits_record(struct drives *drives)
{
    bool ask = false, again = false;

    drives->has_new_lists = false;
    for (struct drive_wait *wait = drives->waits; wait; wait = wait->next) {
        int r = wait->asks_vms ? find_row(wait) : 0;

        if (r < 0)
            return r;
        wait->asks_vms = wait->asks_vms && !wait->work;
        ask = ask || wait->asks_vms;
        again = again || (wait->asks_vms && !wait->has_asked);
        wait->has_asked = wait->asks_vms;
    }
    return ask ? drive_unrecorded_ask(drives, again) : 0;
}

/* ---- a wait begins ---- */

bool drive_waits_have_room(const struct drives *drives)
{
    unsigned count = 0;

    for (const struct drive_wait *wait = drives->waits; wait; wait = wait->next)
        count++;
    return count < WAITING;
}

enum status_code drive_wait_begin(struct drives *drives, enum drive_wait_kind kind,
                                  const struct store_drive_mount_request *request,
                                  int64_t drive_ref, reconciler_drive_done *done, void *userdata,
                                  struct drive_wait **ret_wait, struct error *error)
{
    struct drive_wait *wait = calloc(1, sizeof(*wait));
    struct drive_work *work =
        drive_ref ? drive_work_add(drives, drive_ref, request->sandbox_id) : NULL;

    if (!wait || (drive_ref && !work)) {
        free(wait);
        return (enum status_code)error_set(error, STATUS_UNAVAILABLE, "out of memory");
    }
    if (work)
        drive_work_hurry(work);
    *wait = (struct drive_wait){
        .drives = drives, .kind = kind, .work = work, .done = done, .userdata = userdata};
    (void)snprintf(wait->drive_id, sizeof(wait->drive_id), "%s", request->drive_id);
    LL_APPEND(drives->waits, wait);
    drives->has_new_waits = true;
    work_queue_wake(drives->context->queue, 0);
    *ret_wait = wait;
    return STATUS_OK;
}

void drive_wait_ask_vms(struct drive_wait *wait)
{
    wait->asks_vms = true;
}
