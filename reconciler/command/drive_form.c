/* SPDX-License-Identifier: Apache-2.0 */
/* drive_form.c - bounds and forms of the fields.
 *
 * Paths are taken in one form only, because equal requests are told by equal texts: a path that may
 * be written in two ways could be mounted twice. Protected places are refused by name, because that
 * answers sooner; the guest has the last word, by what is there. Only those in kata-agent's
 * directory are refused for good here: a helper in a container sees which file system a bind leads
 * to, and what the agent shares and mounts there are file systems of their own.
 */
#include "reconciler/command/drive_form.h"

#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"
#include "reconciler/command/answers.h"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

#define REFUSE(error, ...) answer_refuse((error), ANSWER_BAD_REQUEST, __VA_ARGS__)

/* ---- forms ---- */

static bool is_made_of(const char *text, const char *letters, size_t limit)
{
    const size_t length = text ? strspn(text, letters) : 0;

    return length > 0 && length <= limit && !text[length];
}

static bool is_text(const char *text, size_t limit)
{
    const size_t length = strlen(text);

    return length <= limit && (length == 0 || json_is_text(text, length));
}

/* Names with one slash before each, except for the first one of a relative path. */
static bool has_plain_parts(const char *path)
{
    while (true) {
        const size_t length = strcspn(path, "/");

        if (length == 0 || (length == 1 && path[0] == '.') ||
            (length == 2 && strncmp(path, "..", 2) == 0))
            return false;
        if (!path[length])
            return true;
        path += length + 1;
    }
}

/* "/" alone is none: nothing may be mounted over it, and it is no disk. */
static bool is_absolute(const char *path)
{
    return path && path[0] == '/' && has_plain_parts(path + 1);
}

static bool is_protected(const char *path)
{
    static const char *const places[] = {"/proc", "/sys", "/dev", "/run/kata-containers",
                                         "/var/run/kata-containers"};

    for (size_t i = 0; i < array_length(places); i++) {
        const size_t length = strlen(places[i]);

        if (strncmp(path, places[i], length) == 0 && (path[length] == '/' || !path[length]))
            return true;
    }
    return false;
}

/* ---- fields ---- */

static enum status_code refuse_form(struct error *error, const char *name, const char *text,
                                    const char *form)
{
    return text && *text ? REFUSE(error, "%s is not %s", name, form)
                         : REFUSE(error, "%s is missing", name);
}

static enum status_code check_path(const char *name, const char *path, struct error *error)
{
    if (!is_absolute(path))
        return refuse_form(error, name, path,
                           "an absolute path without empty, \".\" or \"..\" parts");
    if (!is_text(path, DRIVE_PATH_CHARS))
        return REFUSE(error, "%s is longer than %d bytes, or not UTF-8", name, DRIVE_PATH_CHARS);
    return STATUS_OK;
}

enum status_code drive_form_check_id(const char *drive_id, struct error *error)
{
    return is_made_of(drive_id, LETTERS "_-", DRIVE_ID_CHARS)
               ? STATUS_OK
               : refuse_form(error, "drive_id", drive_id, "made of [A-Za-z0-9_-]");
}

static enum status_code check_option(const struct reconciler_drive_attach *attach, unsigned i,
                                     struct error *error)
{
    const char *option = attach->option[i];

    if (!option || !*option)
        return REFUSE(error, "options[%u] is empty", i);
    if (!is_text(option, DRIVE_OPTION_CHARS))
        return REFUSE(error, "options[%u] is longer than %d bytes, or not UTF-8", i,
                      DRIVE_OPTION_CHARS);
    if (secret_shown_length(option) < strlen(option))
        return REFUSE(
            error, "options[%u] carries a secret, which would stay in the guest and on record", i);
    if (option[strcspn(option, "=,")] ==
        ',') /* a value may have commas, as a SELinux context has */
        return REFUSE(error, "options[%u] is no single option", i);
    for (const char *at = option; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return REFUSE(error, "options[%u] is no single option", i);
    if (strcmp(option, "ro") == 0 && attach->writable)
        return REFUSE(error, "options[%u] is \"ro\", which contradicts is_writable", i);
    if (strcmp(option, "rw") == 0 && !attach->writable)
        return REFUSE(error, "options[%u] is \"rw\", which needs is_writable", i);
    return STATUS_OK;
}

/* Where the paths lead is found out in the guest. */
static enum status_code check_container(const struct reconciler_drive_attach *attach, unsigned i,
                                        struct error *error)
{
    const struct reconciler_drive_container *one = &attach->container[i];

    if (!is_made_of(one->container_id, LETTERS "._-", DRIVE_CONTAINER_ID_CHARS))
        return REFUSE(error,
                      "containers[%u].container_id is missing, or not made of [A-Za-z0-9._-]", i);
    if (!is_absolute(one->path) || !is_text(one->path, DRIVE_PATH_CHARS))
        return REFUSE(error, "containers[%u].path is missing, or not an absolute path", i);
    if (is_protected(one->path))
        return REFUSE(error,
                      "containers[%u].path lies in /proc, /sys, /dev or kata-agent's directory", i);
    if (!one->sub_path)
        return REFUSE(error, "containers[%u].sub_path is missing", i);
    if (*one->sub_path &&
        (!has_plain_parts(one->sub_path) || !is_text(one->sub_path, DRIVE_PATH_CHARS - 1)))
        return REFUSE(error, "containers[%u].sub_path is not a path within the drive", i);
    for (unsigned j = 0; j < i; j++)
        if (strcmp(one->container_id, attach->container[j].container_id) == 0 &&
            strcmp(one->path, attach->container[j].path) == 0)
            return REFUSE(error, "containers[%u] and containers[%u] have the same place", j, i);
    return STATUS_OK;
}

/* The store's numbers are signed. */
static enum status_code check_bucket(const struct drive_bucket *bucket, const char *name,
                                     struct error *error)
{
    if (bucket->size > INT64_MAX || bucket->refill_ms > INT64_MAX ||
        bucket->one_time_burst > INT64_MAX)
        return REFUSE(error, "rate_limiter.%s has a number that is too large", name);
    if (bucket->size > 0 && bucket->refill_ms == 0)
        return REFUSE(error, "rate_limiter.%s has a size and no refill_time_ms", name);
    if (bucket->size == 0 && (bucket->refill_ms > 0 || bucket->one_time_burst > 0))
        return REFUSE(error, "rate_limiter.%s has no size", name);
    return STATUS_OK;
}

enum status_code drive_form_check_limits(const struct drive_limits *limits, struct error *error)
{
    const enum status_code code = check_bucket(&limits->bandwidth, "bandwidth", error);

    return code == STATUS_OK ? check_bucket(&limits->operations, "ops", error) : code;
}

enum status_code drive_form_check(const struct reconciler_drive_attach *attach, struct error *error)
{
    enum status_code code = drive_form_check_id(attach->drive_id, error);

    if (code != STATUS_OK)
        return code;
    if (!is_made_of(attach->sandbox_id, LETTERS "._-", DRIVE_FORM_SANDBOX_CHARS))
        return refuse_form(error, "sandbox_id", attach->sandbox_id, "made of [A-Za-z0-9._-]");
    if (!is_made_of(attach->fs_type, LETTERS "._-", DRIVE_FS_TYPE_CHARS))
        return refuse_form(error, "filesystem_type", attach->fs_type, "made of [A-Za-z0-9._-]");
    code = check_path("host_path", attach->host_path, error);
    if (code == STATUS_OK)
        code = check_path("vm_path", attach->vm_path, error);
    if (code != STATUS_OK)
        return code;
    if (is_protected(attach->vm_path))
        return REFUSE(
            error, "vm_path is protected: it lies in /proc, /sys, /dev or kata-agent's directory");
    if (attach->fsck >= DRIVE_FSCKS || attach->fs_group_policy >= DRIVE_GROUP_POLICIES)
        return REFUSE(error, "fsck or the group's policy has no such value");
    if (attach->has_fs_group && attach->fs_group == UINT32_MAX) /* "no group" to chown(2) */
        return REFUSE(error, "fs_group must be less than 4294967295");
    if (attach->options > DRIVE_OPTIONS)
        return REFUSE(error, "there are more than %d options", DRIVE_OPTIONS);
    for (unsigned i = 0; code == STATUS_OK && i < attach->options; i++)
        code = check_option(attach, i, error);
    if (code == STATUS_OK && attach->containers > DRIVE_CONTAINERS)
        return REFUSE(error, "there are more than %d containers", DRIVE_CONTAINERS);
    for (unsigned i = 0; code == STATUS_OK && i < attach->containers; i++)
        code = check_container(attach, i, error);
    return code == STATUS_OK ? drive_form_check_limits(&attach->limits, error) : code;
}
