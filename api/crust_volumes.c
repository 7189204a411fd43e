/* SPDX-License-Identifier: Apache-2.0 */
/* crust_volumes.c - the services of volumes: a message becomes one of the reconciler's commands.
 *
 * message_check() has seen each message, so its texts are plain and bounded here. The reconciler
 * judges what they mean.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/grpc_call.h"
#include "api/proto/crust_management.pb-c.h"
#include "api/proto/crust_runtime.pb-c.h"
#include "api/proto/health.pb-c.h"
#include "lib/proto.h"
#include "reconciler/command/answers.h"

static void list_texts(const ProtobufCBinaryData *texts, size_t count, const char **ret_texts)
{
    for (size_t i = 0; i < count; i++)
        ret_texts[i] = message_text(&texts[i]);
}

/* ---- stage ---- */

static void on_staged(void *userdata, enum status_code code, const struct error *error)
{
    const Crust__V1__RuntimeStageVolumeResponse response =
        CRUST__V1__RUNTIME_STAGE_VOLUME_RESPONSE__INIT;

    call_end(userdata, code, &response.base, error);
}

static void cancel_staging(void *staging)
{
    (void)reconciler_stage_cancel(staging);
}

static void stage_volume(struct call *call, const struct reconciler_stage *asked)
{
    struct staging *staging = NULL;
    struct error error = {0};
    const enum status_code code =
        reconciler_stage(call->surroundings->reconciler, asked, on_staged, call, &staging, &error);

    call_wait_or_fail(call, code, cancel_staging, staging, &error);
}

/* ---- stats ---- */

/* CSI's numbers are signed. */
static int64_t clamp(uint64_t number)
{
    return number > INT64_MAX ? INT64_MAX : (int64_t)number;
}

static void on_counted(void *userdata, enum status_code code, const struct reconciler_stats *stats,
                       const struct error *error)
{
    Crust__V1__VolumeUsage bytes = CRUST__V1__VOLUME_USAGE__INIT;
    Crust__V1__VolumeUsage inodes = CRUST__V1__VOLUME_USAGE__INIT;
    Crust__V1__VolumeUsage *usage[2];
    Crust__V1__VolumeCondition condition = CRUST__V1__VOLUME_CONDITION__INIT;
    Crust__V1__RuntimeGetVolumeStatsResponse response =
        CRUST__V1__RUNTIME_GET_VOLUME_STATS_RESPONSE__INIT;

    if (code != STATUS_OK) {
        call_fail(userdata, code, "%s", error->text);
        return;
    }
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
    call_reply(userdata, &response.base);
}

static void cancel_stats(void *stats_call)
{
    (void)reconciler_stats_cancel(stats_call);
}

void call_count(struct call *call, const struct reconciler_target *target)
{
    struct stats_call *stats_call = NULL;
    struct error error = {0};
    const enum status_code code = reconciler_ask_stats(call->surroundings->reconciler, target,
                                                       on_counted, call, &stats_call, &error);

    call_wait_or_fail(call, code, cancel_stats, stats_call, &error);
}

/* ---- expand ---- */

static void on_expanded(void *userdata, enum status_code code,
                        const struct reconciler_capacity *capacity, const struct error *error)
{
    Crust__V1__RuntimeExpandVolumeResponse response =
        CRUST__V1__RUNTIME_EXPAND_VOLUME_RESPONSE__INIT;
    struct call *call = userdata;

    if (code == STATUS_OK) {
        response.capacity_bytes = clamp(capacity->bytes);
        call->is_owed = capacity->is_owed;
    }
    call_end(call, code, &response.base, error);
}

static void cancel_expansion(void *expansion)
{
    (void)reconciler_expand_cancel(expansion);
}

void call_expand(struct call *call, const struct reconciler_expand *asked)
{
    struct expansion *expansion = NULL;
    struct error error = {0};
    const enum status_code code = reconciler_expand(call->surroundings->reconciler, asked,
                                                    on_expanded, call, &expansion, &error);

    call_wait_or_fail(call, code, cancel_expansion, expansion, &error);
}

/* ---- crust.v1.Runtime ----------------------------------------------------------------------- */

/* Requests of a CSI driver. */

static void stage(struct call *call, const ProtobufCMessage *message)
{
    static const char *const policies[] = {NULL, "Always", "OnRootMismatch"};
    const Crust__V1__RuntimeStageVolumeRequest *request = (const void *)message;
    const Crust__V1__VolumeGroupChangePolicy *policy =
        request->volume_supplemental_group_change_policy;
    const char *option[MESSAGE_MOUNT_OPTIONS],
        *group = message_text(&request->volume_supplemental_group);
    const struct reconciler_stage asked = {
        .target_path = message_text(&request->volume_target_path),
        .device = message_text(&request->volume_backing_path),
        .fs_type = message_text(&request->fs_type),
        .options = (unsigned)request->n_mount_flags,
        .option = option,
        .group = *group ? group : NULL,
        .group_policy = policy ? policies[policy->policy] : NULL,
    };

    list_texts(request->mount_flags, request->n_mount_flags, option);
    if (!request->volume_type ||
        request->volume_type->type == CRUST__V1__VOLUME_TYPE__TYPE__UNKNOWN)
        call_fail(call, answer_code(ANSWER_BAD_REQUEST), "volume_type is missing or unknown");
    else if (request->volume_type->type == CRUST__V1__VOLUME_TYPE__TYPE__NETWORK)
        call_fail(call, answer_code(ANSWER_NETWORK_VOLUME),
                  "volume_type NETWORK: only block devices are handed to a micro-VM here");
    else
        stage_volume(call, &asked);
}

static void unstage(struct call *call, const ProtobufCMessage *message)
{
    const Crust__V1__RuntimeUnstageVolumeRequest *request = (const void *)message;
    struct staging *staging = NULL;
    struct error error = {0};
    const enum status_code code = reconciler_unstage(call->surroundings->reconciler,
                                                     message_text(&request->volume_target_path),
                                                     on_staged, call, &staging, &error);

    call_wait_or_fail(call, code, cancel_staging, staging, &error);
}

static void get_stats(struct call *call, const ProtobufCMessage *message)
{
    const Crust__V1__RuntimeGetVolumeStatsRequest *request = (const void *)message;

    call_count(call, &(struct reconciler_target){.target_path =
                                                     message_text(&request->volume_target_path)});
}

static void expand(struct call *call, const ProtobufCMessage *message)
{
    const Crust__V1__RuntimeExpandVolumeRequest *request = (const void *)message;
    const Crust__V1__CapacityRange *range = request->capacity_range;

    if (range && (range->required_bytes < 0 || range->limit_bytes < 0))
        call_fail(call, answer_code(ANSWER_BAD_REQUEST), "capacity_range is negative");
    else
        call_expand(call, &(struct reconciler_expand){
                              .target.target_path = message_text(&request->volume_target_path),
                              .required_bytes = range ? (uint64_t)range->required_bytes : 0,
                              .limit_bytes = range ? (uint64_t)range->limit_bytes : 0});
}

const struct call_method crust_runtime_methods[] = {
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

/* ---- crust.management.v1 -------------------------------------------------------------------- */

/* Requests of a kubelet.
 *
 * The capabilities that are reported are those that work on this node (docs/operations.md has the
 * table and the reasons). Publishing a volume means staging it with a known sandbox: the sandbox's
 * id is recorded beside its metadata. Kata's Go runtime does the same when it uses the volume, its
 * Rust runtime does not.
 */

/* ---- capabilities ---- */

static void get_capabilities(struct call *call, const ProtobufCMessage *message)
{
    Crust__Management__V1__RuntimeGetCapabilitiesResponse response =
        CRUST__MANAGEMENT__V1__RUNTIME_GET_CAPABILITIES_RESPONSE__INIT;
    struct {
        Crust__Management__V1__RuntimeCapability outer;
        Crust__Management__V1__RuntimeCapability__RPC rpc;
    } capability[RECONCILER_NAMES];
    Crust__Management__V1__RuntimeCapability *capabilities[RECONCILER_NAMES];
    struct reconciler_names names;
    struct error error;

    (void)message;
    if (reconciler_find_capabilities(call->surroundings->reconciler, &names, &error) < 0) {
        call_fail(call, answer_code(ANSWER_DATABASE), "%s", error.text);
        return;
    }
    response.capabilities = capabilities;
    for (unsigned i = 0; i < names.count; i++) {
        const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value_by_name(
            &crust__management__v1__runtime_capability__rpc__type__descriptor, names.name[i]);

        if (!value)
            continue;
        crust__management__v1__runtime_capability__init(&capability[i].outer);
        crust__management__v1__runtime_capability__rpc__init(&capability[i].rpc);
        capability[i].outer.type_case = CRUST__MANAGEMENT__V1__RUNTIME_CAPABILITY__TYPE_RPC;
        capability[i].outer.rpc = &capability[i].rpc;
        capability[i].rpc.type = (Crust__Management__V1__RuntimeCapability__RPC__Type)value->value;
        capabilities[response.n_capabilities++] = &capability[i].outer;
    }
    call_reply(call, &response.base);
}

static void get_file_systems(struct call *call, const ProtobufCMessage *message)
{
    Crust__Management__V1__RuntimeGetSupportedFileSystemsResponse response =
        CRUST__MANAGEMENT__V1__RUNTIME_GET_SUPPORTED_FILE_SYSTEMS_RESPONSE__INIT;
    ProtobufCBinaryData text[RECONCILER_NAMES];
    struct reconciler_names names;

    (void)message;
    if (reconciler_find_file_systems(call->surroundings->reconciler, &names) < 0) {
        call_fail(call, answer_code(ANSWER_DATABASE), "the database fails");
        return;
    }
    response.file_systems = text;
    for (unsigned i = 0; i < names.count; i++)
        text[response.n_file_systems++] = proto_borrow_text(names.name[i]);
    call_reply(call, &response.base);
}

static void publish_volume(struct call *call, const ProtobufCMessage *message)
{
    const Crust__Management__V1__RuntimePublishVolumeRequest *request = (const void *)message;
    const char *option[MESSAGE_MOUNT_OPTIONS], *policy = message_text(&request->fsgroup_policy);
    char group[16];
    const struct reconciler_stage asked = {
        .target_path = message_text(&request->host_target_path),
        .device = message_text(&request->host_volume_id),
        .fs_type = message_text(&request->file_system),
        .options = (unsigned)request->n_mount_options,
        .option = option,
        .group = request->fsgroup_gid ? group : NULL,
        .group_policy = *policy ? policy : NULL,
        .sandbox_id = message_text(&request->sandbox_id),
    };

    list_texts(request->mount_options, request->n_mount_options, option);
    (void)snprintf(group, sizeof(group), "%" PRId32, request->fsgroup_gid);
    if (request->fsgroup_gid < 0)
        call_fail(call, answer_code(ANSWER_BAD_REQUEST), "fsgroup_gid is negative");
    else if (*policy && strcmp(policy, "Always") != 0 && strcmp(policy, "OnRootMismatch") != 0)
        call_fail(call, answer_code(ANSWER_BAD_REQUEST), "fsgroup_policy is unknown");
    else
        stage_volume(call, &asked);
}

static void get_sandbox_stats(struct call *call, const ProtobufCMessage *message)
{
    const Crust__Management__V1__RuntimeGetVolumeStatsRequest *request = (const void *)message;

    call_count(call, &(struct reconciler_target){.sandbox_id = message_text(&request->sandbox_id),
                                                 .device = message_text(&request->host_volume_id)});
}

static void expand_in_sandbox(struct call *call, const ProtobufCMessage *message)
{
    const Crust__Management__V1__RuntimeExpandVolumeRequest *request = (const void *)message;

    if (request->required_bytes < 0)
        call_fail(call, answer_code(ANSWER_BAD_REQUEST), "required_bytes is negative");
    else
        call_expand(call, &(struct reconciler_expand){
                              .target = {.sandbox_id = message_text(&request->sandbox_id),
                                         .device = message_text(&request->host_volume_id)},
                              .required_bytes = (uint64_t)request->required_bytes});
}

#define SERVICE "/crust.management.v1.RuntimeAssistedStorageManagement/"

const struct call_method crust_management_methods[] = {
    {SERVICE "RuntimeGetCapabilities",
     &crust__management__v1__runtime_get_capabilities_request__descriptor, get_capabilities},
    {SERVICE "RuntimeGetSupportedFileSystems",
     &crust__management__v1__runtime_get_supported_file_systems_request__descriptor,
     get_file_systems},
    {SERVICE "RuntimePublishVolume",
     &crust__management__v1__runtime_publish_volume_request__descriptor, publish_volume},
    {SERVICE "RuntimeGetVolumeStats",
     &crust__management__v1__runtime_get_volume_stats_request__descriptor, get_sandbox_stats},
    {SERVICE "RuntimeExpandVolume",
     &crust__management__v1__runtime_expand_volume_request__descriptor, expand_in_sandbox},
    {NULL, NULL, NULL},
};

/* ---- health --------------------------------------------------------------------------------- */

/* grpc.health.v1.Health/Check: /readyz as a gRPC service. */

static void check(struct call *call, const ProtobufCMessage *message)
{
    const Grpc__Health__V1__HealthCheckRequest *request =
        (const Grpc__Health__V1__HealthCheckRequest *)(const void *)message;
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    struct reconciler_health health = {0};
    const char *service = message_text(&request->service);

    if (strlen(service) != request->service.len ||
        (*service && !grpc_call_has_service(call, service))) {
        call_fail(call, STATUS_NOT_FOUND, "there is no such service here");
        return;
    }
    reconciler_get_health(call->surroundings->reconciler, &health);
    response.status = health.synced && !health.degraded
                          ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                          : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
    call_reply(call, &response.base);
}

const struct call_method health_methods[] = {
    {"/grpc.health.v1.Health/Check", &grpc__health__v1__health_check_request__descriptor, check},
    {NULL, NULL, NULL},
};
