/* SPDX-License-Identifier: Apache-2.0 */
/* drive_message.c - from protobuf, and to it. */
#include "api/drive_asked.h"

#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/proto.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/drive_form.h"

typedef Crust__Drive__V1__AttachDriveRequest AttachRequest;
typedef Crust__Drive__V1__Container Container;
typedef Crust__Drive__V1__RateLimiter RateLimiter;
typedef Crust__Drive__V1__TokenBucket TokenBucket;
typedef Crust__Drive__V1__Drive Drive;

#define REFUSE(error, ...) answer_refuse((error), ANSWER_BAD_REQUEST, __VA_ARGS__)

/* The messages' numbers are those of model/drive.h. */
_Static_assert((int)CRUST__DRIVE__V1__ATTACH_DRIVE_REQUEST__FSCK__PREEN == (int)DRIVE_FSCK_PREEN &&
                   (int)DRIVE_FSCKS == 2,
               "fsck");
_Static_assert(
    (int)CRUST__DRIVE__V1__ATTACH_DRIVE_REQUEST__FS_GROUP_CHANGE_POLICY__ON_ROOT_MISMATCH ==
            (int)DRIVE_GROUP_ON_ROOT_MISMATCH &&
        (int)DRIVE_GROUP_POLICIES == 2,
    "fs_group_change_policy");
/* … and 0 is for a state that it does not have. */
_Static_assert((int)CRUST__DRIVE__V1__DRIVE__STATE__REQUESTED == (int)DRIVE_REQUESTED + 1 &&
                   (int)CRUST__DRIVE__V1__DRIVE__STATE__LOST == (int)DRIVE_LOST + 1 &&
                   (int)DRIVE_STATES == (int)DRIVE_LOST + 1,
               "state");

/* ---- requests ---- */

static void take_bucket(const TokenBucket *bucket, struct drive_bucket *ret_bucket)
{
    if (bucket)
        *ret_bucket =
            (struct drive_bucket){bucket->size, bucket->refill_time_ms, bucket->one_time_burst};
}

static void take_limiter(const RateLimiter *limiter, struct drive_limits *ret_limits)
{
    if (!limiter)
        return;
    take_bucket(limiter->bandwidth, &ret_limits->bandwidth);
    take_bucket(limiter->ops, &ret_limits->operations);
}

/* A text member, where to take it to, and its bound. */
struct member {
    const char *name;
    const ProtobufCBinaryData *bytes;
    size_t limit;
    const char **text;
};

static enum status_code take_members(struct drive_asked *asked, const struct member *members,
                                     size_t count, struct error *error)
{
    enum status_code code = STATUS_OK;

    for (size_t i = 0; code == STATUS_OK && i < count; i++) {
        const struct drive_asked_text text = {members[i].name, members[i].bytes->data,
                                              members[i].bytes->len};

        code = drive_asked_take(asked, &text, members[i].limit, members[i].text, error);
    }
    return code;
}

static enum status_code take_options(const AttachRequest *request, struct drive_asked *asked,
                                     struct error *error)
{
    enum status_code code = STATUS_OK;

    for (size_t i = 0; code == STATUS_OK && i < request->n_options; i++)
        code =
            drive_asked_add_option(asked, request->options[i].data, request->options[i].len, error);
    return code;
}

static enum status_code take_container(const Container *container, struct drive_asked *asked,
                                       struct error *error)
{
    char name[DRIVE_ASKED_NAME_BYTES];
    struct reconciler_drive_container *one = drive_asked_add_container(asked, name, error);

    if (!one)
        return STATUS_INVALID_ARGUMENT;
    one->read_only = container->read_only;
    return take_members(
        asked,
        (const struct member[]){
            {name, &container->container_id, DRIVE_CONTAINER_ID_CHARS, &one->container_id},
            {name, &container->path, DRIVE_PATH_CHARS, &one->path},
            {name, &container->sub_path, DRIVE_PATH_CHARS, &one->sub_path},
        },
        3, error);
}

static enum status_code take_choices(const AttachRequest *request,
                                     struct reconciler_drive_attach *attach, struct error *error)
{
    if ((unsigned)request->fsck >= DRIVE_FSCKS)
        return REFUSE(error, "fsck is unknown");
    if ((unsigned)request->fs_group_change_policy >= DRIVE_GROUP_POLICIES)
        return REFUSE(error, "fs_group_change_policy is unknown");
    attach->fsck = (enum drive_fsck)request->fsck;
    attach->fs_group_policy = (enum drive_group_policy)request->fs_group_change_policy;
    attach->writable = request->is_writable;
    attach->has_fs_group =
        request->group_case == CRUST__DRIVE__V1__ATTACH_DRIVE_REQUEST__GROUP_FS_GROUP;
    if (attach->has_fs_group)
        attach->fs_group = request->fs_group;
    take_limiter(request->rate_limiter, &attach->limits);
    return STATUS_OK;
}

enum status_code drive_message_take_attach(const AttachRequest *request, struct drive_asked *asked,
                                           struct error *error)
{
    struct reconciler_drive_attach *attach = &asked->attach;
    const struct member members[] = {
        {"drive_id", &request->drive_id, DRIVE_ID_CHARS, &attach->drive_id},
        {"sandbox_id", &request->sandbox_id, DRIVE_FORM_SANDBOX_CHARS, &attach->sandbox_id},
        {"host_path", &request->host_path, DRIVE_PATH_CHARS, &attach->host_path},
        {"vm_path", &request->vm_path, DRIVE_PATH_CHARS, &attach->vm_path},
        {"filesystem_type", &request->filesystem_type, DRIVE_FS_TYPE_CHARS, &attach->fs_type},
    };
    enum status_code code = take_members(asked, members, array_length(members), error);

    if (code == STATUS_OK)
        code = take_options(request, asked, error);
    for (size_t i = 0; code == STATUS_OK && i < request->n_containers; i++)
        code = take_container(request->containers[i], asked, error);
    if (code == STATUS_OK)
        code = take_choices(request, attach, error);
    return code == STATUS_OK ? drive_asked_check(asked, error) : code;
}

enum status_code
drive_message_take_limits(const Crust__Drive__V1__UpdateDriveLimitsRequest *request,
                          struct drive_asked *asked, struct error *error)
{
    const struct member member = {"drive_id", &request->drive_id, DRIVE_ID_CHARS,
                                  &asked->attach.drive_id};
    const enum status_code code = take_members(asked, &member, 1, error);

    if (code != STATUS_OK)
        return code;
    if (!request->rate_limiter)
        return REFUSE(error, "rate_limiter is missing; an empty one removes all limits");
    take_limiter(request->rate_limiter, &asked->attach.limits);
    return drive_asked_check(asked, error);
}

/* ---- drives ---- */

struct limiter_message {
    RateLimiter limiter;
    TokenBucket bandwidth, ops;
};

static TokenBucket *fill_bucket(TokenBucket *message, const struct drive_bucket *bucket)
{
    crust__drive__v1__token_bucket__init(message);
    message->size = bucket->size;
    message->refill_time_ms = bucket->refill_ms;
    message->one_time_burst = bucket->one_time_burst;
    return bucket->size ? message : NULL;
}

static RateLimiter *fill_limiter(struct limiter_message *message, const struct drive_limits *limits)
{
    crust__drive__v1__rate_limiter__init(&message->limiter);
    message->limiter.bandwidth = fill_bucket(&message->bandwidth, &limits->bandwidth);
    message->limiter.ops = fill_bucket(&message->ops, &limits->operations);
    return message->limiter.bandwidth || message->limiter.ops ? &message->limiter : NULL;
}

static void fill_drive(Drive *message, const struct reconciler_drive *drive)
{
    crust__drive__v1__drive__init(message);
    message->drive_id = proto_borrow_text(drive->drive_id);
    message->sandbox_id = proto_borrow_text(drive->sandbox_id);
    message->host_path = proto_borrow_text(drive->host_path);
    message->vm_path = proto_borrow_text(drive->vm_path);
    message->filesystem_type = proto_borrow_text(drive->fs_type);
    message->is_writable = drive->writable;
    message->serial = proto_borrow_text(drive->serial);
    message->guest_device = proto_borrow_text(drive->guest_device);
    message->size_bytes = drive->size_bytes;
    message->is_wanted = drive->wanted;
    message->state = drive->state < DRIVE_STATES
                         ? (Crust__Drive__V1__Drive__State)(drive->state + 1)
                         : CRUST__DRIVE__V1__DRIVE__STATE__UNKNOWN;
    message->status = (int)drive->status;
    message->message = proto_borrow_text(drive->message);
}

/* A JSON array of texts, as the store has it. */
static unsigned fill_options(ProtobufCBinaryData options[static DRIVE_OPTIONS], const cJSON *list)
{
    const cJSON *one;
    unsigned count = 0;

    cJSON_ArrayForEach(one, list)
    {
        if (cJSON_IsString(one) && count < DRIVE_OPTIONS)
            options[count++] = proto_borrow_text(one->valuestring);
    }
    return count;
}

/* The same of objects. */
static unsigned fill_containers(Container containers[static DRIVE_CONTAINERS],
                                Container *pointers[static DRIVE_CONTAINERS], const cJSON *list)
{
    const cJSON *one;
    unsigned count = 0;

    cJSON_ArrayForEach(one, list)
    {
        Container *container = &containers[count];

        if (!cJSON_IsObject(one) || count == DRIVE_CONTAINERS)
            break;
        crust__drive__v1__container__init(container);
        container->container_id = proto_borrow_text(json_text(one, "container_id"));
        container->path = proto_borrow_text(json_text(one, "path"));
        container->sub_path = proto_borrow_text(json_text(one, "sub_path"));
        container->read_only = cJSON_IsTrue(json_member(one, "read_only"));
        pointers[count++] = container;
    }
    return count;
}

int drive_message_append(struct buffer *bytes, const struct reconciler_drive *drive)
{
    Crust__Drive__V1__ListDrivesResponse response = CRUST__DRIVE__V1__LIST_DRIVES_RESPONSE__INIT;
    cleanup(json_deletep) cJSON *list = NULL, *places = NULL;
    const char *text = drive->containers ? drive->containers : "[]";
    ProtobufCBinaryData options[DRIVE_OPTIONS];
    Container containers[DRIVE_CONTAINERS], *pointers[DRIVE_CONTAINERS];
    struct limiter_message limiter;
    Drive message, *one = &message;

    (void)json_parse(drive->options, strlen(drive->options), JSON_LIMITS_HTTP, &list, NULL);
    (void)json_parse(text, strlen(text), JSON_LIMITS_PERSIST, &places, NULL);
    fill_drive(&message, drive);
    message.rate_limiter = fill_limiter(&limiter, &drive->limits);
    message.options = options;
    message.n_options = fill_options(options, list);
    message.containers = pointers;
    message.n_containers = fill_containers(containers, pointers, places);
    response.n_drives = 1;
    response.drives = &one;
    return proto_append(bytes, &response.base);
}
