/* SPDX-License-Identifier: Apache-2.0 */
/* drive_calls.c - the calls of clients: checked, recorded at once, and then waited for
 * (drive_work.h). Reading is answered at once.
 *
 * What depends on the node or the guest is checked later: which disk the path leads to, which
 * options the guest's file system accepts, and where vm_path really leads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "hypervisor/hypervisor.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "observe/observe.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/drive_form.h"
#include "reconciler/core/reconciler_internal.h"
#include "reconciler/drive/claim.h"
#include "reconciler/drive/drive_work.h"

#define refuse(error, code, ...) ((enum status_code)error_set((error), (int)(code), __VA_ARGS__))

/* ---- a request ---- */

enum {
    OPTIONS_BYTES = DRIVE_OPTIONS * (6 * DRIVE_OPTION_CHARS + 3) + 3,
    CONTAINER_BYTES = 6 * (DRIVE_CONTAINER_ID_CHARS + 2 * DRIVE_PATH_CHARS) + 80,
    CONTAINERS_BYTES = DRIVE_CONTAINERS * CONTAINER_BYTES + 3,
};

static char *options_text(const struct reconciler_drive_attach *attach)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(OPTIONS_BYTES);

    buffer_append_text(&text, "[");
    for (unsigned i = 0; i < attach->options; i++) {
        buffer_append_text(&text, i ? "," : "");
        json_append_string(&text, attach->option[i]);
    }
    return buffer_append_text(&text, "]") < 0 ? NULL : strdup(buffer_text(&text));
}

static char *containers_text(const struct reconciler_drive_attach *attach)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(CONTAINERS_BYTES);

    buffer_append_text(&text, "[");
    for (unsigned i = 0; i < attach->containers; i++) {
        const struct reconciler_drive_container *one = &attach->container[i];

        buffer_append_text(&text, i ? ",{\"container_id\":" : "{\"container_id\":");
        json_append_string(&text, one->container_id);
        buffer_append_text(&text, ",\"path\":");
        json_append_string(&text, one->path);
        buffer_append_text(&text, ",\"sub_path\":");
        json_append_string(&text, one->sub_path);
        buffer_append_text(&text,
                           one->read_only ? ",\"read_only\":true}" : ",\"read_only\":false}");
    }
    return buffer_append_text(&text, "]") < 0 ? NULL : strdup(buffer_text(&text));
}

/* Checks whether VMMs of this kind can enforce the limits. */
static enum status_code check_limits(enum hypervisor_kind kind, const struct drive_limits *limits,
                                     struct error *error)
{
    enum status_code code = drive_form_check_limits(limits, error);

    if (code == STATUS_OK && kind == HYPERVISOR_QEMU &&
        (limits->bandwidth.one_time_burst || limits->operations.one_time_burst))
        code = answer_refuse(error, ANSWER_BAD_REQUEST, "%s has no one-time burst",
                             hypervisor_title(kind));
    return code;
}

/* Checks it against the configuration. STATUS_OK: ret_request, whose options and containers the
 * caller frees. */
static enum status_code check_request(const struct config *config,
                                      const struct reconciler_drive_attach *attach,
                                      struct store_drive_mount_request *ret_request,
                                      struct error *error)
{
    struct store_drive_mount_request request = {
        .writable = attach->writable,
        .fsck = attach->fsck,
        .has_fs_group = attach->has_fs_group,
        .fs_group = attach->has_fs_group ? attach->fs_group : 0,
        .fs_group_policy = attach->fs_group_policy,
        .limits = attach->limits,
    };
    const struct config_list *prefixes = &config->drives.host_prefixes;
    enum status_code code = drive_form_check(attach, error);
    unsigned i = 0;

    if (code != STATUS_OK)
        return code;
    if (!config->drives.enabled)
        return refuse(error, STATUS_FAILED_PRECONDITION, "drives.enabled is off on this node");
    if (!observe_is_sandbox_id(attach->sandbox_id))
        return answer_refuse(error, ANSWER_BAD_REQUEST, "sandbox_id is not the id of a sandbox");
    while (i < prefixes->count &&
           !drive_path_below(attach->host_path, config_list_item(prefixes, i)))
        i++;
    if (i == prefixes->count)
        return refuse(error, STATUS_PERMISSION_DENIED,
                      "host_path %s is outside the directories of drives.host_prefixes",
                      attach->host_path);
    (void)snprintf(request.drive_id, sizeof(request.drive_id), "%s", attach->drive_id);
    (void)snprintf(request.sandbox_id, sizeof(request.sandbox_id), "%s", attach->sandbox_id);
    (void)snprintf(request.host_path, sizeof(request.host_path), "%s", attach->host_path);
    (void)snprintf(request.vm_path, sizeof(request.vm_path), "%s", attach->vm_path);
    (void)snprintf(request.fs_type, sizeof(request.fs_type), "%s", attach->fs_type);
    request.options = options_text(attach);
    request.containers = containers_text(attach);
    if (!request.options || !request.containers) {
        free(request.options);
        free(request.containers);
        return refuse(error, STATUS_UNAVAILABLE, "out of memory");
    }
    *ret_request = request;
    return STATUS_OK;
}

/* But for the limits, which may have been changed since they were asked for. */
static bool is_equal(const struct store_drive_mount_request *a,
                     const struct store_drive_mount_request *b)
{
    return strcmp(a->drive_id, b->drive_id) == 0 && strcmp(a->sandbox_id, b->sandbox_id) == 0 &&
           strcmp(a->host_path, b->host_path) == 0 && strcmp(a->vm_path, b->vm_path) == 0 &&
           strcmp(a->fs_type, b->fs_type) == 0 && strcmp(a->options, b->options) == 0 &&
           strcmp(a->containers, b->containers) == 0 && a->writable == b->writable &&
           a->fsck == b->fsck && a->has_fs_group == b->has_fs_group && a->fs_group == b->fs_group &&
           a->fs_group_policy == b->fs_group_policy;
}

/* ---- any call ---- */

/* As many as clients can have calls in progress. */
enum { WAITING = 2048 };

/* No call is accepted before it is known which VMs run, or while the store cannot keep it. */
static enum status_code check_daemon(const struct drives *drives, struct error *error)
{
    unsigned count = 0;

    for (const struct drive_wait *wait = drives->waits; wait; wait = wait->next)
        count++;
    if (drives->context->stopping)
        return refuse(error, STATUS_UNAVAILABLE, "crustd is being stopped");
    if (!drives->context->synced)
        return refuse(error, STATUS_UNAVAILABLE,
                      "crustd has not completed its first scan of the node");
    if (count >= WAITING)
        return refuse(error, STATUS_UNAVAILABLE, "too many calls wait for drives");
    return require_durable(drives->context->store, error);
}

static enum status_code explain_store(const struct drives *drives, struct error *error)
{
    return refuse(error, STATUS_UNAVAILABLE, "the database cannot be written: %s",
                  store_error_text(drives->context->store));
}

/* ---- attach ---- */

static enum status_code add_drive(struct drives *drives,
                                  const struct store_drive_mount_request *request,
                                  int64_t *ret_drive_ref, struct error *error)
{
    struct store *store = drives->context->store;
    char boot_id[CLOCK_BOOT_ID_BYTES], serial[DRIVE_SERIAL_CHARS + 1];
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};
    struct store_helper_run sandbox = {0};
    const char *obstacle;
    int r = clock_boot_id(boot_id);

    if (r < 0)
        return refuse(error, STATUS_UNAVAILABLE, "the boot id cannot be read");
    drive_serial_make(boot_id, request->sandbox_id, request->drive_id, serial);
    r = store_add_drive_mount(store, request, serial, ret_drive_ref);
    if (r == STORE_DRIVE_MOUNT_PATH_TAKEN)
        return refuse(error, STATUS_ALREADY_EXISTS, "another drive has %s in sandbox %s",
                      request->vm_path, request->sandbox_id);
    if (r == STORE_DRIVE_MOUNT_NO_SANDBOX)
        return refuse(error, STATUS_NOT_FOUND, "sandbox %s has no running VM", request->sandbox_id);
    if (r == STORE_DRIVE_MOUNT_TOO_MANY)
        return refuse(error, STATUS_RESOURCE_EXHAUSTED, "this node has %d drives",
                      STORE_DRIVE_MOUNTS);
    if (r > 0 && r != STORE_DRIVE_MOUNT_ADDED)
        return refuse(error, STATUS_ALREADY_EXISTS, "drive_id %s is taken", request->drive_id);
    if (r >= 0)
        r = store_get_drive_mount(store, NULL, *ret_drive_ref, &row);
    if (r == STORE_FOUND)
        r = store_get_helper_sandbox(store, row.sandbox_ref, &sandbox);
    if (r < 0)
        return explain_store(drives, error);
    obstacle = hypervisor_traits(sandbox.hypervisor)->obstacle;
    if (obstacle)
        return refuse(error, STATUS_FAILED_PRECONDITION, "sandbox %s: %s", sandbox.sandbox_id,
                      obstacle);
    return check_limits(sandbox.hypervisor, &request->limits, error);
}

/* Joins the drive of this id that has not ended, if it has the requested parameters. */
static enum status_code join_drive(const struct store_drive_mount *row,
                                   const struct store_drive_mount_request *request,
                                   int64_t *ret_drive_ref, struct error *error)
{
    if (drive_is_unrecorded(row))
        return refuse(error, STATUS_UNAVAILABLE,
                      "the VM of sandbox %s has drive %s, which was not on record: it is taken out "
                      "first",
                      row->request.sandbox_id, request->drive_id);
    if (!is_equal(&row->request, request))
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
    r = store_get_drive_mount(store, request->drive_id, 0, &row);
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
    drive_unrecorded_forget(drives, request->sandbox_id, request->drive_id);
    return store_end(store, 0) < 0 ? explain_store(drives, error) : STATUS_OK;
}

enum status_code reconciler_attach_drive(struct reconciler *reconciler,
                                         const struct reconciler_drive_attach *attach,
                                         reconciler_drive_done *done, void *userdata,
                                         struct drive_wait **ret_wait, struct error *error)
{
    struct drives *drives = reconciler->drives;
    const struct config *config = drives->context->config;
    cleanup(store_drive_mount_done) struct store_drive_mount asked = {0};
    struct drive_work *work;
    enum status_code code = check_request(config, attach, &asked.request, error);

    if (code == STATUS_OK)
        code = check_daemon(drives, error);
    if (code == STATUS_OK)
        code = put_on_record(drives, &asked.request, &asked.drive_ref, error);
    if (code != STATUS_OK)
        return code;
    /* VMM and guest were last read when the drive became ready, and the guest may have been
     * rebooted since. So both are read again before this client is answered. */
    work = drive_work_find(drives, asked.drive_ref);
    if (work && work->step == DRIVE_IDLE && work->row.state == DRIVE_READY) {
        work->vmm = DRIVE_IN_VMM_UNKNOWN;
        work->guest = DRIVE_IN_GUEST_UNKNOWN;
    }
    return drive_wait_begin(drives, WAIT_ATTACH, attach->drive_id, &asked, done, userdata, ret_wait,
                            error);
}

/* ---- detach ---- */

/* Finds the drive of this id, whatever its state: *ret_row; its drive_ref is 0 if there is none. */
static enum status_code find(struct drives *drives, const char *drive_id,
                             struct store_drive_mount *ret_row, struct error *error)
{
    enum status_code code = drive_form_check_id(drive_id, error);

    if (code == STATUS_OK &&
        store_get_drive_mount(drives->context->store, drive_id, 0, ret_row) < 0)
        code = explain_store(drives, error);
    return code;
}

enum status_code reconciler_detach_drive(struct reconciler *reconciler, const char *drive_id,
                                         reconciler_drive_done *done, void *userdata,
                                         struct drive_wait **ret_wait, struct error *error)
{
    struct drives *drives = reconciler->drives;
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};
    struct store *store = drives->context->store;
    enum status_code code = find(drives, drive_id, &row, error);
    const bool has_ended = drive_state_is_end(row.state), is_known = row.drive_ref;
    int r;

    if (code == STATUS_OK)
        code = check_daemon(drives, error);
    if (code != STATUS_OK)
        return code;
    if (has_ended) {
        row.drive_ref = 0;
    } else if (is_known && row.wanted) {
        r = store_begin(store);
        if (r < 0)
            return explain_store(drives, error);
        /* The status of an attach that has not succeeded yet would be taken for that of the
         * detach. */
        r = store_set_drive_mount_state(store, row.drive_ref, row.state, STATUS_OK, "");
        if (r == 0)
            r = store_set_drive_mount_wanted(store, row.drive_ref, false);
        drives->dirty = true;
        if (store_end(store, r) < 0)
            return explain_store(drives, error);
    }
    code = drive_wait_begin(drives, WAIT_DETACH, drive_id, &row, done, userdata, ret_wait, error);
    if (code == STATUS_OK && !row.drive_ref)
        (*ret_wait)->asks_vms = !is_known || drive_unrecorded_have(drives, drive_id);
    return code;
}

enum status_code reconciler_limit_drive(struct reconciler *reconciler, const char *drive_id,
                                        const struct drive_limits *limits,
                                        reconciler_drive_done *done, void *userdata,
                                        struct drive_wait **ret_wait, struct error *error)
{
    struct drives *drives = reconciler->drives;
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};
    enum status_code code = find(drives, drive_id, &row, error);
    struct store_helper_run sandbox = {0};
    struct drive_work *work;

    if (code == STATUS_OK)
        code = check_daemon(drives, error);
    if (code != STATUS_OK)
        return code;
    work = drive_work_find(drives, row.drive_ref);
    if (!row.drive_ref || drive_state_is_end(row.state))
        return refuse(error, STATUS_NOT_FOUND, "there is no drive %s", drive_id);
    if (!row.wanted)
        return refuse(error, STATUS_FAILED_PRECONDITION, "the drive is being detached");
    if (row.state != DRIVE_READY)
        return refuse(error, STATUS_UNAVAILABLE, "the drive is not attached yet");
    if (work && work->has_new_limits && memcmp(&work->new_limits, limits, sizeof(*limits)) != 0)
        return refuse(error, STATUS_UNAVAILABLE, "other limits are being set");
    if (store_get_helper_sandbox(drives->context->store, row.sandbox_ref, &sandbox) < 0)
        return explain_store(drives, error);
    code = check_limits(sandbox.hypervisor, limits, error);
    if (code == STATUS_OK)
        code =
            drive_wait_begin(drives, WAIT_LIMIT, drive_id, &row, done, userdata, ret_wait, error);
    if (code != STATUS_OK)
        return code;
    work = drive_work_find(drives, row.drive_ref);
    work->has_new_limits = true;
    work->new_limits = *limits;
    return STATUS_OK;
}

/* ---- reading ---- */

enum status_code reconciler_get_drive(struct reconciler *reconciler, const char *drive_id,
                                      reconciler_drive_callback *callback, void *userdata,
                                      struct error *error)
{
    struct drives *drives = reconciler->drives;
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

enum status_code reconciler_each_drive(struct reconciler *reconciler, const char *sandbox_id,
                                       reconciler_drive_callback *callback, void *userdata,
                                       struct error *error)
{
    struct drives *drives = reconciler->drives;
    struct walk walk = {.sandbox_id = sandbox_id, .callback = callback, .userdata = userdata};

    return store_each_drive_mount(drives->context->store, visit, &walk) < 0
               ? explain_store(drives, error)
               : STATUS_OK;
}
