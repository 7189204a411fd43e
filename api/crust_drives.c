/* SPDX-License-Identifier: Apache-2.0 */
/* crust_drives.c - crust.drive.v1: turns a client's requests into the core's commands about drives.
 *
 * What a call began goes on when its client gives up: the request is on record, and the same call
 * again joins it.
 */
#include <stdlib.h>

#include "api/crust_calls.h"
#include "api/drive_asked.h"
#include "lib/cleanup.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/drive_form.h"

enum {
    DRIVE_BYTES = 16 * 1024,    /* more than the longest drive */
    DRIVES_BYTES = 1024 * 1024, /* of one list */
};

/* ---- replies ---- */

static void cancel_wait(void *wait)
{
    (void)reconciler_drive_cancel(wait);
}

static void reply_drive(struct grpc_call *call, const struct reconciler_drive *drive)
{
    cleanup(buffer_done) struct buffer packed = BUFFER_INIT(DRIVE_BYTES);

    if (drive_message_append(&packed, drive) < 0)
        grpc_call_fail(call, answer_code(ANSWER_OUT_OF_MEMORY), "out of memory");
    else
        grpc_call_reply_packed(call, packed.data, packed.length);
}

static void on_drive(void *userdata, enum status_code code, const struct reconciler_drive *drive,
                     const struct error *error)
{
    if (code == STATUS_OK)
        reply_drive(userdata, drive);
    else
        grpc_call_fail(userdata, code, "%s", error->text);
}

static void on_detached(void *userdata, enum status_code code, const struct reconciler_drive *drive,
                        const struct error *error)
{
    const Crust__Drive__V1__DetachDriveResponse response =
        CRUST__DRIVE__V1__DETACH_DRIVE_RESPONSE__INIT;

    (void)drive;
    if (code == STATUS_OK)
        grpc_call_reply(userdata, &response.base);
    else
        grpc_call_fail(userdata, code, "%s", error->text);
}

/* ---- calls that wait ---- */

static enum status_code new_asked(enum drive_asked_call call, struct drive_asked **ret_asked,
                                  struct error *error)
{
    *ret_asked = drive_asked_new(call);
    return *ret_asked ? STATUS_OK : answer_refuse(error, ANSWER_OUT_OF_MEMORY, "out of memory");
}

static void attach(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__Drive__V1__AttachDriveRequest *request =
        (const Crust__Drive__V1__AttachDriveRequest *)(const void *)message;
    cleanup(freep) struct drive_asked *asked = NULL;
    struct drive_wait *wait = NULL;
    struct error error = {0};
    enum status_code code = new_asked(DRIVE_ASKED_ATTACH, &asked, &error);

    if (code == STATUS_OK)
        code = drive_message_take_attach(request, asked, &error);
    if (code == STATUS_OK)
        code = reconciler_attach_drive(grpc_call_reconciler(call), &asked->attach, on_drive, call,
                                       &wait, &error);
    crust_wait_or_fail(call, code, cancel_wait, wait, &error);
}

/* A call that names a drive and no more. */
static enum status_code take_id(const ProtobufCBinaryData *id, struct drive_asked **ret_asked,
                                struct error *error)
{
    enum status_code code = new_asked(DRIVE_ASKED_DETACH, ret_asked, error);

    if (code == STATUS_OK)
        code =
            drive_asked_take(*ret_asked, &(struct drive_asked_text){"drive_id", id->data, id->len},
                             DRIVE_ID_CHARS, &(*ret_asked)->attach.drive_id, error);
    return code == STATUS_OK ? drive_asked_check(*ret_asked, error) : code;
}

static void detach(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__Drive__V1__DetachDriveRequest *request =
        (const Crust__Drive__V1__DetachDriveRequest *)(const void *)message;
    cleanup(freep) struct drive_asked *asked = NULL;
    struct drive_wait *wait = NULL;
    struct error error = {0};
    enum status_code code = take_id(&request->drive_id, &asked, &error);

    if (code == STATUS_OK)
        code = reconciler_detach_drive(grpc_call_reconciler(call), asked->attach.drive_id,
                                       on_detached, call, &wait, &error);
    crust_wait_or_fail(call, code, cancel_wait, wait, &error);
}

static void update_limits(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__Drive__V1__UpdateDriveLimitsRequest *request =
        (const Crust__Drive__V1__UpdateDriveLimitsRequest *)(const void *)message;
    cleanup(freep) struct drive_asked *asked = NULL;
    struct drive_wait *wait = NULL;
    struct error error = {0};
    enum status_code code = new_asked(DRIVE_ASKED_LIMITS, &asked, &error);

    if (code == STATUS_OK)
        code = drive_message_take_limits(request, asked, &error);
    if (code == STATUS_OK)
        code = reconciler_limit_drive(grpc_call_reconciler(call), asked->attach.drive_id,
                                      &asked->attach.limits, on_drive, call, &wait, &error);
    crust_wait_or_fail(call, code, cancel_wait, wait, &error);
}

/* ---- calls that are answered at once ---- */

static int pack_drive(void *bytes, const struct reconciler_drive *drive)
{
    return buffer_fail(bytes, drive_message_append(bytes, drive));
}

/* What the walk packed, or why there is nothing to send. */
static void reply_packed(struct grpc_call *call, enum status_code code, const struct buffer *packed,
                         const struct error *error)
{
    const int result = buffer_error(packed);

    if (code != STATUS_OK)
        grpc_call_fail(call, code, "%s", error->text);
    else if (result == BUFFER_FULL)
        grpc_call_fail(call, STATUS_RESOURCE_EXHAUSTED,
                       "more drives than one reply holds: name a sandbox");
    else if (result < 0)
        grpc_call_fail(call, answer_code(ANSWER_OUT_OF_MEMORY), "out of memory");
    else
        grpc_call_reply_packed(call, packed->data, packed->length);
}

static void get(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__Drive__V1__GetDriveRequest *request =
        (const Crust__Drive__V1__GetDriveRequest *)(const void *)message;
    cleanup(buffer_done) struct buffer packed = BUFFER_INIT(DRIVE_BYTES);
    cleanup(freep) struct drive_asked *asked = NULL;
    struct error error = {0};
    enum status_code code = take_id(&request->drive_id, &asked, &error);

    if (code == STATUS_OK)
        code = reconciler_get_drive(grpc_call_reconciler(call), asked->attach.drive_id, pack_drive,
                                    &packed, &error);
    reply_packed(call, code, &packed, &error);
}

static void list(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__Drive__V1__ListDrivesRequest *request =
        (const Crust__Drive__V1__ListDrivesRequest *)(const void *)message;
    cleanup(buffer_done) struct buffer packed = BUFFER_INIT(DRIVES_BYTES);
    char sandbox_id[DRIVE_FORM_SANDBOX_CHARS + 1];
    struct error error = {0};
    enum status_code code =
        crust_take_text(&request->sandbox_id, "sandbox_id", sandbox_id, sizeof(sandbox_id), &error);

    if (code == STATUS_OK)
        code = reconciler_each_drive(grpc_call_reconciler(call), *sandbox_id ? sandbox_id : NULL,
                                     pack_drive, &packed, &error);
    reply_packed(call, code, &packed, &error);
}

const struct grpc_method crust_drives_methods[] = {
    {"/crust.drive.v1.Drives/AttachDrive", &crust__drive__v1__attach_drive_request__descriptor,
     attach},
    {"/crust.drive.v1.Drives/DetachDrive", &crust__drive__v1__detach_drive_request__descriptor,
     detach},
    {"/crust.drive.v1.Drives/UpdateDriveLimits",
     &crust__drive__v1__update_drive_limits_request__descriptor, update_limits},
    {"/crust.drive.v1.Drives/GetDrive", &crust__drive__v1__get_drive_request__descriptor, get},
    {"/crust.drive.v1.Drives/ListDrives", &crust__drive__v1__list_drives_request__descriptor, list},
    {NULL, NULL, NULL},
};
