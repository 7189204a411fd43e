/* SPDX-License-Identifier: Apache-2.0 */
/* drive_commands.h - the calls of drive_form.h as a test of an API sees them: what was asked is
 * kept as text, and answered when the test says so. */
#pragma once

#include "tests/unit/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "reconciler/command/drive_form.h"

struct drive_wait {
    reconciler_drive_done *done;
    void *userdata;
};

static struct {
    char asked[16 * 1024]; /* "attach d1 s1 …" */
    enum status_code code; /* of the next calls; not STATUS_OK: refused, "this is why" */
    struct drive_wait *wait;
    unsigned cancelled;
    unsigned count; /* how many drives there are */
} drives;

static inline struct reconciler_drive drive_for_test(void)
{
    return (struct reconciler_drive){.drive_id = "data-1",
                                     .sandbox_id = "sandbox-1",
                                     .host_path = "/dev/vg/data",
                                     .vm_path = "/mnt/data",
                                     .fs_type = "ext4",
                                     .options = "[\"noatime\",\"data=ordered\"]",
                                     .containers = "[{\"container_id\":\"c1\",\"path\":\"/in\","
                                                   "\"sub_path\":\"a/b\",\"read_only\":true}]",
                                     .writable = true,
                                     .limits = {.bandwidth = {1048576, 100, 4096}},
                                     .serial = "crust-abcdefghijklmn",
                                     .guest_device = "sdb",
                                     .size_bytes = 67108864,
                                     .wanted = true,
                                     .state = DRIVE_READY,
                                     .message = "one_time_burst is not kept"};
}

static inline void drives_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline void drives_say(const char *format, ...)
{
    const size_t length = strlen(drives.asked);
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(drives.asked + length, sizeof(drives.asked) - length, format, arguments);
    va_end(arguments);
}

static inline void drives_say_bucket(const char *name, const struct drive_bucket *bucket)
{
    drives_say(" %s=%" PRIu64 "/%" PRIu64 "/%" PRIu64, name, bucket->size, bucket->refill_ms,
               bucket->one_time_burst);
}

static inline enum status_code drives_wait(reconciler_drive_done *done, void *userdata,
                                           struct drive_wait **ret_wait, struct error *error)
{
    if (drives.code != STATUS_OK)
        return (enum status_code)error_set(error, (int)drives.code, "this is why");
    drives.wait = calloc(1, sizeof(*drives.wait));
    *drives.wait = (struct drive_wait){done, userdata};
    *ret_wait = drives.wait;
    return STATUS_OK;
}

/* Answers the call that waits. */
static inline void drives_end(enum status_code code, const char *text)
{
    const struct reconciler_drive drive = drive_for_test();
    const struct drive_wait one = *drives.wait;
    struct error error;

    free(drives.wait);
    drives.wait = NULL;
    (void)error_set(&error, 0, "%s", text);
    one.done(one.userdata, code, &drive, &error);
}

enum status_code reconciler_attach_drive(struct reconciler *reconciler,
                                         const struct reconciler_drive_attach *attach,
                                         reconciler_drive_done *done, void *userdata,
                                         struct drive_wait **ret_wait, struct error *error)
{
    drives.asked[0] = '\0';
    drives_say("attach %s %s %s %s %s", attach->drive_id, attach->sandbox_id, attach->host_path,
               attach->vm_path, attach->fs_type);
    for (unsigned i = 0; i < attach->options; i++)
        drives_say(" -o%s", attach->option[i]);
    drives_say("%s %s", attach->writable ? " writable" : "", drive_fsck_name(attach->fsck));
    if (attach->has_fs_group)
        drives_say(" group=%u", attach->fs_group);
    drives_say(" %s", drive_group_policy_name(attach->fs_group_policy));
    drives_say_bucket("bandwidth", &attach->limits.bandwidth);
    drives_say_bucket("ops", &attach->limits.operations);
    for (unsigned i = 0; i < attach->containers; i++)
        drives_say(" %s:%s:%s%s", attach->container[i].container_id, attach->container[i].path,
                   attach->container[i].sub_path, attach->container[i].read_only ? ":ro" : "");
    return drives_wait(done, userdata, ret_wait, error);
}

enum status_code reconciler_detach_drive(struct reconciler *reconciler, const char *drive_id,
                                         reconciler_drive_done *done, void *userdata,
                                         struct drive_wait **ret_wait, struct error *error)
{
    drives.asked[0] = '\0';
    drives_say("detach %s", drive_id);
    return drives_wait(done, userdata, ret_wait, error);
}

enum status_code reconciler_limit_drive(struct reconciler *reconciler, const char *drive_id,
                                        const struct drive_limits *limits,
                                        reconciler_drive_done *done, void *userdata,
                                        struct drive_wait **ret_wait, struct error *error)
{
    drives.asked[0] = '\0';
    drives_say("limit %s", drive_id);
    drives_say_bucket("bandwidth", &limits->bandwidth);
    drives_say_bucket("ops", &limits->operations);
    return drives_wait(done, userdata, ret_wait, error);
}

struct drive_wait *reconciler_drive_cancel(struct drive_wait *wait)
{
    assert_ptr_equal(wait, drives.wait);
    drives.cancelled++;
    free(wait);
    drives.wait = NULL;
    return NULL;
}

enum status_code reconciler_each_drive(struct reconciler *reconciler, const char *sandbox_id,
                                       reconciler_drive_callback *callback, void *userdata,
                                       struct error *error)
{
    const struct reconciler_drive drive = drive_for_test();

    drives.asked[0] = '\0';
    drives_say("each %s", sandbox_id ? sandbox_id : "of all");
    if (drives.code != STATUS_OK)
        return (enum status_code)error_set(error, (int)drives.code, "this is why");
    for (unsigned i = 0; i < drives.count; i++)
        if (callback(userdata, &drive) != 0)
            break;
    return STATUS_OK;
}

enum status_code reconciler_get_drive(struct reconciler *reconciler, const char *drive_id,
                                      reconciler_drive_callback *callback, void *userdata,
                                      struct error *error)
{
    enum status_code code;

    drives.count = 1;
    code = reconciler_each_drive(reconciler, drive_id, callback, userdata, error);
    drives.asked[0] = '\0';
    drives_say("get %s", drive_id);
    return code;
}
