/* SPDX-License-Identifier: Apache-2.0 */
/* crust_management.c - crust.management.v1: turns requests of a kubelet into the reconciler's
 * commands.
 *
 * The capabilities that are reported are those that work on this node (docs/operations.md has the
 * table and the reasons). Publishing a volume means staging it with a known sandbox: the sandbox's
 * id is recorded beside its metadata. Kata's Go runtime does the same when it uses the volume, its
 * Rust runtime does not.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/crust_calls.h"
#include "api/proto/crust_management.pb-c.h"
#include "lib/cleanup.h"
#include "lib/proto.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/command.h"

/* ---- capabilities ---- */

struct capability {
    Crust__Management__V1__RuntimeCapability outer;
    Crust__Management__V1__RuntimeCapability__RPC rpc;
};

/* Sets the capability of this name. false: the proto has none. */
static bool name_capability(struct capability *capability, const char *name)
{
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value_by_name(
        &crust__management__v1__runtime_capability__rpc__type__descriptor, name);

    if (!value)
        return false;
    crust__management__v1__runtime_capability__init(&capability->outer);
    crust__management__v1__runtime_capability__rpc__init(&capability->rpc);
    capability->outer.type_case = CRUST__MANAGEMENT__V1__RUNTIME_CAPABILITY__TYPE_RPC;
    capability->outer.rpc = &capability->rpc;
    capability->rpc.type = (Crust__Management__V1__RuntimeCapability__RPC__Type)value->value;
    return true;
}

static void get_capabilities(struct grpc_call *call, const ProtobufCMessage *message)
{
    Crust__Management__V1__RuntimeGetCapabilitiesResponse response =
        CRUST__MANAGEMENT__V1__RUNTIME_GET_CAPABILITIES_RESPONSE__INIT;
    struct capability capability[RECONCILER_NAMES];
    Crust__Management__V1__RuntimeCapability *capabilities[RECONCILER_NAMES];
    struct reconciler_names names;
    struct error error;

    (void)message;
    if (reconciler_find_capabilities(grpc_call_reconciler(call), &names, &error) < 0) {
        grpc_call_fail(call, answer_code(ANSWER_DATABASE), "%s", error.text);
        return;
    }
    response.capabilities = capabilities;
    for (unsigned i = 0; i < names.count; i++)
        if (name_capability(&capability[i], names.name[i]))
            capabilities[response.n_capabilities++] = &capability[i].outer;
    grpc_call_reply(call, &response.base);
}

static void get_file_systems(struct grpc_call *call, const ProtobufCMessage *message)
{
    Crust__Management__V1__RuntimeGetSupportedFileSystemsResponse response =
        CRUST__MANAGEMENT__V1__RUNTIME_GET_SUPPORTED_FILE_SYSTEMS_RESPONSE__INIT;
    ProtobufCBinaryData text[RECONCILER_NAMES];
    struct reconciler_names names;

    (void)message;
    if (reconciler_find_file_systems(grpc_call_reconciler(call), &names) < 0) {
        grpc_call_fail(call, answer_code(ANSWER_DATABASE), "the database fails");
        return;
    }
    response.file_systems = text;
    for (unsigned i = 0; i < names.count; i++)
        text[response.n_file_systems++] = proto_borrow_text(names.name[i]);
    grpc_call_reply(call, &response.base);
}

/* ---- publish ---- */

struct publish_texts {
    char sandbox_id[CRUST_WORD_BYTES + 1];
    char device[CRUST_PATH_BYTES];
    char target_path[CRUST_PATH_BYTES];
    char fs_type[CRUST_WORD_BYTES];
    char group[16];
    char policy[CRUST_WORD_BYTES];
    struct crust_options options;
};

static enum status_code
take_texts(const Crust__Management__V1__RuntimePublishVolumeRequest *request,
           struct publish_texts *texts, struct error *error)
{
    enum status_code code = crust_take_text(&request->sandbox_id, "sandbox_id", texts->sandbox_id,
                                            sizeof(texts->sandbox_id), error);

    if (code == STATUS_OK)
        code = crust_take_text(&request->host_volume_id, "host_volume_id", texts->device,
                               sizeof(texts->device), error);
    if (code == STATUS_OK)
        code = crust_take_text(&request->host_target_path, "host_target_path", texts->target_path,
                               sizeof(texts->target_path), error);
    if (code == STATUS_OK)
        code = crust_take_text(&request->file_system, "file_system", texts->fs_type,
                               sizeof(texts->fs_type), error);
    if (code == STATUS_OK)
        code = crust_take_text(&request->fsgroup_policy, "fsgroup_policy", texts->policy,
                               sizeof(texts->policy), error);
    return code == STATUS_OK ? crust_take_options(request->mount_options, request->n_mount_options,
                                                  "mount_options", &texts->options, error)
                             : code;
}

static enum status_code take_group(int32_t group, struct publish_texts *texts,
                                   struct reconciler_stage *asked, struct error *error)
{
    if (group < 0)
        return answer_refuse(error, ANSWER_BAD_REQUEST, "fsgroup_gid is negative");
    if (texts->policy[0] && strcmp(texts->policy, "Always") != 0 &&
        strcmp(texts->policy, "OnRootMismatch") != 0)
        return answer_refuse(error, ANSWER_BAD_REQUEST, "fsgroup_policy is unknown");
    (void)snprintf(texts->group, sizeof(texts->group), "%" PRId32, group);
    asked->group = group ? texts->group : NULL;
    asked->group_policy = texts->policy[0] ? texts->policy : NULL;
    return STATUS_OK;
}

static void publish(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__Management__V1__RuntimePublishVolumeRequest *request =
        (const Crust__Management__V1__RuntimePublishVolumeRequest *)(const void *)message;
    struct publish_texts texts = {.options = CRUST_OPTIONS_INIT};
    struct reconciler_stage asked = {.target_path = texts.target_path,
                                     .device = texts.device,
                                     .fs_type = texts.fs_type,
                                     .options = (unsigned)request->n_mount_options,
                                     .option = texts.options.option,
                                     .sandbox_id = texts.sandbox_id};
    struct error error = {0};
    enum status_code code = take_texts(request, &texts, &error);

    if (code == STATUS_OK)
        code = take_group(request->fsgroup_gid, &texts, &asked, &error);
    crust_stage(call, code, &asked, &error);
    crust_options_done(&texts.options);
}

/* ---- a volume in its sandbox ---- */

struct target_texts {
    char sandbox_id[CRUST_WORD_BYTES + 1];
    char device[CRUST_PATH_BYTES];
};

static enum status_code take_target(const ProtobufCBinaryData *sandbox_id,
                                    const ProtobufCBinaryData *host_volume_id,
                                    struct target_texts *texts,
                                    struct reconciler_target *ret_target, struct error *error)
{
    enum status_code code = crust_take_text(sandbox_id, "sandbox_id", texts->sandbox_id,
                                            sizeof(texts->sandbox_id), error);

    if (code == STATUS_OK)
        code = crust_take_text(host_volume_id, "host_volume_id", texts->device,
                               sizeof(texts->device), error);
    *ret_target =
        (struct reconciler_target){.sandbox_id = texts->sandbox_id, .device = texts->device};
    return code;
}

static void get_stats(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__Management__V1__RuntimeGetVolumeStatsRequest *request =
        (const Crust__Management__V1__RuntimeGetVolumeStatsRequest *)(const void *)message;
    struct target_texts texts;
    struct reconciler_target target;
    struct error error = {0};
    enum status_code code =
        take_target(&request->sandbox_id, &request->host_volume_id, &texts, &target, &error);

    crust_count(call, code, &target, &error);
}

static void expand(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Crust__Management__V1__RuntimeExpandVolumeRequest *request =
        (const Crust__Management__V1__RuntimeExpandVolumeRequest *)(const void *)message;
    struct target_texts texts;
    struct reconciler_expand asked = {.required_bytes = (uint64_t)request->required_bytes};
    struct error error = {0};
    enum status_code code =
        take_target(&request->sandbox_id, &request->host_volume_id, &texts, &asked.target, &error);

    if (code == STATUS_OK && request->required_bytes < 0)
        code = answer_refuse(&error, ANSWER_BAD_REQUEST, "required_bytes is negative");
    crust_expand(call, code, &asked, &error);
}

#define SERVICE "/crust.management.v1.RuntimeAssistedStorageManagement/"

const struct grpc_method crust_management_methods[] = {
    {SERVICE "RuntimeGetCapabilities",
     &crust__management__v1__runtime_get_capabilities_request__descriptor, get_capabilities},
    {SERVICE "RuntimeGetSupportedFileSystems",
     &crust__management__v1__runtime_get_supported_file_systems_request__descriptor,
     get_file_systems},
    {SERVICE "RuntimePublishVolume",
     &crust__management__v1__runtime_publish_volume_request__descriptor, publish},
    {SERVICE "RuntimeGetVolumeStats",
     &crust__management__v1__runtime_get_volume_stats_request__descriptor, get_stats},
    {SERVICE "RuntimeExpandVolume",
     &crust__management__v1__runtime_expand_volume_request__descriptor, expand},
    {NULL, NULL, NULL},
};
