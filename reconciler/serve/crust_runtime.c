/* crust_runtime.c - crust.v1.Runtime: requests of a CSI driver into the reconciler's commands.
 *
 * Here a request becomes plain text and numbers: no NUL, valid UTF-8, of bounded length. What the
 * texts mean is the reconciler's to judge.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/proto.h"
#include "reconciler/command.h"
#include "reconciler/serve/grpc_call.h"
#include "reconciler/serve/proto/crust_runtime.pb-c.h"

enum { TARGET_BYTES = 4096, DEVICE_BYTES = 4096, WORD_BYTES = 128, OPTIONS = 256 };

/* ---- stage ---- */

/* What struct reconciler_stage borrows. */
struct stage_texts {
    char target_path[TARGET_BYTES];
    char device[DEVICE_BYTES];
    char fs_type[WORD_BYTES];
    char group[WORD_BYTES];
    const char *option[OPTIONS];
    struct buffer options; /* one after the other, each with its NUL */
};

static enum status_code take(const ProtobufCBinaryData *member, const char *name, char *ret_text,
                             size_t size, struct error *error)
{
    int r = grpc_copy_text(member, ret_text, size);

    if (r == 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s is %s", name,
                     r == -EMSGSIZE ? "too long" : "not UTF-8, or has a NUL");
}

static enum status_code take_options(const Crust__V1__RuntimeStageVolumeRequest *request,
                                     struct stage_texts *texts, struct error *error)
{
    enum status_code code = STATUS_OK;
    char option[DEVICE_BYTES];

    if (request->n_mount_flags > OPTIONS)
        return error_set(error, STATUS_INVALID_ARGUMENT, "mount_flags has more than %d", OPTIONS);
    for (size_t i = 0; code == STATUS_OK && i < request->n_mount_flags; i++) {
        code = take(&request->mount_flags[i], "mount_flags", option, sizeof(option), error);
        if (code == STATUS_OK && buffer_append(&texts->options, option, strlen(option) + 1) < 0)
            code = error_set(error, STATUS_INVALID_ARGUMENT, "mount_flags is too long");
    }
    if (code != STATUS_OK)
        return code;
    for (size_t i = 0, at = 0; i < request->n_mount_flags; i++) {
        texts->option[i] = texts->options.data + at;
        at += strlen(texts->option[i]) + 1;
    }
    return STATUS_OK;
}

static enum status_code take_type(const Crust__V1__VolumeType *type, struct error *error)
{
    switch (type ? (int)type->type : CRUST__V1__VOLUME_TYPE__TYPE__UNKNOWN) {
    case CRUST__V1__VOLUME_TYPE__TYPE__BLOCK:
        return STATUS_OK;
    case CRUST__V1__VOLUME_TYPE__TYPE__NETWORK:
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "volume_type NETWORK: only block devices are handed to a micro-VM here");
    default:
        return error_set(error, STATUS_INVALID_ARGUMENT, "volume_type is missing or unknown");
    }
}

/* NULL: unsaid. */
static enum status_code take_policy(const Crust__V1__VolumeGroupChangePolicy *policy,
                                    const char **ret_policy, struct error *error)
{
    switch (policy ? (int)policy->policy : CRUST__V1__VOLUME_GROUP_CHANGE_POLICY__POLICY__UNKNOWN) {
    case CRUST__V1__VOLUME_GROUP_CHANGE_POLICY__POLICY__UNKNOWN:
        *ret_policy = NULL;
        return STATUS_OK;
    case CRUST__V1__VOLUME_GROUP_CHANGE_POLICY__POLICY__ALWAYS:
        *ret_policy = "Always";
        return STATUS_OK;
    case CRUST__V1__VOLUME_GROUP_CHANGE_POLICY__POLICY__ON_ROOT_MISMATCH:
        *ret_policy = "OnRootMismatch";
        return STATUS_OK;
    default:
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "volume_supplemental_group_change_policy is unknown");
    }
}

static enum status_code take_texts(const Crust__V1__RuntimeStageVolumeRequest *request,
                                   struct stage_texts *texts, struct error *error)
{
    enum status_code code = take(&request->volume_target_path, "volume_target_path",
                                 texts->target_path, sizeof(texts->target_path), error);

    if (code == STATUS_OK)
        code = take(&request->volume_backing_path, "volume_backing_path", texts->device,
                    sizeof(texts->device), error);
    if (code == STATUS_OK)
        code = take(&request->fs_type, "fs_type", texts->fs_type, sizeof(texts->fs_type), error);
    if (code == STATUS_OK)
        code = take(&request->volume_supplemental_group, "volume_supplemental_group", texts->group,
                    sizeof(texts->group), error);
    return code == STATUS_OK ? take_options(request, texts, error) : code;
}

static void stage(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__V1__RuntimeStageVolumeRequest *request =
        (const Crust__V1__RuntimeStageVolumeRequest *)(const void *)message;
    const Crust__V1__RuntimeStageVolumeResponse response =
        CRUST__V1__RUNTIME_STAGE_VOLUME_RESPONSE__INIT;
    struct stage_texts texts = {.options = BUFFER_INIT(64 * 1024)};
    struct reconciler_stage asked = {.target_path = texts.target_path,
                                     .device = texts.device,
                                     .fs_type = texts.fs_type,
                                     .options = (unsigned)request->n_mount_flags,
                                     .option = texts.option};
    struct error error = {0};
    enum status_code code = take_texts(request, &texts, &error);

    if (code == STATUS_OK)
        code = take_type(request->volume_type, &error);
    if (code == STATUS_OK)
        code = take_policy(request->volume_supplemental_group_change_policy, &asked.group_policy,
                           &error);
    asked.group = texts.group[0] ? texts.group : NULL;
    if (code == STATUS_OK)
        code = reconciler_stage(grpc_call_reconciler(call), &asked, &error);
    buffer_done(&texts.options);
    if (code == STATUS_OK)
        grpc_call_reply(call, &response.base);
    else
        grpc_call_fail(call, code, "%s", error.text);
}

/* ---- unstage ---- */

static void unstage(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__V1__RuntimeUnstageVolumeRequest *request =
        (const Crust__V1__RuntimeUnstageVolumeRequest *)(const void *)message;
    const Crust__V1__RuntimeUnstageVolumeResponse response =
        CRUST__V1__RUNTIME_UNSTAGE_VOLUME_RESPONSE__INIT;
    char target_path[TARGET_BYTES];
    struct error error = {0};
    enum status_code code = take(&request->volume_target_path, "volume_target_path", target_path,
                                 sizeof(target_path), &error);

    if (code == STATUS_OK)
        code = reconciler_unstage(grpc_call_reconciler(call), target_path, &error);
    if (code == STATUS_OK)
        grpc_call_reply(call, &response.base);
    else
        grpc_call_fail(call, code, "%s", error.text);
}

/* ---- stats ---- */

/* CSI's numbers have a sign. */
static int64_t clamp(uint64_t number)
{
    return number > INT64_MAX ? INT64_MAX : (int64_t)number;
}

static void reply_stats(struct grpc_call *call, const struct reconciler_stats *stats)
{
    Crust__V1__VolumeUsage bytes = CRUST__V1__VOLUME_USAGE__INIT;
    Crust__V1__VolumeUsage inodes = CRUST__V1__VOLUME_USAGE__INIT;
    Crust__V1__VolumeUsage *usage[2];
    Crust__V1__VolumeCondition condition = CRUST__V1__VOLUME_CONDITION__INIT;
    Crust__V1__RuntimeGetVolumeStatsResponse response =
        CRUST__V1__RUNTIME_GET_VOLUME_STATS_RESPONSE__INIT;

    bytes.unit = CRUST__V1__VOLUME_USAGE__UNIT__BYTES;
    bytes.total = clamp(stats->total);
    bytes.used = clamp(stats->used);
    bytes.available = clamp(stats->available);
    inodes.unit = CRUST__V1__VOLUME_USAGE__UNIT__INODES;
    inodes.total = clamp(stats->total_inodes);
    inodes.used = clamp(stats->used_inodes);
    inodes.available = clamp(stats->available_inodes);
    condition.abnormal = stats->abnormal;
    condition.message = proto_borrow_text(stats->condition);
    response.usage = usage;
    if (stats->has_bytes)
        usage[response.n_usage++] = &bytes;
    if (stats->has_inodes)
        usage[response.n_usage++] = &inodes;
    response.volume_condition = &condition;
    grpc_call_reply(call, &response.base);
}

static void on_counted(void *userdata, enum status_code code, const struct reconciler_stats *stats,
                       const struct error *error)
{
    if (code == STATUS_OK)
        reply_stats(userdata, stats);
    else
        grpc_call_fail(userdata, code, "%s", error->text);
}

static void cancel_stats(void *stats_call)
{
    (void)reconciler_count_cancel(stats_call);
}

static void get_stats(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__V1__RuntimeGetVolumeStatsRequest *request =
        (const Crust__V1__RuntimeGetVolumeStatsRequest *)(const void *)message;
    char target_path[TARGET_BYTES];
    struct stats_call *stats_call = NULL;
    struct error error = {0};
    enum status_code code = take(&request->volume_target_path, "volume_target_path", target_path,
                                 sizeof(target_path), &error);

    if (code == STATUS_OK)
        code = reconciler_count(grpc_call_reconciler(call), target_path, on_counted, call,
                                &stats_call, &error);
    if (code == STATUS_OK)
        grpc_call_wait(call, cancel_stats, stats_call);
    else
        grpc_call_fail(call, code, "%s", error.text);
}

/* ---- expand ---- */

static void on_expanded(void *userdata, enum status_code code, uint64_t bytes,
                        const struct error *error)
{
    Crust__V1__RuntimeExpandVolumeResponse response =
        CRUST__V1__RUNTIME_EXPAND_VOLUME_RESPONSE__INIT;

    response.capacity_bytes = clamp(bytes);
    if (code == STATUS_OK)
        grpc_call_reply(userdata, &response.base);
    else
        grpc_call_fail(userdata, code, "%s", error->text);
}

static void cancel_expansion(void *expansion)
{
    (void)reconciler_expand_cancel(expansion);
}

static enum status_code take_range(const Crust__V1__CapacityRange *range,
                                   struct reconciler_expand *asked, struct error *error)
{
    if (!range)
        return STATUS_OK;
    if (range->required_bytes < 0 || range->limit_bytes < 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "capacity_range is negative");
    asked->required_bytes = (uint64_t)range->required_bytes;
    asked->limit_bytes = (uint64_t)range->limit_bytes;
    return STATUS_OK;
}

static void expand(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__V1__RuntimeExpandVolumeRequest *request =
        (const Crust__V1__RuntimeExpandVolumeRequest *)(const void *)message;
    char target_path[TARGET_BYTES];
    struct reconciler_expand asked = {.target_path = target_path};
    struct expansion *expansion = NULL;
    struct error error = {0};
    enum status_code code = take(&request->volume_target_path, "volume_target_path", target_path,
                                 sizeof(target_path), &error);

    if (code == STATUS_OK)
        code = take_range(request->capacity_range, &asked, &error);
    if (code == STATUS_OK)
        code = reconciler_expand(grpc_call_reconciler(call), &asked, on_expanded, call, &expansion,
                                 &error);
    if (code == STATUS_OK)
        grpc_call_wait(call, cancel_expansion, expansion);
    else
        grpc_call_fail(call, code, "%s", error.text);
}

const struct grpc_method crust_runtime_methods[] = {
    {"/crust.v1.Runtime/RuntimeStageVolume", &crust__v1__runtime_stage_volume_request__descriptor,
     stage},
    {"/crust.v1.Runtime/RuntimeUnstageVolume",
     &crust__v1__runtime_unstage_volume_request__descriptor, unstage},
    {"/crust.v1.Runtime/RuntimeGetVolumeStats",
     &crust__v1__runtime_get_volume_stats_request__descriptor, get_stats},
    {"/crust.v1.Runtime/RuntimeExpandVolume", &crust__v1__runtime_expand_volume_request__descriptor,
     expand},
    {NULL, NULL, NULL},
};
