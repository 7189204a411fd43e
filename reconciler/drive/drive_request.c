/* SPDX-License-Identifier: Apache-2.0 */
/* drive_request.c - checks a client's request.
 *
 * What depends on the node or the guest is checked later: which disk the path leads to, which
 * options the guest's file system accepts, and where vm_path really leads.
 */
#include "reconciler/drive/drive_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "observe/observe.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/drive_form.h"

enum {
    OPTIONS_BYTES = DRIVE_OPTIONS * (6 * DRIVE_OPTION_CHARS + 3) + 3,
    CONTAINER_BYTES = 6 * (DRIVE_CONTAINER_ID_CHARS + 2 * DRIVE_PATH_CHARS) + 80,
    CONTAINERS_BYTES = DRIVE_CONTAINERS * CONTAINER_BYTES + 3,
};

/* ---- where the disk may lie ---- */

static bool is_below(const char *path, const char *directory)
{
    size_t length = strlen(directory);

    while (length && directory[length - 1] == '/')
        length--;
    return strncmp(path, directory, length) == 0 && path[length] == '/';
}

static enum status_code check_host_path(const struct config *config, const char *path,
                                        struct error *error)
{
    const struct config_list *prefixes = &config->drives.host_prefixes;

    for (unsigned i = 0; i < prefixes->count; i++)
        if (is_below(path, config_list_item(prefixes, i)))
            return STATUS_OK;
    return (enum status_code)error_set(
        error, STATUS_PERMISSION_DENIED,
        "host_path %s is outside the directories of drives.host_prefixes", path);
}

/* ---- texts for the record ---- */

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

/* ---- limits ---- */

bool drive_limits_are_equal(const struct drive_limits *a, const struct drive_limits *b)
{
    const struct drive_bucket *const pairs[][2] = {{&a->bandwidth, &b->bandwidth},
                                                   {&a->operations, &b->operations}};

    for (unsigned i = 0; i < array_length(pairs); i++)
        if (pairs[i][0]->size != pairs[i][1]->size ||
            pairs[i][0]->refill_ms != pairs[i][1]->refill_ms ||
            pairs[i][0]->one_time_burst != pairs[i][1]->one_time_burst)
            return false;
    return true;
}

enum status_code drive_request_check_limits(enum hypervisor_kind kind,
                                            const struct drive_limits *limits, struct error *error)
{
    enum status_code code = drive_form_check_limits(limits, error);

    if (code == STATUS_OK && kind == HYPERVISOR_QEMU &&
        (limits->bandwidth.one_time_burst || limits->operations.one_time_burst))
        code = answer_refuse(error, ANSWER_BAD_REQUEST, "%s has no one-time burst",
                             hypervisor_title(kind));
    return code;
}

/* ---- the whole request ---- */

static enum status_code check_fields(const struct config *config,
                                     const struct reconciler_drive_attach *attach,
                                     struct error *error)
{
    enum status_code code = drive_form_check(attach, error);

    if (code == STATUS_OK && !observe_is_sandbox_id(attach->sandbox_id))
        code = answer_refuse(error, ANSWER_BAD_REQUEST, "sandbox_id is not the id of a sandbox");
    return code == STATUS_OK ? check_host_path(config, attach->host_path, error) : code;
}

enum status_code drive_request_check(const struct config *config,
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
    enum status_code code = check_fields(config, attach, error);

    if (code != STATUS_OK)
        return code;
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
        return (enum status_code)error_set(error, STATUS_UNAVAILABLE, "out of memory");
    }
    *ret_request = request;
    return STATUS_OK;
}

bool drive_request_is_equal(const struct store_drive_mount_request *a,
                            const struct store_drive_mount_request *b)
{
    return strcmp(a->drive_id, b->drive_id) == 0 && strcmp(a->sandbox_id, b->sandbox_id) == 0 &&
           strcmp(a->host_path, b->host_path) == 0 && strcmp(a->vm_path, b->vm_path) == 0 &&
           strcmp(a->fs_type, b->fs_type) == 0 && strcmp(a->options, b->options) == 0 &&
           strcmp(a->containers, b->containers) == 0 && a->writable == b->writable &&
           a->fsck == b->fsck && a->has_fs_group == b->has_fs_group && a->fs_group == b->fs_group &&
           a->fs_group_policy == b->fs_group_policy;
}
