/* SPDX-License-Identifier: Apache-2.0 */
/* drive_wait.c - clients are answered when the drive is in the state that they want, or when an
 * attempt has failed.
 *
 * A client waits for a row, not for an act: any number of clients may wait for one drive, and a
 * client that gives up changes nothing. A failure that may heal is answered with UNAVAILABLE while
 * crustd goes on trying, so clients choose how often they repeat the call.
 *
 * A VM may have a drive that the database does not, because it was lost or replaced by an older
 * one: a drive_id without a row does not prove that no VM has the disk. So the first detach of such
 * an id asks each VM once for its list, by an act without a row: a struct drive_work whose
 * drive_ref is 0. Drives attached later have a row, so a list stays true until the database is
 * replaced. One that a client wants to detach gets a row in a state in which it is being removed:
 * the guest is asked to unmount it first. One that no client asks for is left alone, because its
 * pod may be using it.
 *
 * A VMM without a monitor has no unrecorded drives: nothing could be attached to it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "hypervisor/hypervisor.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/collections.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/core/work_queue.h"
#include "reconciler/drive/claim.h"
#include "reconciler/drive/drive_work.h"

/* ---- drives that a VM has and the database does not ---- */

static struct hypervisor_drive_entry *find_in(const struct drive_work *list, const char *drive_id)
{
    for (size_t i = 0; i < list->entry_count; i++)
        if (strcmp(list->entries[i].drive_id, drive_id) == 0)
            return &list->entries[i];
    return NULL;
}

bool drive_unrecorded_have(const struct drives *drives, const char *drive_id)
{
    for (const struct drive_work *list = drives->works; list; list = list->next)
        if (find_in(list, drive_id))
            return true;
    return false;
}

static void forget_in(struct drive_work *list, const char *drive_id)
{
    struct hypervisor_drive_entry *entry = find_in(list, drive_id);

    if (entry)
        *entry = list->entries[--list->entry_count];
}

void drive_unrecorded_forget(struct drives *drives, const char *sandbox_id, const char *drive_id)
{
    for (struct drive_work *list = drives->works; list; list = list->next)
        if (strcmp(list->sandbox_id, sandbox_id) == 0)
            forget_in(list, drive_id);
}

enum known {
    ALL_KNOWN,
    BEING_ASKED,
    NOT_KNOWN, /* a VM could not be asked: error says which, and why */
};

/* Whether all VMs have answered. */
static enum known find_known(const struct drives *drives, struct error *error)
{
    const struct drive_work *failed = NULL;

    for (const struct drive_work *list = drives->works; list; list = list->next) {
        if (list->drive_ref || drive_state_is_end(list->row.state))
            continue;
        if (!list->is_listed)
            return BEING_ASKED;
        if (list->result.status != STATUS_OK)
            failed = list;
    }
    if (!failed)
        return ALL_KNOWN;
    (void)error_set(error, NOT_KNOWN, "the drive is not recorded, but sandbox %s may have it: %s",
                    failed->sandbox_id, failed->result.error.text);
    return NOT_KNOWN;
}

static int ask_sandbox(void *userdata, const struct store_helper_run *sandbox)
{
    struct drives *drives = userdata;
    struct drive_work *list = drives->works;

    if (hypervisor_traits(sandbox->hypervisor)->obstacle)
        return 0; /* crustd refuses to attach drives to it, so it has none */
    while (list && (list->drive_ref || list->row.sandbox_ref != sandbox->sandbox_ref ||
                    drive_state_is_end(list->row.state)))
        list = list->next;
    if (list)
        return 0;
    list = drive_work_new(drives, 0, sandbox->sandbox_id);
    if (!list)
        return STORE_NO_MEMORY;
    list->row.sandbox_ref = sandbox->sandbox_ref;
    return 0;
}

/* Requests the lists of all VMs that were not asked yet and, with `again`, of those that failed to
 * answer. */
static int ask_vms(struct drives *drives, bool again)
{
    for (struct drive_work *list = drives->works; again && list; list = list->next)
        if (list->is_listed && list->result.status != STATUS_OK) {
            list->is_listed = false;
            list->due = true;
        }
    return store_each_sandbox(drives->context->store, false, ask_sandbox, drives);
}

/* Whether a row that has not ended exists for the drive. */
static bool is_on_record(const struct drive_work *list, const char *drive_id)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    return store_get_drive_mount(list->drives->context->store, drive_id, 0, &row) == STORE_FOUND &&
           !drive_state_is_end(row.state) && row.sandbox_ref == list->row.sandbox_ref;
}

void drive_unrecorded_record_list(struct drive_work *list)
{
    const struct log_ids ids = {.sandbox = list->sandbox_id};
    const size_t count = list->entry_count;

    list->is_listed = true;
    if (list->result.status != STATUS_UNAVAILABLE)
        list->result.status = STATUS_OK; /* without a monitor there are none */
    list->entry_count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct hypervisor_drive_entry *entry = &list->entries[i];

        if (entry->state == HYPERVISOR_DRIVE_ABSENT || is_on_record(list, entry->drive_id))
            continue;
        log_warning(&ids, "drive %s: the VM has it, and it is not on record: detach it",
                    entry->drive_id);
        list->entries[list->entry_count++] = *entry;
    }
}

static struct store_drive_mount_disk describe_disk(const struct context *context,
                                                   const struct hypervisor_disk *disk)
{
    const uint32_t major = major(disk->device), minor = minor(disk->device);
    struct observed_device device = {0};

    if (disk->regular_file)
        return (struct store_drive_mount_disk){
            .kind = DEVICE_KIND_FILE, .file_device = disk->device, .inode = disk->inode};
    if (observe_device_number(context->sysfs, major, minor, &device) != OBSERVED)
        device = (struct observed_device){0};
    return (struct store_drive_mount_disk){.kind = DEVICE_KIND_BLOCK,
                                           .major = major,
                                           .minor = minor,
                                           .diskseq = device.diskseq,
                                           .size_bytes = device.size_bytes};
}

/* Its mount point and the path of its disk are no longer known. */
static void fill_request(const struct drive_work *list, const struct hypervisor_drive_entry *entry,
                         struct store_drive_mount_request *ret_request)
{
    *ret_request = (struct store_drive_mount_request){
        .host_path = "unknown", .fs_type = "unknown", .writable = true};
    (void)snprintf(ret_request->drive_id, sizeof(ret_request->drive_id), "%s", entry->drive_id);
    (void)snprintf(ret_request->sandbox_id, sizeof(ret_request->sandbox_id), "%s",
                   list->sandbox_id);
    (void)snprintf(ret_request->vm_path, sizeof(ret_request->vm_path), "unknown:%s",
                   entry->drive_id);
    if (entry->identified && !entry->disk.regular_file)
        (void)snprintf(ret_request->host_path, sizeof(ret_request->host_path), "/dev/block/%u:%u",
                       major(entry->disk.device), minor(entry->disk.device));
}

bool drive_is_unrecorded(const struct store_drive_mount *row)
{
    return row->request.vm_path[0] != '/';
}

/* 0, or a failure of the store; *ret_drive_ref stays 0 if no row can be made. */
static int add_row(struct drive_work *list, const struct hypervisor_drive_entry *entry,
                   bool is_made_by_vmm, int64_t *ret_drive_ref)
{
    struct drives *drives = list->drives;
    struct store *store = drives->context->store;
    struct store_drive_mount_disk disk;
    char boot_id[CLOCK_BOOT_ID_BYTES], serial[DRIVE_SERIAL_CHARS + 1] = "";
    struct store_drive_mount_request request;
    int64_t drive_ref = 0;
    int r = STORE_DRIVE_MOUNT_TOO_MANY;

    /* With a wrong serial the guest would not find the disk and would report it as unmounted. */
    if (is_made_by_vmm)
        (void)snprintf(serial, sizeof(serial), "%s", entry->serial);
    else if (clock_boot_id(boot_id) == 0)
        drive_serial_make(boot_id, list->sandbox_id, entry->drive_id, serial);
    if (serial[0]) {
        fill_request(list, entry, &request);
        r = store_add_drive_mount(store, &request, serial, &drive_ref);
    }
    if (r < 0)
        return r;
    if (r != STORE_DRIVE_MOUNT_ADDED) {
        list->result.status = (enum status_code)error_set(
            &list->result.error, STATUS_UNAVAILABLE,
            "it has drive %s, which cannot be put on record%s", entry->drive_id,
            serial[0] ? "" : ": the serial that its guest sees is not known");
        return 0;
    }
    drives->dirty = true;
    r = store_set_drive_mount_wanted(store, drive_ref, false);
    if (r == 0 && entry->identified) {
        disk = describe_disk(drives->context, &entry->disk);
        r = store_set_drive_mount_disk(store, drive_ref, &disk);
        if (r == 0)
            r = drives_note_volumes(drives, &disk);
    }
    if (r == 0)
        r = store_set_drive_mount_state(store, drive_ref,
                                        entry->state == HYPERVISOR_DRIVE_PARTIAL ? DRIVE_REMOVING
                                                                                 : DRIVE_UNMOUNTING,
                                        STATUS_OK, "the VM has the disk, and it was not on record");
    if (r == 0)
        *ret_drive_ref = drive_ref;
    return r;
}

/* Makes a row for the drive of this id, in a state in which it is being removed; *ret_drive_ref is
 * unchanged if there is no such drive. */
static int make_row_for(struct drives *drives, const char *drive_id, int64_t *ret_drive_ref)
{
    for (struct drive_work *list = drives->works; list; list = list->next) {
        struct hypervisor_drive_entry *entry = find_in(list, drive_id);
        struct store_helper_run sandbox = {0};
        int r;

        if (!entry)
            continue;
        r = store_get_helper_sandbox(drives->context->store, list->row.sandbox_ref, &sandbox);
        if (r == 0 && sandbox.is_alive)
            r = add_row(list, entry, hypervisor_traits(sandbox.hypervisor)->makes_serial,
                        ret_drive_ref);
        if (r < 0)
            return r;
        if (!*ret_drive_ref)
            continue;
        forget_in(list, drive_id);
        return drive_work_add(drives, *ret_drive_ref, list->sandbox_id) ? 0 : STORE_NO_MEMORY;
    }
    return 0;
}

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

void drive_waits_note(struct drive_work *work, enum status_code status)
{
    const bool is_in_table = work->act < DRIVE_ACTS;

    for (struct drive_wait *wait = work->drives->waits; wait; wait = wait->next) {
        const bool is_concerned =
            wait->kind == WAIT_LIMIT ? work->act == DRIVE_LIMIT
            : wait->kind == WAIT_DETACH
                ? is_in_table
                : is_in_table && !(work->act == DRIVE_UNMOUNT && work->row.wanted);

        if (wait->work != work || !is_concerned)
            continue;
        wait->is_told = true;
        wait->status = status;
        wait->error = work->result.error;
    }
}

static int judge(const struct drive_wait *wait, const struct drive_work *work, struct error *error)
{
    const struct store_drive_mount *row = &work->row;

    if (!row->drive_ref)
        return STILL_WAITS;
    if (drive_state_is_end(row->state)) {
        if (wait->kind == WAIT_DETACH)
            return STATUS_OK;
        if (wait->kind == WAIT_LIMIT)
            return error_set(error, STATUS_NOT_FOUND, "the drive has ended: %s", row->message);
        if (row->state == DRIVE_FAILED)
            return error_set(error, (int)row->status, "%s", row->message);
        return error_set(error, STATUS_FAILED_PRECONDITION, "%s",
                         row->state == DRIVE_LOST ? row->message
                                                  : "the drive was detached meanwhile");
    }
    if (wait->kind == WAIT_ATTACH && row->wanted && row->state == DRIVE_READY &&
        work->vmm == DRIVE_IN_VMM_HAS && work->guest == DRIVE_IN_GUEST_MOUNTED)
        return STATUS_OK;
    if (wait->is_told) {
        *error = wait->error;
        return (int)wait->status;
    }
    if (wait->kind == WAIT_LIMIT && !row->wanted)
        return error_set(error, STATUS_FAILED_PRECONDITION, "the drive is being detached");
    return STILL_WAITS;
}

/* Judges the detach of an id without a row. */
static int judge_unknown(const struct drive_wait *wait, struct error *error)
{
    const enum known known = !wait->asks_vms   ? ALL_KNOWN
                             : wait->has_asked ? find_known(wait->drives, error)
                                               : BEING_ASKED;

    return known == BEING_ASKED ? STILL_WAITS
           : known == NOT_KNOWN ? (int)STATUS_UNAVAILABLE
                                : (int)STATUS_OK;
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
        r = make_row_for(wait->drives, wait->drive_id, &drive_ref);
    if (drive_ref)
        wait->work = drive_work_find(wait->drives, drive_ref);
    return r < 0 ? r : 0;
}

int drive_waits_record(struct drives *drives)
{
    bool ask = false, again = false;

    for (struct drive_wait *wait = drives->waits; wait; wait = wait->next) {
        int r = wait->asks_vms ? find_row(wait) : 0;

        if (r < 0)
            return r;
        wait->asks_vms = wait->asks_vms && !wait->work;
        ask = ask || wait->asks_vms;
        again = again || (wait->asks_vms && !wait->has_asked);
        wait->has_asked = wait->asks_vms;
    }
    return ask ? ask_vms(drives, again) : 0;
}

/* ---- a wait begins ---- */

enum status_code drive_wait_begin(struct drives *drives, enum drive_wait_kind kind,
                                  const char *drive_id, const struct store_drive_mount *row,
                                  reconciler_drive_done *done, void *userdata,
                                  struct drive_wait **ret_wait, struct error *error)
{
    struct drive_wait *wait = calloc(1, sizeof(*wait));
    struct drive_work *work =
        row->drive_ref ? drive_work_add(drives, row->drive_ref, row->request.sandbox_id) : NULL;

    if (!wait || (row->drive_ref && !work)) {
        free(wait);
        return (enum status_code)error_set(error, STATUS_UNAVAILABLE, "out of memory");
    }
    if (work)
        drive_work_hurry(work);
    *wait = (struct drive_wait){
        .drives = drives, .kind = kind, .work = work, .done = done, .userdata = userdata};
    (void)snprintf(wait->drive_id, sizeof(wait->drive_id), "%s", drive_id);
    LL_APPEND(drives->waits, wait);
    drives->has_new_waits = true;
    work_queue_wake(drives->context->queue, 0);
    *ret_wait = wait;
    return STATUS_OK;
}
