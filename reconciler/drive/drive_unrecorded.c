/* SPDX-License-Identifier: Apache-2.0 */
/* drive_unrecorded.c - drives that a VM has and the database does not, because it was lost or
 * replaced by an older one.
 *
 * A drive_id without a row does not prove that no VM has the disk. So the first detach of such an
 * id asks each VM once for its list. Drives attached later have a row, so a list stays true until
 * the database is replaced. One that a client wants to detach gets a row in a state in which it
 * is being removed: the guest is asked to unmount it first. One that no client asks for is left
 * alone, because its pod may be using it.
 *
 * A VMM without a monitor has no unrecorded drives: nothing could be attached to it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "config/config.h"
#include "hypervisor/hypervisor.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/drive/claim.h"
#include "reconciler/drive/drive_work.h"

/* How many VMs are asked at the same time. */
enum { LISTINGS = 4 };

enum listing_step { LISTING_DUE, LISTING_RUNNING, LISTING_FAILED, LISTING_DONE };

/* The unrecorded drives of one VM. */
struct drive_listing {
    struct drive_listing *next;
    struct drives *drives;
    int64_t sandbox_ref;
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    bool is_live; /* while the store is read */
    enum listing_step step;
    struct hypervisor_call *call;
    struct hypervisor_drive_entry *unrecorded; /* owned */
    size_t unrecorded_count;
    struct error error; /* why the listing failed */
};

/* ---- the lists ---- */

static void free_listing(struct drive_listing *listing)
{
    (void)hypervisor_call_free(listing->call);
    free(listing->unrecorded);
    free(listing);
}

void drive_unrecorded_done(struct drives *drives)
{
    while (drives->listings) {
        struct drive_listing *listing = drives->listings;

        drives->listings = listing->next;
        free_listing(listing);
    }
}

static struct hypervisor_drive_entry *find_in(const struct drive_listing *listing,
                                              const char *drive_id)
{
    for (size_t i = 0; i < listing->unrecorded_count; i++)
        if (strcmp(listing->unrecorded[i].drive_id, drive_id) == 0)
            return &listing->unrecorded[i];
    return NULL;
}

bool drive_unrecorded_have(const struct drives *drives, const char *drive_id)
{
    for (const struct drive_listing *listing = drives->listings; listing; listing = listing->next)
        if (find_in(listing, drive_id))
            return true;
    return false;
}

static void forget_in(struct drive_listing *listing, const char *drive_id)
{
    struct hypervisor_drive_entry *entry = find_in(listing, drive_id);

    if (entry)
        *entry = listing->unrecorded[--listing->unrecorded_count];
}

void drive_unrecorded_forget(struct drives *drives, const char *sandbox_id, const char *drive_id)
{
    for (struct drive_listing *listing = drives->listings; listing; listing = listing->next)
        if (strcmp(listing->sandbox_id, sandbox_id) == 0)
            forget_in(listing, drive_id);
}

bool drive_unrecorded_use_vmm(const struct drives *drives, const char *sandbox_id)
{
    for (const struct drive_listing *listing = drives->listings; listing; listing = listing->next)
        if (listing->step == LISTING_RUNNING && strcmp(listing->sandbox_id, sandbox_id) == 0)
            return true;
    return false;
}

bool drive_unrecorded_are_idle(const struct drives *drives)
{
    for (const struct drive_listing *listing = drives->listings; listing; listing = listing->next)
        if (listing->step == LISTING_RUNNING)
            return false;
    return true;
}

int drive_unrecorded_known(const struct drives *drives, struct error *error)
{
    const struct drive_listing *failed = NULL;

    for (const struct drive_listing *listing = drives->listings; listing; listing = listing->next) {
        if (listing->step == LISTING_DUE || listing->step == LISTING_RUNNING)
            return DRIVE_UNRECORDED_ASKED;
        if (listing->step == LISTING_FAILED)
            failed = listing;
    }
    if (!failed)
        return DRIVE_UNRECORDED_KNOWN;
    return error_set(error, DRIVE_UNRECORDED_UNKNOWN,
                     "the drive is not recorded, but sandbox %s may have it: %s",
                     failed->sandbox_id, failed->error.text);
}

/* ---- asking a VM ---- */

static void fail_listing(struct drive_listing *listing, const struct error *error)
{
    listing->step = LISTING_FAILED;
    listing->error = *error;
}

/* Whether a row that has not ended exists for the drive. */
static bool is_on_record(const struct drive_listing *listing, const char *drive_id)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    return store_get_drive_mount(listing->drives->context->store, drive_id, 0, &row) ==
               STORE_FOUND &&
           !drive_state_is_end(row.state) && row.sandbox_ref == listing->sandbox_ref;
}

static void take_entries(struct drive_listing *listing, const struct hypervisor_reply *reply)
{
    const struct log_ids ids = {.sandbox = listing->sandbox_id};
    struct error error = {0};

    listing->unrecorded = calloc(reply->entry_count + 1, sizeof(*listing->unrecorded));
    if (!listing->unrecorded) {
        (void)error_set(&error, 0, "out of memory");
        fail_listing(listing, &error);
        return;
    }
    for (size_t i = 0; i < reply->entry_count; i++) {
        const struct hypervisor_drive_entry *entry = &reply->entries[i];

        if (entry->state == HYPERVISOR_DRIVE_ABSENT || is_on_record(listing, entry->drive_id))
            continue;
        listing->unrecorded[listing->unrecorded_count++] = *entry;
        log_warning(&ids, "drive %s: the VM has it, and it is not on record: detach it",
                    entry->drive_id);
    }
}

static void on_listed(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                      void *userdata)
{
    struct drive_listing *listing = userdata;
    struct drives *drives = listing->drives;
    struct error error = reply->error;

    free(listing->unrecorded);
    listing->unrecorded = NULL;
    listing->unrecorded_count = 0;
    listing->step = LISTING_DONE;
    if (reply->outcome == HYPERVISOR_BUSY || reply->outcome == HYPERVISOR_UNREACHABLE)
        fail_listing(listing, &error);
    else if (reply->outcome == HYPERVISOR_DONE)
        take_entries(listing, reply);
    listing->call = hypervisor_call_free(call);
    drives->has_new_lists = true;
    drives_give_slots(drives);
}

static void start_listing(struct drive_listing *listing)
{
    const struct context *context = listing->drives->context;
    struct store_helper_run sandbox = {0};
    struct error error = {0};
    int r = store_get_helper_sandbox(context->store, listing->sandbox_ref, &sandbox);
    const struct hypervisor_request request = {
        .act = HYPERVISOR_LIST,
        .root = context->root,
        .control_socket = sandbox.control_socket[0] ? sandbox.control_socket : NULL,
        .vmm_pid = sandbox.vmm_pid,
        .sandbox_id = sandbox.sandbox_id,
        .descriptor = -1,
        .deadline_ns = context->config->resize.call_timeout_seconds * NSEC_PER_SEC,
    };

    listing->step = LISTING_RUNNING;
    if (r < 0)
        (void)error_set(&error, 0, "its record cannot be read");
    else
        r = hypervisor_call_new(context->loop, sandbox.hypervisor, &request, on_listed, listing,
                                &listing->call, &error);
    if (r >= 0)
        return;
    fail_listing(listing, &error);
    listing->drives->has_new_lists = true;
}

void drive_unrecorded_go_on(struct drives *drives)
{
    unsigned count = 0;

    for (const struct drive_listing *listing = drives->listings; listing; listing = listing->next)
        count += listing->step == LISTING_RUNNING;
    for (struct drive_listing *listing = drives->listings; listing && count < LISTINGS;
         listing = listing->next)
        if (listing->step == LISTING_DUE && !drives_use_vmm(drives, listing->sandbox_id)) {
            start_listing(listing);
            count++;
        }
}

/* ---- choosing VMs ---- */

static int visit_sandbox(void *userdata, const struct store_helper_run *sandbox)
{
    struct drives *drives = userdata;
    struct drive_listing *listing = drives->listings;

    if (hypervisor_traits(sandbox->hypervisor)->obstacle)
        return 0; /* crustd refuses to attach drives to it, so it has none */
    while (listing && listing->sandbox_ref != sandbox->sandbox_ref)
        listing = listing->next;
    if (!listing) {
        listing = calloc(1, sizeof(*listing));
        if (!listing)
            return STORE_NO_MEMORY;
        listing->drives = drives;
        listing->sandbox_ref = sandbox->sandbox_ref;
        (void)snprintf(listing->sandbox_id, sizeof(listing->sandbox_id), "%s", sandbox->sandbox_id);
        listing->next = drives->listings;
        drives->listings = listing;
    }
    listing->is_live = true;
    return 0;
}

int drive_unrecorded_ask(struct drives *drives, bool again)
{
    struct drive_listing **link = &drives->listings;
    int r;

    for (struct drive_listing *listing = drives->listings; listing; listing = listing->next) {
        listing->is_live = false;
        if (again && listing->step == LISTING_FAILED)
            listing->step = LISTING_DUE;
    }
    r = store_each_sandbox(drives->context->store, false, visit_sandbox, drives);
    while (r == 0 && *link) {
        struct drive_listing *listing = *link;

        if (listing->is_live) {
            link = &listing->next;
        } else {
            *link = listing->next;
            free_listing(listing);
        }
    }
    return r;
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
static void fill_request(const struct drive_listing *listing,
                         const struct hypervisor_drive_entry *entry,
                         struct store_drive_mount_request *ret_request)
{
    *ret_request = (struct store_drive_mount_request){
        .host_path = "unknown", .fs_type = "unknown", .writable = true};
    (void)snprintf(ret_request->drive_id, sizeof(ret_request->drive_id), "%s", entry->drive_id);
    (void)snprintf(ret_request->sandbox_id, sizeof(ret_request->sandbox_id), "%s",
                   listing->sandbox_id);
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
static int add_row(struct drive_listing *listing, const struct hypervisor_drive_entry *entry,
                   bool is_made_by_vmm, int64_t *ret_drive_ref)
{
    struct drives *drives = listing->drives;
    struct store *store = drives->context->store;
    struct store_drive_mount_disk disk;
    char boot_id[CLOCK_BOOT_ID_BYTES], serial[DRIVE_SERIAL_CHARS + 1] = "";
    struct store_drive_mount_request request;
    struct error error = {0};
    int64_t drive_ref = 0;
    int r = STORE_DRIVE_MOUNT_TOO_MANY;

    /* With a wrong serial the guest would not find the disk and would report it as unmounted. */
    if (is_made_by_vmm)
        (void)snprintf(serial, sizeof(serial), "%s", entry->serial);
    else if (clock_boot_id(boot_id) == 0)
        drive_serial_make(boot_id, listing->sandbox_id, entry->drive_id, serial);
    if (serial[0]) {
        fill_request(listing, entry, &request);
        r = store_add_drive_mount(store, &request, serial, &drive_ref);
    }
    if (r < 0)
        return r;
    if (r != STORE_DRIVE_MOUNT_ADDED) {
        (void)error_set(&error, 0, "it has drive %s, which cannot be put on record%s",
                        entry->drive_id,
                        serial[0] ? "" : ": the serial that its guest sees is not known");
        fail_listing(listing, &error);
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

int drive_unrecorded_record(struct drives *drives, const char *drive_id, int64_t *ret_drive_ref)
{
    for (struct drive_listing *listing = drives->listings; listing; listing = listing->next) {
        struct hypervisor_drive_entry *entry = find_in(listing, drive_id);
        struct store_helper_run sandbox = {0};
        int r;

        if (!entry)
            continue;
        r = store_get_helper_sandbox(drives->context->store, listing->sandbox_ref, &sandbox);
        if (r == 0 && sandbox.is_alive)
            r = add_row(listing, entry, hypervisor_traits(sandbox.hypervisor)->makes_serial,
                        ret_drive_ref);
        if (r < 0)
            return r;
        if (!*ret_drive_ref)
            continue;
        forget_in(listing, drive_id);
        return drive_work_add(drives, *ret_drive_ref, listing->sandbox_id) ? 0 : STORE_NO_MEMORY;
    }
    return 0;
}
