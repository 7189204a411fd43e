/* SPDX-License-Identifier: Apache-2.0 */
/* crust_drives.c - crust.drive.v1: turns a client's requests into the core's commands about drives.
 *
 * What a call began goes on when its client gives up: the request is on record, and the same call
 * again joins it. The core checks what the fields say (drive_form.h).
 */
#include "api/call.h"

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/proto.h"
#include "reconciler/command/answers.h"

typedef Crust__Drive__V1__Container Container;
typedef Crust__Drive__V1__RateLimiter RateLimiter;
typedef Crust__Drive__V1__TokenBucket TokenBucket;
typedef Crust__Drive__V1__Drive Drive;

enum { DRIVES_BYTES = 1024 * 1024 }; /* of one list */

/* ---- requests ---- */

static struct drive_bucket read_bucket(const TokenBucket *bucket)
{
    return bucket
               ? (struct drive_bucket){bucket->size, bucket->refill_time_ms, bucket->one_time_burst}
               : (struct drive_bucket){0};
}

static struct drive_limits read_limits(const RateLimiter *limiter)
{
    return limiter
               ? (struct drive_limits){read_bucket(limiter->bandwidth), read_bucket(limiter->ops)}
               : (struct drive_limits){0};
}

void crust_read_attach(const Crust__Drive__V1__AttachDriveRequest *request,
                       struct crust_attach *ret_attach)
{
    const bool has_group =
        request->group_case == CRUST__DRIVE__V1__ATTACH_DRIVE_REQUEST__GROUP_FS_GROUP;

    /* message_check() has bounded both counts. */
    for (size_t i = 0; i < request->n_options; i++)
        ret_attach->option[i] = message_text(&request->options[i]);
    for (size_t i = 0; i < request->n_containers; i++) {
        const Container *one = request->containers[i];

        ret_attach->container[i] =
            (struct reconciler_drive_container){.container_id = message_text(&one->container_id),
                                                .path = message_text(&one->path),
                                                .sub_path = message_text(&one->sub_path),
                                                .read_only = one->read_only};
    }
    ret_attach->attach = (struct reconciler_drive_attach){
        .drive_id = message_text(&request->drive_id),
        .sandbox_id = message_text(&request->sandbox_id),
        .host_path = message_text(&request->host_path),
        .vm_path = message_text(&request->vm_path),
        .fs_type = message_text(&request->filesystem_type),
        .options = (unsigned)request->n_options,
        .option = ret_attach->option,
        .writable = request->is_writable,
        .fsck = (enum drive_fsck)request->fsck,
        .has_fs_group = has_group,
        .fs_group = has_group ? request->fs_group : 0,
        .fs_group_policy = (enum drive_group_policy)request->fs_group_change_policy,
        .limits = read_limits(request->rate_limiter),
        .containers = (unsigned)request->n_containers,
        .container = ret_attach->container,
    };
}

/* ---- drives ---- */

/* A drive's message with all that it points to. */
struct drive_message {
    Drive drive;
    RateLimiter limiter;
    TokenBucket bandwidth, ops;
    ProtobufCBinaryData options[DRIVE_OPTIONS];
    Container container[DRIVE_CONTAINERS], *containers[DRIVE_CONTAINERS];
    cJSON *option_list, *container_list;
};

static TokenBucket *fill_bucket(TokenBucket *message, const struct drive_bucket *bucket)
{
    crust__drive__v1__token_bucket__init(message);
    message->size = bucket->size;
    message->refill_time_ms = bucket->refill_ms;
    message->one_time_burst = bucket->one_time_burst;
    return bucket->size ? message : NULL;
}

/* The store has them as JSON: an array of texts, and one of objects. */
static void fill_lists(struct drive_message *message, const struct reconciler_drive *drive)
{
    const char *containers = drive->containers ? drive->containers : "[]";
    const cJSON *one;
    size_t count = 0;

    (void)json_parse(drive->options, strlen(drive->options), JSON_LIMITS_HTTP,
                     &message->option_list, NULL);
    (void)json_parse(containers, strlen(containers), JSON_LIMITS_PERSIST, &message->container_list,
                     NULL);
    cJSON_ArrayForEach(one, message->option_list)
    {
        if (cJSON_IsString(one) && count < DRIVE_OPTIONS)
            message->options[count++] = proto_borrow_text(one->valuestring);
    }
    message->drive.n_options = count;
    message->drive.options = message->options;
    count = 0;
    cJSON_ArrayForEach(one, message->container_list)
    {
        Container *container = &message->container[count];

        if (!cJSON_IsObject(one) || count == DRIVE_CONTAINERS)
            break;
        crust__drive__v1__container__init(container);
        container->container_id = proto_borrow_text(json_text(one, "container_id"));
        container->path = proto_borrow_text(json_text(one, "path"));
        container->sub_path = proto_borrow_text(json_text(one, "sub_path"));
        container->read_only = cJSON_IsTrue(json_member(one, "read_only"));
        message->containers[count++] = container;
    }
    message->drive.n_containers = count;
    message->drive.containers = message->containers;
}

static void fill_drive(struct drive_message *ret_message, const struct reconciler_drive *drive)
{
    Drive *message = &ret_message->drive;

    ret_message->option_list = ret_message->container_list = NULL;
    crust__drive__v1__drive__init(message);
    message->drive_id = proto_borrow_text(drive->drive_id);
    message->sandbox_id = proto_borrow_text(drive->sandbox_id);
    message->host_path = proto_borrow_text(drive->host_path);
    message->vm_path = proto_borrow_text(drive->vm_path);
    message->filesystem_type = proto_borrow_text(drive->fs_type);
    message->is_writable = drive->writable;
    crust__drive__v1__rate_limiter__init(&ret_message->limiter);
    ret_message->limiter.bandwidth = fill_bucket(&ret_message->bandwidth, &drive->limits.bandwidth);
    ret_message->limiter.ops = fill_bucket(&ret_message->ops, &drive->limits.operations);
    if (ret_message->limiter.bandwidth || ret_message->limiter.ops)
        message->rate_limiter = &ret_message->limiter;
    message->serial = proto_borrow_text(drive->serial);
    message->guest_device = proto_borrow_text(drive->guest_device);
    message->size_bytes = drive->size_bytes;
    message->is_wanted = drive->wanted;
    message->state = drive->state < DRIVE_STATES
                         ? (Crust__Drive__V1__Drive__State)(drive->state + 1)
                         : CRUST__DRIVE__V1__DRIVE__STATE__UNKNOWN;
    message->status = (int)drive->status;
    message->message = proto_borrow_text(drive->message);
    fill_lists(ret_message, drive);
}

static void free_lists(struct drive_message *message)
{
    cJSON_Delete(message->option_list);
    cJSON_Delete(message->container_list);
}

/* ---- calls that wait ---- */

static void cancel_wait(void *wait)
{
    (void)reconciler_drive_cancel(wait);
}

/* The responses of all calls that answer a drive are the same on the wire. */
static int reply_drive(void *call, const struct reconciler_drive *drive)
{
    Crust__Drive__V1__AttachDriveResponse response = CRUST__DRIVE__V1__ATTACH_DRIVE_RESPONSE__INIT;
    struct drive_message message;

    fill_drive(&message, drive);
    response.drive = &message.drive;
    call_reply(call, &response.base);
    free_lists(&message);
    return 0;
}

static void on_drive(void *call, enum status_code code, const struct reconciler_drive *drive,
                     const struct error *error)
{
    if (code == STATUS_OK)
        (void)reply_drive(call, drive);
    else
        call_fail(call, code, "%s", error->text);
}

static void on_detached(void *call, enum status_code code, const struct reconciler_drive *drive,
                        const struct error *error)
{
    const Crust__Drive__V1__DetachDriveResponse response =
        CRUST__DRIVE__V1__DETACH_DRIVE_RESPONSE__INIT;

    (void)drive;
    call_end(call, code, &response.base, error);
}

static void attach(struct call *call, const ProtobufCMessage *message)
{
    struct crust_attach asked;
    struct drive_wait *wait = NULL;
    struct error error = {0};
    enum status_code code;

    crust_read_attach((const void *)message, &asked);
    code = reconciler_attach_drive(call->surroundings->reconciler, &asked.attach, on_drive, call,
                                   &wait, &error);
    call_wait_or_fail(call, code, cancel_wait, wait, &error);
}

static void detach(struct call *call, const ProtobufCMessage *message)
{
    const Crust__Drive__V1__DetachDriveRequest *request = (const void *)message;
    struct drive_wait *wait = NULL;
    struct error error = {0};
    const enum status_code code =
        reconciler_detach_drive(call->surroundings->reconciler, message_text(&request->drive_id),
                                on_detached, call, &wait, &error);

    call_wait_or_fail(call, code, cancel_wait, wait, &error);
}

static void update_limits(struct call *call, const ProtobufCMessage *message)
{
    const Crust__Drive__V1__UpdateDriveLimitsRequest *request = (const void *)message;
    const struct drive_limits limits = read_limits(request->rate_limiter);
    struct drive_wait *wait = NULL;
    struct error error = {0};
    enum status_code code;

    if (!request->rate_limiter) {
        call_fail(call, answer_code(ANSWER_BAD_REQUEST),
                  "rate_limiter is missing; an empty one removes all limits");
        return;
    }
    code = reconciler_limit_drive(call->surroundings->reconciler, message_text(&request->drive_id),
                                  &limits, on_drive, call, &wait, &error);
    call_wait_or_fail(call, code, cancel_wait, wait, &error);
}

/* ---- calls that are answered at once ---- */

static void get(struct call *call, const ProtobufCMessage *message)
{
    const Crust__Drive__V1__GetDriveRequest *request = (const void *)message;
    struct error error = {0};
    const enum status_code code =
        reconciler_get_drive(call->surroundings->reconciler, message_text(&request->drive_id),
                             reply_drive, call, &error);

    if (code != STATUS_OK)
        call_fail(call, code, "%s", error.text);
}

/* Packed responses of one drive each, in a row, are the response of all. */
static int pack_drive(void *packed, const struct reconciler_drive *drive)
{
    Crust__Drive__V1__ListDrivesResponse response = CRUST__DRIVE__V1__LIST_DRIVES_RESPONSE__INIT;
    struct drive_message message;
    Drive *one = &message.drive;
    int result;

    fill_drive(&message, drive);
    response.n_drives = 1;
    response.drives = &one;
    result = proto_append(packed, &response.base);
    free_lists(&message);
    return buffer_fail(packed, result);
}

static void list(struct call *call, const ProtobufCMessage *message)
{
    const Crust__Drive__V1__ListDrivesRequest *request = (const void *)message;
    cleanup(buffer_done) struct buffer packed = BUFFER_INIT(DRIVES_BYTES);
    const char *sandbox_id = message_text(&request->sandbox_id);
    struct error error = {0};
    const enum status_code code =
        reconciler_each_drive(call->surroundings->reconciler, *sandbox_id ? sandbox_id : NULL,
                              pack_drive, &packed, &error);

    if (code != STATUS_OK)
        call_fail(call, code, "%s", error.text);
    else if (buffer_error(&packed) == BUFFER_FULL)
        call_fail(call, STATUS_RESOURCE_EXHAUSTED,
                  "more drives than one reply holds: name a sandbox");
    else if (buffer_error(&packed) < 0)
        call_fail(call, answer_code(ANSWER_OUT_OF_MEMORY), "out of memory");
    else
        call_reply_packed(call, &packed);
}

const struct call_method crust_drives_methods[] = {
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
