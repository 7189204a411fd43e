/* SPDX-License-Identifier: Apache-2.0 */
/* drive_asked_fuzz.c - requests about drives in both of their forms. The first byte chooses which;
 * what follows is JSON (before it, for a call that names its drive in the path, that path's rest
 * and a newline), or a message of crust.drive.v1. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/call.h"
#include "lib/proto.h"
#include "lib/text.h"
#include "reconciler/command/drive_form.h"

#define ATTACH (&crust__drive__v1__attach_drive_request__descriptor)
#define LIMITS (&crust__drive__v1__update_drive_limits_request__descriptor)

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

/* What the check lets pass keeps its promises to the core. */
static void check(const ProtobufCMessage *message)
{
    struct crust_attach asked;
    struct error error;

    if (message->descriptor != &crust__drive__v1__attach_drive_request__descriptor)
        return;
    crust_read_attach((const void *)message, &asked);
    if (drive_form_check(&asked.attach, &error) != STATUS_OK)
        return;
    must(*asked.attach.drive_id && strlen(asked.attach.drive_id) <= DRIVE_ID_CHARS);
    check_bucket(&asked.attach.limits.bandwidth);
    check_bucket(&asked.attach.limits.operations);
    check_attach(&asked.attach);
}

static void read_json(const ProtobufCMessageDescriptor *type, bool has_id, const uint8_t *data,
                      size_t size)
{
    const uint8_t *newline = has_id ? memchr(data, '\n', size) : NULL;
    struct message_source source = {
        .is_optional = has_id, .body = (const char *)data, .body_length = size};
    ProtobufCMessage *message = NULL;
    struct error error = {0};

    if (has_id && (!newline || memchr(data, '\0', (size_t)(newline - data))))
        return;
    if (newline) {
        source.id = (const char *)data;
        source.id_length = (size_t)(newline - data);
        source.body = (const char *)newline + 1;
        source.body_length = size - source.id_length - 1;
    }
    if (message_read_json(type, &source, &message, &error) == STATUS_OK)
        check(message);
    (void)proto_free(message);
}

static void read_message(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size)
{
    ProtobufCMessage *message = NULL;
    struct error error;

    if (proto_unpack(type, data, size, &message) == 0 &&
        message_check(message, &error) == STATUS_OK)
        check(message);
    (void)proto_free(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    switch (*data++ % 5) {
    case 0:
        read_json(ATTACH, false, data, size - 1);
        break;
    case 1:
        read_json(&crust__drive__v1__detach_drive_request__descriptor, true, data, size - 1);
        break;
    case 2:
        read_json(LIMITS, true, data, size - 1);
        break;
    case 3:
        read_message(ATTACH, data, size - 1);
        break;
    default:
        read_message(LIMITS, data, size - 1);
        break;
    }
    return 0;
}
