/* SPDX-License-Identifier: Apache-2.0 */
/* answers.c - the table of cases; a volume's reasons have theirs in model/reason.c.
 *
 * FAILED_PRECONDITION stops the kubelet for as long as the volume stays on the node, so only
 * refusals have it that nothing on the node can change, not even a restart of the pod. INTERNAL,
 * UNKNOWN, UNIMPLEMENTED and PERMISSION_DENIED keep pods from starting and are retried
 * nevertheless, so no refusal has them. Refusals that may heal have UNAVAILABLE.
 */
#include "reconciler/command/answers.h"

#include "store/store.h"

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

const char *answer_name(enum answer answer)
{
    return answers[answer].name;
}

enum status_code answer_code(enum answer answer)
{
    return answers[answer].code;
}

enum status_code answer_database_fails(const struct store *store, struct error *error)
{
    return answer_refuse(error, ANSWER_DATABASE, "the database fails: %s", store_error_text(store));
}

enum status_code require_durable(const struct store *store, struct error *error)
{
    if (!store_is_degraded(store))
        return STATUS_OK;
    return answer_refuse(error, ANSWER_DATABASE,
                         "the database is not on disk, so that nothing can be promised: crustctl "
                         "health says why");
}
