/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_cli_answer.c - parses the answer of a runtime's tool and checks it against the device.
 *
 * Pure. A file system is not larger than its device and holds no more than its size, and a resize
 * reaches the size that was asked for: any other answer is about something else.
 */
#include <errno.h>
#include <inttypes.h>

#include "agent-client/shim_client.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "reconciler/command/runtime_cli.h"

static int check_end(enum child_end end, int status, struct error *error)
{
    switch (end) {
    case CHILD_EXITED:
        return status == 0 ? 0 : error_set(error, -EIO, "it ended with exit code %d", status);
    case CHILD_KILLED:
        return error_set(error, -EIO, "it was ended by signal %d", status);
    case CHILD_TIMEOUT:
        return error_set(error, -ETIMEDOUT, "it did not end within its time");
    case CHILD_FLOOD:
        break;
    }
    return error_set(error, -EMSGSIZE, "it said more than %d bytes", RUNTIME_CLI_OUTPUT_BYTES);
}

int runtime_cli_read_stats(enum child_end end, int status, const struct buffer *output,
                           struct agent_stats *ret_stats, struct error *error)
{
    struct agent_stats stats;
    int r = check_end(end, status, error);

    if (r < 0)
        return r;
    r = shim_parse_stats(SHIM_GO, buffer_text(output), output->length, &stats);
    if (r < 0 || (!stats.has_bytes && !stats.has_inodes))
        return error_set(error, r < 0 ? r : -EBADMSG, "what it said is not understood");
    *ret_stats = stats;
    return 0;
}

int runtime_cli_read_capacity(enum child_end end, int status, const struct buffer *output,
                              uint64_t *ret_bytes, struct error *error)
{
    cleanup(json_deletep) cJSON *object = NULL;
    int r = check_end(end, status, error);

    if (r < 0)
        return r;
    r = json_parse(buffer_text(output), output->length, JSON_LIMITS_HTTP, &object, error);
    if (r == 0 && json_number(object, "capacity_bytes", ret_bytes) != JSON_NUMBER)
        r = -EBADMSG;
    return r < 0 ? error_set(error, r, "what it said is not understood") : 0;
}

/* ---- against the device ---- */

static int check_parts(const char *of, uint64_t total, uint64_t used, uint64_t available,
                       struct error *error)
{
    if (used <= total && available <= total)
        return 0;
    return error_set(error, -ERANGE,
                     "it says that of %" PRIu64 " %s %" PRIu64 " are used and %" PRIu64
                     " available",
                     total, of, used, available);
}

static int check_size(uint64_t bytes, uint64_t device_bytes, struct error *error)
{
    if (device_bytes == 0)
        return error_set(error, -ERANGE, "the device is not there to hold its answer against");
    if (bytes > device_bytes)
        return error_set(error, -ERANGE, "it says %" PRIu64 " bytes, and the device has %" PRIu64,
                         bytes, device_bytes);
    return bytes > 0 ? 0 : error_set(error, -ERANGE, "it says that the volume has no bytes");
}

int runtime_cli_check_stats(const struct agent_stats *stats, uint64_t device_bytes,
                            struct error *error)
{
    int r = 0;

    if (stats->has_bytes)
        r = check_size(stats->total, device_bytes, error);
    if (r == 0 && stats->has_bytes)
        r = check_parts("bytes", stats->total, stats->used, stats->available, error);
    if (r == 0 && stats->has_inodes)
        r = check_parts("inodes", stats->total_inodes, stats->used_inodes, stats->available_inodes,
                        error);
    return r;
}

int runtime_cli_check_capacity(uint64_t bytes, uint64_t required_bytes, uint64_t limit_bytes,
                               uint64_t device_bytes, struct error *error)
{
    int r = check_size(bytes, device_bytes, error);

    if (r < 0)
        return r;
    if (bytes < required_bytes)
        return error_set(error, -ERANGE, "it says %" PRIu64 " bytes where %" PRIu64 " are required",
                         bytes, required_bytes);
    if (limit_bytes && bytes > limit_bytes)
        return error_set(error, -ERANGE,
                         "it says %" PRIu64 " bytes where %" PRIu64 " are the limit", bytes,
                         limit_bytes);
    return 0;
}
