/* SPDX-License-Identifier: Apache-2.0 */
/* drive_asked.c - bounds and forms of the fields.
 *
 * Paths are taken in one form only, because equal requests are told by equal texts: a path that may
 * be written in two ways could be mounted twice.
 */
#include "api/drive_asked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/secret.h"
#include "reconciler/command/answers.h"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

#define REFUSE(error, ...) answer_refuse((error), ANSWER_BAD_REQUEST, __VA_ARGS__)

/* ---- taking ---- */

struct drive_asked *drive_asked_new(enum drive_asked_call call)
{
    struct drive_asked *asked = calloc(1, sizeof(*asked));

    if (!asked)
        return NULL;
    asked->call = call;
    asked->attach = (struct reconciler_drive_attach){.drive_id = "",
                                                     .sandbox_id = "",
                                                     .host_path = "",
                                                     .vm_path = "",
                                                     .fs_type = "",
                                                     .option = asked->option,
                                                     .container = asked->container};
    return asked;
}

enum status_code drive_asked_take(struct drive_asked *asked, const struct drive_asked_text *text,
                                  size_t limit, const char **ret_text, struct error *error)
{
    char *copy = asked->texts + asked->used;

    if (text->length > limit || text->length >= sizeof(asked->texts) - asked->used)
        return REFUSE(error, "%s is longer than %zu bytes", text->name, limit);
    if (text->length && !json_is_text(text->bytes, text->length))
        return REFUSE(error, "%s is not UTF-8, or has a NUL", text->name);
    if (text->length) /* an empty member may have no bytes at all */
        memcpy(copy, text->bytes, text->length);
    copy[text->length] = '\0';
    asked->used += text->length + 1;
    *ret_text = copy;
    return STATUS_OK;
}

enum status_code drive_asked_add_option(struct drive_asked *asked, const void *bytes, size_t length,
                                        struct error *error)
{
    const unsigned i = asked->attach.options;
    char name[DRIVE_ASKED_NAME_BYTES];
    enum status_code code;

    if (i == DRIVE_OPTIONS)
        return REFUSE(error, "there are more than %d options", DRIVE_OPTIONS);
    (void)snprintf(name, sizeof(name), "options[%u]", i);
    code = drive_asked_take(asked, &(struct drive_asked_text){name, bytes, length},
                            DRIVE_OPTION_CHARS, &asked->option[i], error);
    asked->attach.options += code == STATUS_OK;
    return code;
}

struct reconciler_drive_container *
drive_asked_add_container(struct drive_asked *asked, char ret_name[static DRIVE_ASKED_NAME_BYTES],
                          struct error *error)
{
    const unsigned i = asked->attach.containers;

    if (i == DRIVE_CONTAINERS) {
        (void)REFUSE(error, "there are more than %d containers", DRIVE_CONTAINERS);
        return NULL;
    }
    (void)snprintf(ret_name, DRIVE_ASKED_NAME_BYTES, "containers[%u]", i);
    asked->container[i] =
        (struct reconciler_drive_container){.container_id = "", .path = "", .sub_path = ""};
    asked->attach.containers++;
    return &asked->container[i];
}

/* ---- forms ---- */

static bool is_made_of(const char *text, const char *letters, size_t limit)
{
    const size_t length = strspn(text, letters);

    return length > 0 && length <= limit && !text[length];
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
    return path[0] == '/' && has_plain_parts(path + 1);
}

/* By name only; the guest has the last word, by what is there. */
static bool is_protected(const char *vm_path)
{
    static const char *const places[] = {"/proc", "/sys", "/dev", "/run/kata-containers",
                                         "/var/run/kata-containers"};

    for (size_t i = 0; i < array_length(places); i++) {
        const size_t length = strlen(places[i]);

        if (strncmp(vm_path, places[i], length) == 0 &&
            (vm_path[length] == '/' || !vm_path[length]))
            return true;
    }
    return false;
}

static enum status_code refuse_form(struct error *error, const char *name, const char *text,
                                    const char *form)
{
    return *text ? REFUSE(error, "%s is not %s", name, form) : REFUSE(error, "%s is missing", name);
}

/* ---- checks ---- */

static enum status_code check_names(const struct reconciler_drive_attach *attach,
                                    struct error *error)
{
    if (!is_made_of(attach->sandbox_id, LETTERS "._-", DRIVE_ASKED_SANDBOX_CHARS))
        return refuse_form(error, "sandbox_id", attach->sandbox_id, "made of [A-Za-z0-9._-]");
    if (!is_made_of(attach->fs_type, LETTERS "._-", DRIVE_FS_TYPE_CHARS))
        return refuse_form(error, "filesystem_type", attach->fs_type, "made of [A-Za-z0-9._-]");
    if (!is_absolute(attach->host_path))
        return refuse_form(error, "host_path", attach->host_path,
                           "an absolute path without empty, \".\" or \"..\" parts");
    if (!is_absolute(attach->vm_path))
        return refuse_form(error, "vm_path", attach->vm_path,
                           "an absolute path without empty, \".\" or \"..\" parts");
    if (is_protected(attach->vm_path))
        return REFUSE(
            error, "vm_path is protected: it lies in /proc, /sys, /dev or kata-agent's directory");
    if (attach->has_fs_group && attach->fs_group == UINT32_MAX) /* "no group" to chown(2) */
        return REFUSE(error, "fs_group is no group");
    return STATUS_OK;
}

/* A value may have commas, as a SELinux context has. */
static bool is_one_option(const char *text)
{
    const size_t name = strcspn(text, "=,");

    if (text[name] == ',')
        return false;
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

static enum status_code check_option(const struct reconciler_drive_attach *attach, unsigned i,
                                     struct error *error)
{
    const char *option = attach->option[i];

    if (!*option)
        return REFUSE(error, "options[%u] is empty", i);
    if (secret_shown_length(option) < strlen(option))
        return REFUSE(
            error, "options[%u] carries a secret, which would stay in the guest and on record", i);
    if (!is_one_option(option))
        return REFUSE(error, "options[%u] is no single option", i);
    if (strcmp(option, "ro") == 0 && attach->writable)
        return REFUSE(error, "options[%u] is \"ro\", which contradicts is_writable", i);
    if (strcmp(option, "rw") == 0 && !attach->writable)
        return REFUSE(error, "options[%u] is \"rw\", which needs is_writable", i);
    return STATUS_OK;
}

static enum status_code check_options(const struct reconciler_drive_attach *attach,
                                      struct error *error)
{
    enum status_code code = STATUS_OK;

    for (unsigned i = 0; code == STATUS_OK && i < attach->options; i++)
        code = check_option(attach, i, error);
    return code;
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

static enum status_code check_limits(const struct drive_limits *limits, struct error *error)
{
    const enum status_code code = check_bucket(&limits->bandwidth, "bandwidth", error);

    return code == STATUS_OK ? check_bucket(&limits->operations, "ops", error) : code;
}

static bool has_same_place(const struct reconciler_drive_container *one,
                           const struct reconciler_drive_container *other)
{
    return strcmp(one->container_id, other->container_id) == 0 &&
           strcmp(one->path, other->path) == 0;
}

static enum status_code check_container(const struct reconciler_drive_attach *attach, unsigned i,
                                        struct error *error)
{
    const struct reconciler_drive_container *one = &attach->container[i];

    if (!is_made_of(one->container_id, LETTERS "._-", DRIVE_CONTAINER_ID_CHARS))
        return REFUSE(error,
                      "containers[%u].container_id is missing, or not made of [A-Za-z0-9._-]", i);
    if (!is_absolute(one->path))
        return REFUSE(error, "containers[%u].path is missing, or not an absolute path", i);
    if (is_protected(one->path))
        return REFUSE(error,
                      "containers[%u].path lies in /proc, /sys, /dev or kata-agent's directory", i);
    if (*one->sub_path && (one->sub_path[0] == '/' || !has_plain_parts(one->sub_path)))
        return REFUSE(error, "containers[%u].sub_path is not a path within the drive", i);
    for (unsigned j = 0; j < i; j++)
        if (has_same_place(one, &attach->container[j]))
            return REFUSE(error, "containers[%u] and containers[%u] have the same place", j, i);
    return STATUS_OK;
}

static enum status_code check_attach(const struct reconciler_drive_attach *attach,
                                     struct error *error)
{
    enum status_code code = check_names(attach, error);

    if (code == STATUS_OK)
        code = check_options(attach, error);
    for (unsigned i = 0; code == STATUS_OK && i < attach->containers; i++)
        code = check_container(attach, i, error);
    return code;
}

enum status_code drive_asked_check(const struct drive_asked *asked, struct error *error)
{
    const struct reconciler_drive_attach *attach = &asked->attach;
    enum status_code code = STATUS_OK;

    if (!is_made_of(attach->drive_id, LETTERS "_-", DRIVE_ID_CHARS))
        return refuse_form(error, "drive_id", attach->drive_id, "made of [A-Za-z0-9_-]");
    if (asked->call == DRIVE_ASKED_ATTACH)
        code = check_attach(attach, error);
    return code == STATUS_OK ? check_limits(&attach->limits, error) : code;
}
