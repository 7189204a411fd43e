/* SPDX-License-Identifier: Apache-2.0 */
/* guest_line.c - see guest_line.h. */
#include "reconciler/drive/guest_line.h"

#include <errno.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"

enum { VERSION = 1, LINE_BYTES = 4096, SHOWN_BYTES = 200 };

static enum status_code find_status(const char *name)
{
    static const enum status_code known[] = {
        STATUS_OK,          STATUS_INVALID_ARGUMENT,    STATUS_ALREADY_EXISTS,
        STATUS_UNAVAILABLE, STATUS_FAILED_PRECONDITION,
    };

    for (size_t i = 0; i < array_length(known); i++) {
        if (strcmp(status_name((int)known[i]), name) == 0)
            return known[i];
    }
    return STATUS_INTERNAL;
}

static void read_walk(const cJSON *drive, struct drive_walk_count *walk)
{
    (void)json_number(drive, "changed", &walk->changed);
    (void)json_number(drive, "skipped", &walk->skipped);
    (void)json_number(drive, "failed", &walk->failed);
}

/* The name becomes a part of a path in the guest, so it must not contain one. */
static bool is_device(const char *name)
{
    return strlen(name) < DRIVE_DEVICE_BYTES && !strchr(name, '/') && name[0] != '.';
}

static const char *find_reason(const cJSON *drive, const char *status)
{
    const char *text = json_text(drive, "text");

    if (*text)
        return text;
    return *status ? status : "without a reason";
}

int drive_guest_line_parse(const char *text, size_t length, struct drive_guest_line *ret_line,
                           struct error *error)
{
    static const struct json_limits limits = {LINE_BYTES, 3, 32};
    cleanup(json_deletep) cJSON *object = NULL;
    struct drive_guest_line line = {0};
    const cJSON *drive;
    const char *status, *device;
    char shown[SHOWN_BYTES];
    uint64_t version = 0;

    if (json_parse(text, length, limits, &object, error) < 0)
        return error_prefix(error, "the helper's line: "), -EBADMSG;
    drive = json_member(object, "drive");
    status = json_string(drive, "status");
    device = json_text(drive, "device");
    if (json_number(object, "version", &version) != JSON_NUMBER || version != VERSION || !status ||
        !is_device(device))
        return error_set(error, -EBADMSG, "the helper's line is malformed");
    line.status = find_status(status);
    line.is_mounted = cJSON_IsTrue(json_member(drive, "mounted"));
    read_walk(drive, &line.walk);
    (void)strcpy(line.device, device);
    if (line.status != STATUS_OK) {
        const char *why = find_reason(drive, status);

        text_clean(why, strlen(why), shown, sizeof(shown));
        (void)error_set(&line.error, (int)line.status, "%s", shown);
    }
    *ret_line = line;
    return 0;
}
