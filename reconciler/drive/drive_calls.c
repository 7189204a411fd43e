/* SPDX-License-Identifier: Apache-2.0 */
/* drive_calls.c - the calls of clients: checked, recorded at once, and then waited for
 * (drive_work.h). Reading is answered at once.
 */
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "hypervisor/drive.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/drive_form.h"
#include "reconciler/drive/drive_request.h"
#include "reconciler/drive/drive_work.h"
#include "reconciler/drive/loops.h"

#define refuse(error, code, ...) ((enum status_code)error_set((error), (int)(code), __VA_ARGS__))

/* No call is accepted before it is known which VMs run, or while the store cannot keep it. */
static enum status_code check_daemon(const struct drives *drives, struct error *error)
{
    if (drives->context->stopping)
        return refuse(error, STATUS_UNAVAILABLE, "crustd is being stopped");
    if (!drives->context->synced)
        return refuse(error, STATUS_UNAVAILABLE,
                      "crustd has not completed its first scan of the node");
    if (!drive_waits_have_room(drives))
        return refuse(error, STATUS_UNAVAILABLE, "too many calls wait for drives");
    return promise_check(drives->context->store, error);
}

static enum status_code explain_store(const struct drives *drives, struct error *error)
{
    return refuse(error, STATUS_UNAVAILABLE, "the database cannot be written: %s",
                  store_error_text(drives->context->store));
}

/* ---- attach ---- */

static enum status_code explain_added(int added, const struct store_drive_mount_request *request,
                                      struct error *error)
{
    switch (added) {
    case STORE_DRIVE_MOUNT_PATH_TAKEN:
        return refuse(error, STATUS_ALREADY_EXISTS, "another drive has %s in sandbox %s",
                      request->vm_path, request->sandbox_id);
    case STORE_DRIVE_MOUNT_NO_SANDBOX:
        return refuse(error, STATUS_NOT_FOUND, "sandbox %s has no running VM", request->sandbox_id);
    case STORE_DRIVE_MOUNT_TOO_MANY:
        return refuse(error, STATUS_RESOURCE_EXHAUSTED, "this node has %d drives",
                      STORE_DRIVE_MOUNTS);
    default:
        return refuse(error, STATUS_ALREADY_EXISTS, "drive_id %s is taken", request->drive_id);
    }
}

/* Checks the VM of the new row. */
static enum status_code check_vmm(struct drives *drives, int64_t drive_ref, struct error *error)
{
    struct store *store = drives->context->store;
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};
    struct store_helper_run sandbox = {0};
    const struct hypervisor_drive_traits *traits;
    int r = store_get_drive_mount_itself(store, drive_ref, &row);

    if (r == STORE_FOUND)
        r = store_get_helper_sandbox(store, row.sandbox_ref, &sandbox);
    if (r < 0)
        return explain_store(drives, error);
    traits = hypervisor_drive_traits(sandbox.hypervisor);
    if (traits->obstacle)
        return refuse(error, STATUS_FAILED_PRECONDITION, "sandbox %s: %s", sandbox.sandbox_id,
                      traits->obstacle);
    return drive_request_check_limits(sandbox.hypervisor, &row.request.limits, error);
}

static enum status_code add_drive(struct drives *drives,
                                  const struct store_drive_mount_request *request,
                                  int64_t *ret_drive_ref, struct error *error)
{
    char boot_id[CLOCK_BOOT_ID_BYTES], serial[DRIVE_SERIAL_CHARS + 1];
    int r = clock_boot_id(boot_id);

    if (r < 0)
        return refuse(error, STATUS_UNAVAILABLE, "the boot id cannot be read");
    drive_serial_make(boot_id, request->sandbox_id, request->drive_id, serial);
    r = store_add_drive_mount(drives->context->store, request, serial, ret_drive_ref);
    if (r < 0)
        return explain_store(drives, error);
    return r == STORE_DRIVE_MOUNT_ADDED ? check_vmm(drives, *ret_drive_ref, error)
                                        : explain_added(r, request, error);
}

/* Joins the drive of this id that has not ended, if it has the requested parameters. */
static enum status_code join_drive(const struct store_drive_mount *row,
                                   const struct store_drive_mount_request *request,
                                   int64_t *ret_drive_ref, struct error *error)
{
    if (drive_is_stray(row))
        return refuse(error, STATUS_UNAVAILABLE,
                      "the VM of sandbox %s has drive %s, which was not on record: it is taken out "
                      "first",
                      row->request.sandbox_id, request->drive_id);
    if (!drive_request_is_equal(&row->request, request))
        return refuse(error, STATUS_ALREADY_EXISTS, "drive_id %s exists with other parameters",
                      request->drive_id);
    if (!row->wanted && !drive_has_failed(row))
        return refuse(error, STATUS_UNAVAILABLE, "drive %s is being detached", request->drive_id);
    *ret_drive_ref = row->drive_ref;
    return STATUS_OK;
}

static enum status_code put_on_record(struct drives *drives,
                                      const struct store_drive_mount_request *request,
                                      int64_t *ret_drive_ref, struct error *error)
{
    struct store *store = drives->context->store;
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};
    enum status_code code;
    int r = store_begin(store);

    if (r < 0)
        return explain_store(drives, error);
    r = store_get_drive_mount(store, request->drive_id, &row);
    if (r < 0)
        code = explain_store(drives, error);
    else if (r == STORE_FOUND && !drive_state_is_end(row.state))
        code = join_drive(&row, request, ret_drive_ref, error);
    else
        code = add_drive(drives, request, ret_drive_ref, error);
    if (code != STATUS_OK) {
        store_rollback(store);
        return code;
    }
    drives->dirty = true;
    drive_strays_forget(drives, request->sandbox_id, request->drive_id);
    return store_end(store, 0) < 0 ? explain_store(drives, error) : STATUS_OK;
}

/* Whether it is ready was read last when it became so, and a guest may have been rebooted since. */
static void look_again(struct drives *drives, int64_t drive_ref)
{
    struct drive_work *work = drive_work_find(drives, drive_ref);

    if (work && work->step == DRIVE_IDLE && work->row.state == DRIVE_READY) {
        work->vmm = DRIVE_IN_VMM_UNKNOWN;
        work->guest = DRIVE_IN_GUEST_UNKNOWN;
    }
}

enum status_code drives_attach(struct drives *drives, const struct reconciler_drive_attach *attach,
                               reconciler_drive_done *done, void *userdata,
                               struct drive_wait **ret_wait, struct error *error)
{
    const struct config *config = drives->context->config;
    cleanup(store_drive_mount_done) struct store_drive_mount asked = {0};
    int64_t drive_ref = 0;
    enum status_code code;

    if (!config->drives.enabled)
        return refuse(error, STATUS_FAILED_PRECONDITION, "drives.enabled is off on this node");
    code = drive_request_check(config, attach, &asked.request, error);
    if (code == STATUS_OK)
        code = check_daemon(drives, error);
    if (code == STATUS_OK)
        code = put_on_record(drives, &asked.request, &drive_ref, error);
    if (code != STATUS_OK)
        return code;
    look_again(drives, drive_ref);
    return drive_wait_begin(drives, WAIT_ATTACH, &asked.request, drive_ref, done, userdata,
                            ret_wait, error);
}

/* ---- detach ---- */

/* The status of an attach that has not succeeded yet is cleared, because it would be taken for that
 * of the detach. */
static int unwant(struct drives *drives, const struct store_drive_mount *row)
{
    struct store *store = drives->context->store;
    int r = store_begin(store);

    if (r < 0)
        return r;
    r = store_set_drive_mount_state(store, row->drive_ref, row->state, STATUS_OK, "");
    if (r == 0)
        r = store_unwant_drive_mount(store, row->drive_ref);
    drives->dirty = true;
    return store_end(store, r);
}

/* Finds the drive of this id, whatever its state: *ret_row; its drive_ref is 0 if there is none. */
static enum status_code find(struct drives *drives, const char *drive_id,
                             struct store_drive_mount *ret_row, struct error *error)
{
    enum status_code code = drive_form_check_id(drive_id, error);

    if (code == STATUS_OK && store_get_drive_mount(drives->context->store, drive_id, ret_row) < 0)
        code = explain_store(drives, error);
    return code;
}

enum status_code drives_detach(struct drives *drives, const char *drive_id,
                               reconciler_drive_done *done, void *userdata,
                               struct drive_wait **ret_wait, struct error *error)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};
    struct store_drive_mount_request request = {0};
    enum status_code code = drive_form_check_id(drive_id, error);

    if (code == STATUS_OK)
        code = check_daemon(drives, error);
    if (code == STATUS_OK)
        code = find(drives, drive_id, &row, error);
    if (code != STATUS_OK)
        return code;
    (void)snprintf(request.drive_id, sizeof(request.drive_id), "%s", drive_id);
    (void)snprintf(request.sandbox_id, sizeof(request.sandbox_id), "%s", row.request.sandbox_id);
    if (!row.drive_ref || drive_state_is_end(row.state)) {
        code = drive_wait_begin(drives, WAIT_DETACH, &request, 0, done, userdata, ret_wait, error);
        if (code == STATUS_OK && (!row.drive_ref || drive_strays_have(drives, drive_id)))
            drive_wait_ask_vms(*ret_wait);
        return code;
    }
    if (row.wanted && unwant(drives, &row) < 0)
        return explain_store(drives, error);
    return drive_wait_begin(drives, WAIT_DETACH, &request, row.drive_ref, done, userdata, ret_wait,
                            error);
}

/* ---- limits ---- */

static enum status_code check_limits(struct drives *drives, const struct store_drive_mount *row,
                                     const struct drive_limits *limits, struct error *error)
{
    struct store_helper_run sandbox = {0};
    const struct drive_work *work = drive_work_find(drives, row->drive_ref);

    if (!row->wanted)
        return refuse(error, STATUS_FAILED_PRECONDITION, "the drive is being detached");
    if (row->state != DRIVE_READY)
        return refuse(error, STATUS_UNAVAILABLE, "the drive is not attached yet");
    if (work && work->has_new_limits && !drive_limits_are_equal(&work->new_limits, limits))
        return refuse(error, STATUS_UNAVAILABLE, "other limits are being set");
    if (store_get_helper_sandbox(drives->context->store, row->sandbox_ref, &sandbox) < 0)
        return explain_store(drives, error);
    return drive_request_check_limits(sandbox.hypervisor, limits, error);
}

enum status_code drives_limit(struct drives *drives, const char *drive_id,
                              const struct drive_limits *limits, reconciler_drive_done *done,
                              void *userdata, struct drive_wait **ret_wait, struct error *error)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};
    enum status_code code = find(drives, drive_id, &row, error);
    struct drive_work *work;

    if (code == STATUS_OK)
        code = check_daemon(drives, error);
    if (code == STATUS_OK && (!row.drive_ref || drive_state_is_end(row.state)))
        code = refuse(error, STATUS_NOT_FOUND, "there is no drive %s", drive_id);
    if (code == STATUS_OK)
        code = check_limits(drives, &row, limits, error);
    if (code == STATUS_OK)
        code = drive_wait_begin(drives, WAIT_LIMIT, &row.request, row.drive_ref, done, userdata,
                                ret_wait, error);
    if (code != STATUS_OK)
        return code;
    work = drive_work_find(drives, row.drive_ref);
    work->has_new_limits = true;
    work->new_limits = *limits;
    return STATUS_OK;
}

/* ---- reading ---- */

enum status_code drives_get(struct drives *drives, const char *drive_id,
                            reconciler_drive_callback *callback, void *userdata,
                            struct error *error)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};
    enum status_code code = find(drives, drive_id, &row, error);
    struct reconciler_drive drive;

    if (code == STATUS_OK && !row.drive_ref)
        code = refuse(error, STATUS_NOT_FOUND, "there is no drive %s", drive_id);
    if (code != STATUS_OK)
        return code;
    drive = drive_describe(&row);
    (void)callback(userdata, &drive);
    return STATUS_OK;
}

struct walk {
    const char *sandbox_id;
    reconciler_drive_callback *callback;
    void *userdata;
    bool is_over;
};

static int visit(void *userdata, const struct store_drive_mount *row)
{
    struct walk *walk = userdata;
    struct reconciler_drive drive = drive_describe(row);

    if (!walk->sandbox_id || strcmp(walk->sandbox_id, row->request.sandbox_id) == 0)
        walk->is_over = walk->callback(walk->userdata, &drive) != 0;
    return walk->is_over;
}

enum status_code drives_each(struct drives *drives, const char *sandbox_id,
                             reconciler_drive_callback *callback, void *userdata,
                             struct error *error)
{
    struct walk walk = {.sandbox_id = sandbox_id, .callback = callback, .userdata = userdata};

    return store_each_drive_mount(drives->context->store, visit, &walk) < 0
               ? explain_store(drives, error)
               : STATUS_OK;
}
