/* answers.c - the tables of statuses, one of cases and one of a volume's reasons.
 *
 * FAILED_PRECONDITION stops the kubelet for as long as the volume stays on the node, so it stands
 * only where nothing on the node, the pod's own restart included, makes a difference. INTERNAL,
 * UNKNOWN, UNIMPLEMENTED and PERMISSION_DENIED keep pods from starting and are retried all the
 * same, so no refusal has them. What may heal has UNAVAILABLE.
 */
#include "reconciler/command/answers.h"

static const struct {
    const char *name;
    enum status_code code;
} answers[ANSWERS] = {
    [ANSWER_BAD_REQUEST] = {"bad_request", STATUS_INVALID_ARGUMENT},
    [ANSWER_NETWORK_VOLUME] = {"network_volume", STATUS_FAILED_PRECONDITION},
    [ANSWER_FILE_SYSTEM] = {"file_system", STATUS_INVALID_ARGUMENT},
    [ANSWER_AMBIGUOUS_DEVICE] = {"ambiguous_device", STATUS_INVALID_ARGUMENT},
    [ANSWER_NOT_SYNCED] = {"not_synced", STATUS_UNAVAILABLE},
    [ANSWER_UNKNOWN_VOLUME] = {"unknown_volume", STATUS_UNAVAILABLE},
    [ANSWER_UNKNOWN_NUMBER] = {"unknown_number", STATUS_NOT_FOUND},
    [ANSWER_UNKNOWN_TO_STATS] = {"unknown_to_stats", STATUS_NOT_FOUND},
    [ANSWER_UNKNOWN_SANDBOX] = {"unknown_sandbox", STATUS_UNAVAILABLE},
    [ANSWER_NO_SANDBOX] = {"no_sandbox", STATUS_UNAVAILABLE},
    [ANSWER_DEVICE_TOO_SMALL] = {"device_too_small", STATUS_UNAVAILABLE},
    [ANSWER_DEVICE_TOO_LARGE] = {"device_too_large", STATUS_OUT_OF_RANGE},
    [ANSWER_DEVICE_SHRUNK] = {"device_shrunk", STATUS_OUT_OF_RANGE},
    [ANSWER_DEVICE_HELD] = {"device_held", STATUS_UNAVAILABLE},
    [ANSWER_NOT_STAGED] = {"not_staged", STATUS_UNAVAILABLE},
    [ANSWER_NAME_TAKEN] = {"name_taken", STATUS_UNAVAILABLE},
    [ANSWER_TOO_MANY_VOLUMES] = {"too_many_volumes", STATUS_RESOURCE_EXHAUSTED},
    [ANSWER_BUSY] = {"busy", STATUS_UNAVAILABLE},
    [ANSWER_OUT_OF_MEMORY] = {"out_of_memory", STATUS_RESOURCE_EXHAUSTED},
    [ANSWER_DATABASE] = {"database", STATUS_UNAVAILABLE},
    [ANSWER_STOPPING] = {"stopping", STATUS_UNAVAILABLE},
};

static const enum status_code reason_codes[REASONS] = {
    [REASON_INVALID_MOUNT_INFO] = STATUS_UNAVAILABLE,
    [REASON_POLICY] = STATUS_FAILED_PRECONDITION,
    [REASON_NOT_A_BLOCK_DEVICE] = STATUS_FAILED_PRECONDITION,
    [REASON_NO_DEVICE] = STATUS_UNAVAILABLE,
    [REASON_MULTIPLE_SANDBOXES] = STATUS_UNAVAILABLE,
    [REASON_DEVICE_SHARED] = STATUS_UNAVAILABLE,
    [REASON_HOST_IN_USE] = STATUS_UNAVAILABLE,
    [REASON_IDENTITY_MISMATCH] = STATUS_UNAVAILABLE,
    [REASON_ENTRIES_DISAGREE] = STATUS_UNAVAILABLE,
    [REASON_BYPASSED] = STATUS_UNAVAILABLE,
    [REASON_MONITOR_MISSING] = STATUS_UNAVAILABLE,
    [REASON_HYPERVISOR_BUSY] = STATUS_UNAVAILABLE,
    [REASON_HYPERVISOR_UNREACHABLE] = STATUS_UNAVAILABLE,
    [REASON_HYPERVISOR_UNSUPPORTED] = STATUS_UNAVAILABLE,
    [REASON_HYPERVISOR_VERSION] = STATUS_UNAVAILABLE,
    [REASON_HYPERVISOR_REFUSED] = STATUS_UNAVAILABLE,
    [REASON_DRIVE_NOT_FOUND] = STATUS_UNAVAILABLE,
    [REASON_READ_ONLY] = STATUS_FAILED_PRECONDITION,
    [REASON_AGENT_UNREACHABLE] = STATUS_UNAVAILABLE,
    [REASON_AGENT_UNSUPPORTED] = STATUS_UNAVAILABLE,
    [REASON_AGENT_DENIED] = STATUS_FAILED_PRECONDITION,
    [REASON_AGENT_FAILED] = STATUS_UNAVAILABLE,
    [REASON_GUEST_PATH_UNKNOWN] = STATUS_UNAVAILABLE,
    [REASON_GUEST_LAYER_UNSUPPORTED] = STATUS_FAILED_PRECONDITION,
    [REASON_HOST_STALE] = STATUS_UNAVAILABLE,
    [REASON_HOST_LAYER_PENDING] = STATUS_UNAVAILABLE,
};

const char *answer_name(enum answer answer)
{
    return answers[answer].name;
}

enum status_code answer_code(enum answer answer)
{
    return answers[answer].code;
}

enum status_code answer_code_of_reason(enum volume_reason reason)
{
    /* Neither a reason that is new here nor the lack of one reads as success. */
    return reason_codes[reason] == STATUS_OK ? STATUS_UNAVAILABLE : reason_codes[reason];
}
