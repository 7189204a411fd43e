/* SPDX-License-Identifier: Apache-2.0 */
/* drive_request.c - checks what a client asks for, before anything is done.
 *
 * What only the node or the guest can tell is found out later: which disk the path leads to, which
 * options the guest's file system takes, and where vm_path really leads. The names below /proc,
 * /sys and /dev are refused here only because that answers sooner. Those below kata-agent's
 * directory are refused here because a helper in a container sees only which file system a bind
 * leads to, and what the agent shares and mounts there are file systems of their own.
 */
#include "reconciler/drive/drive_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/path.h"
#include "lib/secret.h"
#include "observe/observe.h"

enum {
    OPTIONS_BYTES = DRIVE_OPTIONS * (6 * DRIVE_OPTION_CHARS + 3) + 3,
    CONTAINER_BYTES = 6 * (DRIVE_CONTAINER_ID_CHARS + 2 * DRIVE_PATH_CHARS) + 80,
    CONTAINERS_BYTES = DRIVE_CONTAINERS * CONTAINER_BYTES + 3,
};

#define WORD "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

#define refuse(error, ...)                                                                         \
    ((enum status_code)error_set((error), (int)STATUS_INVALID_ARGUMENT, __VA_ARGS__))

static bool is_of(const char *text, const char *letters, size_t most)
{
    size_t length = text ? strlen(text) : 0;

    return length > 0 && length <= most && strspn(text, letters) == length;
}

enum status_code drive_request_check_id(const char *drive_id, struct error *error)
{
    return is_of(drive_id, WORD "_-", DRIVE_ID_CHARS)
               ? STATUS_OK
               : refuse(error, "drive_id is missing, or is not 1 to %d of A-Z a-z 0-9 _ -",
                        DRIVE_ID_CHARS);
}

/* ---- paths ---- */

static enum status_code check_path(const char *name, const char *path, struct error *error)
{
    if (!path || path[0] != '/')
        return refuse(error, "%s is missing, or is not absolute", name);
    if (strlen(path) > DRIVE_PATH_CHARS)
        return refuse(error, "%s is longer than %d bytes", name, DRIVE_PATH_CHARS);
    if (!json_is_text(path, strlen(path)))
        return refuse(error, "%s is not UTF-8", name);
    if (!path_is_clean(path))
        return refuse(error, "%s has empty, \".\" or \"..\" components", name);
    return STATUS_OK;
}

static bool is_below(const char *path, const char *directory)
{
    size_t length = strlen(directory);

    while (length && directory[length - 1] == '/')
        length--;
    return strncmp(path, directory, length) == 0 && path[length] == '/';
}

static enum status_code check_vm_path(const char *path, struct error *error)
{
    static const char *const protected[] = {"/proc", "/sys", "/dev", "/run/kata-containers",
                                            "/var/run/kata-containers"};
    enum status_code code = check_path("vm_path", path, error);

    if (code != STATUS_OK)
        return code;
    for (unsigned i = 0; i < array_length(protected); i++)
        if (strcmp(path, protected[i]) == 0 || is_below(path, protected[i]))
            return refuse(error, "vm_path %s is protected", path);
    return STATUS_OK;
}

static enum status_code check_host_path(const struct config *config, const char *path,
                                        struct error *error)
{
    const struct config_list *prefixes = &config->drives.host_prefixes;
    enum status_code code = check_path("host_path", path, error);

    if (code != STATUS_OK)
        return code;
    for (unsigned i = 0; i < prefixes->count; i++)
        if (is_below(path, prefixes->item[i]))
            return STATUS_OK;
    return (enum status_code)error_set(error, STATUS_PERMISSION_DENIED,
                                       "host_path %s is below no directory of drives.host_prefixes",
                                       path);
}

/* ---- options ---- */

/* Commas separate options; a value may have some, as an SELinux label has. */
static bool is_one_option(const char *option)
{
    return option[strcspn(option, "=,")] != ',';
}

/* The error names the option, but never its value. */
static enum status_code check_option(const char *option, bool writable, struct error *error)
{
    size_t length = option ? strlen(option) : 0;

    if (length == 0 || length > DRIVE_OPTION_CHARS || !is_one_option(option) ||
        !json_is_text(option, length))
        return refuse(
            error,
            "an option is empty, longer than %d bytes, has a comma in its name, or is not UTF-8",
            DRIVE_OPTION_CHARS);
    if (option[secret_shown_length(option)])
        return refuse(error,
                      "option %.*s carries a secret, which the database would keep: give it to the "
                      "guest by other means",
                      (int)strcspn(option, "="), option);
    if (strcmp(option, writable ? "ro" : "rw") == 0)
        return refuse(error, "option %s contradicts a drive that is %s", option,
                      writable ? "writable" : "read-only");
    return STATUS_OK;
}

static enum status_code check_options(const struct reconciler_drive_attach *attach,
                                      struct error *error)
{
    enum status_code code = STATUS_OK;

    if (attach->options > DRIVE_OPTIONS)
        return refuse(error, "more than %d options", DRIVE_OPTIONS);
    for (unsigned i = 0; code == STATUS_OK && i < attach->options; i++)
        code = check_option(attach->option[i], attach->writable, error);
    return code;
}

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

/* ---- containers ---- */

/* What the guest would find malformed. Where the paths lead is found out there. */
static enum status_code check_container(const struct reconciler_drive_container *container,
                                        struct error *error)
{
    const char *sub_path = container->sub_path;
    char whole[DRIVE_PATH_CHARS + 2];
    enum status_code code = check_path("a container's path", container->path, error);

    if (!is_of(container->container_id, WORD "._-", DRIVE_CONTAINER_ID_CHARS))
        return refuse(error, "container_id is missing, or is not 1 to %d of A-Z a-z 0-9 . _ -",
                      DRIVE_CONTAINER_ID_CHARS);
    if (code != STATUS_OK || !sub_path[0])
        return code;
    if (strlen(sub_path) > DRIVE_PATH_CHARS - 1)
        return refuse(error, "sub_path is longer than %d bytes", DRIVE_PATH_CHARS - 1);
    (void)snprintf(whole, sizeof(whole), "/%s", sub_path);
    return check_path("/ and sub_path", whole, error);
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

static enum status_code check_bucket(const char *name, const struct drive_bucket *bucket,
                                     struct error *error)
{
    if (bucket->size > INT64_MAX || bucket->refill_ms > INT64_MAX ||
        bucket->one_time_burst > INT64_MAX)
        return refuse(error, "the limit of %s is too large", name);
    if (bucket->size && !bucket->refill_ms)
        return refuse(error, "the limit of %s has a size and no refill time", name);
    return STATUS_OK;
}

enum status_code drive_request_check_limits(enum hypervisor_kind kind,
                                            const struct drive_limits *limits, struct error *error)
{
    enum status_code code = check_bucket("bandwidth", &limits->bandwidth, error);

    if (code == STATUS_OK)
        code = check_bucket("operations", &limits->operations, error);
    if (code == STATUS_OK && kind == HYPERVISOR_QEMU &&
        (limits->bandwidth.one_time_burst || limits->operations.one_time_burst))
        code = refuse(error, "%s has no one-time burst", hypervisor_title(kind));
    return code;
}

/* ---- all of it ---- */

static enum status_code check_fields(const struct config *config,
                                     const struct reconciler_drive_attach *attach,
                                     struct error *error)
{
    enum status_code code = drive_request_check_id(attach->drive_id, error);

    if (code == STATUS_OK && (!attach->sandbox_id || !observe_is_sandbox_id(attach->sandbox_id)))
        code = refuse(error, "sandbox_id is missing, or is none");
    if (code == STATUS_OK)
        code = check_vm_path(attach->vm_path, error);
    if (code == STATUS_OK && !is_of(attach->fs_type, WORD "._-", DRIVE_FS_TYPE_CHARS))
        code = refuse(error, "the file system type is missing, or is no name");
    if (code == STATUS_OK)
        code = check_options(attach, error);
    if (code == STATUS_OK &&
        (attach->fsck >= DRIVE_FSCKS || attach->fs_group_policy >= DRIVE_GROUP_POLICIES))
        code = refuse(error, "fsck or the group's policy has no such value");
    if (code == STATUS_OK && attach->has_fs_group && attach->fs_group == UINT32_MAX)
        code = refuse(error, "fs_group is no group");
    if (code == STATUS_OK)
        code = check_host_path(config, attach->host_path, error);
    if (code == STATUS_OK && attach->containers > DRIVE_CONTAINERS)
        code = refuse(error, "more than %d containers", DRIVE_CONTAINERS);
    for (unsigned i = 0; code == STATUS_OK && i < attach->containers; i++)
        code = check_container(&attach->container[i], error);
    return code;
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
           a->fs_group_policy == b->fs_group_policy &&
           drive_limits_are_equal(&a->limits, &b->limits);
}
