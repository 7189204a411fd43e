/* SPDX-License-Identifier: Apache-2.0 */
/* drive_asked_fuzz.c - requests about drives in both of their forms. The first byte chooses which;
 * what follows is JSON (before it, for a call that names its drive in the path, that path's rest
 * and a newline), or a message of crust.drive.v1. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/drive_asked.h"
#include "api/http_asked.h"
#include "lib/proto.h"
#include "lib/secret.h"
#include "reconciler/command/drive_form.h"

enum { PATH_BYTES = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

static void check_bucket(const struct drive_bucket *bucket)
{
    must(bucket->size <= INT64_MAX && bucket->refill_ms <= INT64_MAX &&
         bucket->one_time_burst <= INT64_MAX);
    must(bucket->size > 0 ? bucket->refill_ms > 0 : bucket->one_time_burst == 0);
}

static void check_path(const char *path)
{
    must(path[0] == '/' && path[1] && strlen(path) <= DRIVE_PATH_CHARS);
    must(!strstr(path, "//") && !strstr(path, "/../") && !strstr(path, "/./"));
}

static void check_attach(const struct reconciler_drive_attach *attach)
{
    must(*attach->sandbox_id && strlen(attach->sandbox_id) <= DRIVE_FORM_SANDBOX_CHARS);
    must(*attach->fs_type && strlen(attach->fs_type) <= DRIVE_FS_TYPE_CHARS);
    check_path(attach->host_path);
    check_path(attach->vm_path);
    must(attach->fsck < DRIVE_FSCKS && attach->fs_group_policy < DRIVE_GROUP_POLICIES);
    must(attach->options <= DRIVE_OPTIONS && attach->containers <= DRIVE_CONTAINERS);
    for (unsigned i = 0; i < attach->options; i++) {
        const char *option = attach->option[i];

        must(*option && strlen(option) <= DRIVE_OPTION_CHARS);
        must(secret_shown_length(option) == strlen(option));
        must(strcmp(option, attach->writable ? "ro" : "rw") != 0);
    }
    for (unsigned i = 0; i < attach->containers; i++) {
        check_path(attach->container[i].path);
        must(strlen(attach->container[i].container_id) <= DRIVE_CONTAINER_ID_CHARS);
        must(attach->container[i].sub_path[0] != '/');
    }
}

/* What was understood keeps its promises to the core. */
static void check(const struct drive_asked *asked)
{
    const struct reconciler_drive_attach *attach = &asked->attach;

    must(*attach->drive_id && strlen(attach->drive_id) <= DRIVE_ID_CHARS);
    check_bucket(&attach->limits.bandwidth);
    check_bucket(&attach->limits.operations);
    if (asked->call == DRIVE_ASKED_ATTACH)
        check_attach(attach);
}

static void read_json(http_asked_read *read, const char *end, const uint8_t *data, size_t size)
{
    const uint8_t *newline = end ? memchr(data, '\n', size) : NULL;
    const size_t id = newline && newline - data < PATH_BYTES / 2 ? (size_t)(newline - data) : 0;
    char path[PATH_BYTES] = "/v1/drives/";
    struct http_asked asked = {0};
    struct error error = {0};
    struct http_question question;

    if (end && (!newline || memchr(data, '\0', (size_t)(newline - data))))
        return;
    memcpy(path + strlen(path), data, id);
    if (end)
        (void)strcat(path, end);
    if (newline) {
        size -= (size_t)(newline + 1 - data);
        data = newline + 1;
    }
    question = (struct http_question){path, NULL, (const char *)data, size};
    if (read(&question, &asked, &error) == STATUS_OK)
        check(asked.drive);
    http_asked_done(&asked);
}

static void read_attach(const uint8_t *data, size_t size)
{
    struct drive_asked *asked = drive_asked_new(DRIVE_ASKED_ATTACH);
    ProtobufCMessage *message = NULL;
    struct error error;

    must(asked != NULL);
    if (proto_unpack(&crust__drive__v1__attach_drive_request__descriptor, data, size, &message) ==
            0 &&
        drive_message_take_attach((const void *)message, asked, &error) == STATUS_OK)
        check(asked);
    (void)proto_free(message);
    free(asked);
}

static void read_limits(const uint8_t *data, size_t size)
{
    struct drive_asked *asked = drive_asked_new(DRIVE_ASKED_LIMITS);
    ProtobufCMessage *message = NULL;
    struct error error;

    must(asked != NULL);
    if (proto_unpack(&crust__drive__v1__update_drive_limits_request__descriptor, data, size,
                     &message) == 0 &&
        drive_message_take_limits((const void *)message, asked, &error) == STATUS_OK)
        check(asked);
    (void)proto_free(message);
    free(asked);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    switch (*data++ % 5) {
    case 0:
        read_json(http_asked_drive_attach, NULL, data, size - 1);
        break;
    case 1:
        read_json(http_asked_drive_detach, "/detach", data, size - 1);
        break;
    case 2:
        read_json(http_asked_drive_limits, "/limits", data, size - 1);
        break;
    case 3:
        read_attach(data, size - 1);
        break;
    default:
        read_limits(data, size - 1);
        break;
    }
    return 0;
}
