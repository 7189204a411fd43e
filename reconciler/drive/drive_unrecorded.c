/* SPDX-License-Identifier: Apache-2.0 */
/* drive_unrecorded.c - drives that a VM has and the database does not, because it was lost or
 * replaced by an older one.
 *
 * A drive_id without a row does not prove that no VM has the disk. So the first detach of such an
 * id asks each VM once for its list, by an act without a row: a struct drive_work whose drive_ref
 * is 0. Drives attached later have a row, so a list stays true until the database is replaced. One
 * that a client wants to detach gets a row in a state in which it is being removed: the guest is
 * asked to unmount it first. One that no client asks for is left alone, because its pod may be
 * using it.
 *
 * A VMM without a monitor has no unrecorded drives: nothing could be attached to it.
 */
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "hypervisor/hypervisor.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/drive/claim.h"
#include "reconciler/drive/drive_work.h"

/* ---- the lists ---- */

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

int drive_unrecorded_known(const struct drives *drives, struct error *error)
{
    const struct drive_work *failed = NULL;

    for (const struct drive_work *list = drives->works; list; list = list->next) {
        if (list->drive_ref || drive_state_is_end(list->row.state))
            continue;
        if (!list->is_listed)
            return DRIVE_UNRECORDED_ASKED;
        if (list->result.status != STATUS_OK)
            failed = list;
    }
    if (!failed)
        return DRIVE_UNRECORDED_KNOWN;
    return error_set(error, DRIVE_UNRECORDED_UNKNOWN,
                     "the drive is not recorded, but sandbox %s may have it: %s",
                     failed->sandbox_id, failed->result.error.text);
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

int drive_unrecorded_ask(struct drives *drives, bool again)
{
    for (struct drive_work *list = drives->works; again && list; list = list->next)
        if (list->is_listed && list->result.status != STATUS_OK) {
            list->is_listed = false;
            list->due = true;
        }
    return store_each_helper_sandbox(drives->context->store, ask_sandbox, drives);
}

/* Whether a row that has not ended exists for the drive. */
static bool is_on_record(const struct drive_work *list, const char *drive_id)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    return store_get_drive_mount(list->drives->context->store, drive_id, &row) == STORE_FOUND &&
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

/* ---- making a row ---- */

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
    r = store_unwant_drive_mount(store, drive_ref);
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

int drive_unrecorded_record(struct drives *drives, const char *drive_id, int64_t *ret_drive_ref)
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
