/* SPDX-License-Identifier: Apache-2.0 */
/* crust_runtime.c - crust.v1.Runtime: turns requests of a CSI driver into the reconciler's
 * commands.
 *
 * A request becomes plain text and numbers here: no NUL, valid UTF-8, of bounded length. The
 * reconciler judges what the texts mean.
 */
#include "api/crust_calls.h"
#include "api/proto/crust_runtime.pb-c.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/command.h"

/* ---- stage ---- */

/* Storage for what struct reconciler_stage borrows. */
struct stage_texts {
    char target_path[CRUST_PATH_BYTES];
    char device[CRUST_PATH_BYTES];
    char fs_type[CRUST_WORD_BYTES];
    char group[CRUST_WORD_BYTES];
    struct crust_options options;
};

static enum status_code take_type(const Crust__V1__VolumeType *type, struct error *error)
{
    switch (type ? (int)type->type : CRUST__V1__VOLUME_TYPE__TYPE__UNKNOWN) {
    case CRUST__V1__VOLUME_TYPE__TYPE__BLOCK:
        return STATUS_OK;
    case CRUST__V1__VOLUME_TYPE__TYPE__NETWORK:
        return answer_refuse(
            error, ANSWER_NETWORK_VOLUME,
            "volume_type NETWORK: only block devices are handed to a micro-VM here");
    default:
        return answer_refuse(error, ANSWER_BAD_REQUEST, "volume_type is missing or unknown");
    }
}

/* ret_policy NULL: not given. */
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
        return answer_refuse(error, ANSWER_BAD_REQUEST,
                             "volume_supplemental_group_change_policy is unknown");
    }
}

static enum status_code take_texts(const Crust__V1__RuntimeStageVolumeRequest *request,
                                   struct stage_texts *texts, struct error *error)
{
    enum status_code code = crust_take_text(&request->volume_target_path, "volume_target_path",
                                            texts->target_path, sizeof(texts->target_path), error);

    if (code == STATUS_OK)
        code = crust_take_text(&request->volume_backing_path, "volume_backing_path", texts->device,
                               sizeof(texts->device), error);
    if (code == STATUS_OK)
        code = crust_take_text(&request->fs_type, "fs_type", texts->fs_type, sizeof(texts->fs_type),
                               error);
    if (code == STATUS_OK)
        code = crust_take_text(&request->volume_supplemental_group, "volume_supplemental_group",
                               texts->group, sizeof(texts->group), error);
    return code == STATUS_OK ? crust_take_options(request->mount_flags, request->n_mount_flags,
                                                  "mount_flags", &texts->options, error)
                             : code;
}

static void stage(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__V1__RuntimeStageVolumeRequest *request =
        (const Crust__V1__RuntimeStageVolumeRequest *)(const void *)message;
    struct stage_texts texts = {.options = CRUST_OPTIONS_INIT};
    struct reconciler_stage asked = {.target_path = texts.target_path,
                                     .device = texts.device,
                                     .fs_type = texts.fs_type,
                                     .options = (unsigned)request->n_mount_flags,
                                     .option = texts.options.option};
    struct error error = {0};
    enum status_code code = take_texts(request, &texts, &error);

    if (code == STATUS_OK)
        code = take_type(request->volume_type, &error);
    if (code == STATUS_OK)
        code = take_policy(request->volume_supplemental_group_change_policy, &asked.group_policy,
                           &error);
    asked.group = texts.group[0] ? texts.group : NULL;
    crust_stage(call, code, &asked, &error);
    crust_options_done(&texts.options);
}

/* ---- unstage ---- */

static void unstage(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__V1__RuntimeUnstageVolumeRequest *request =
        (const Crust__V1__RuntimeUnstageVolumeRequest *)(const void *)message;
    char target_path[CRUST_PATH_BYTES];
    struct error error = {0};
    enum status_code code = crust_take_text(&request->volume_target_path, "volume_target_path",
                                            target_path, sizeof(target_path), &error);

    crust_unstage(call, code, target_path, &error);
}

/* ---- stats ---- */

static void get_stats(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__V1__RuntimeGetVolumeStatsRequest *request =
        (const Crust__V1__RuntimeGetVolumeStatsRequest *)(const void *)message;
    char target_path[CRUST_PATH_BYTES];
    const struct reconciler_target target = {.target_path = target_path};
    struct error error = {0};
    enum status_code code = crust_take_text(&request->volume_target_path, "volume_target_path",
                                            target_path, sizeof(target_path), &error);

    crust_count(call, code, &target, &error);
}

/* ---- expand ---- */

static enum status_code take_range(const Crust__V1__CapacityRange *range,
                                   struct reconciler_expand *asked, struct error *error)
{
    if (!range)
        return STATUS_OK;
    if (range->required_bytes < 0 || range->limit_bytes < 0)
        return answer_refuse(error, ANSWER_BAD_REQUEST, "capacity_range is negative");
    asked->required_bytes = (uint64_t)range->required_bytes;
    asked->limit_bytes = (uint64_t)range->limit_bytes;
    return STATUS_OK;
}

static void expand(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__V1__RuntimeExpandVolumeRequest *request =
        (const Crust__V1__RuntimeExpandVolumeRequest *)(const void *)message;
    char target_path[CRUST_PATH_BYTES];
    struct reconciler_expand asked = {.target.target_path = target_path};
    struct error error = {0};
    enum status_code code = crust_take_text(&request->volume_target_path, "volume_target_path",
                                            target_path, sizeof(target_path), &error);

    if (code == STATUS_OK)
        code = take_range(request->capacity_range, &asked, &error);
    crust_expand(call, code, &asked, &error);
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
