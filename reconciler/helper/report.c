/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - see helper.h. */
#include "reconciler/helper/helper.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"

enum { VERSION = 1, DEPTH = 4 };

/* How the report spells each code, and what it means for a resize. Of a volume that is not mounted
 * at a place, or not yet, the helper finds no mount or the directory below it, which has no block
 * device. */
static const struct {
    const char *name;
    enum volume_reason reason;
} faults[HELPER_FAULTS] = {
    [HELPER_FAULT_NONE] = {"", REASON_NONE},
    [HELPER_FAULT_NOT_MOUNTED] = {"not_mounted", REASON_GUEST_PATH_UNKNOWN},
    [HELPER_FAULT_NOT_A_BLOCK_DEVICE] = {"not_a_block_device", REASON_GUEST_PATH_UNKNOWN},
    [HELPER_FAULT_UNSUPPORTED] = {"unsupported", REASON_FILE_SYSTEM_NOT_GROWABLE},
    [HELPER_FAULT_REFUSED] = {"refused", REASON_FILE_SYSTEM_NOT_GROWABLE},
    [HELPER_FAULT_READ_ONLY] = {"read_only", REASON_READ_ONLY},
    [HELPER_FAULT_ERRORS] = {"errors", REASON_FILE_SYSTEM_NOT_GROWABLE},
    [HELPER_FAULT_SHUT_DOWN] = {"shut_down", REASON_FILE_SYSTEM_SHUT_DOWN},
    [HELPER_FAULT_NO_CAPABILITY] = {"no_capability", REASON_HELPER_FAILED},
    [HELPER_FAULT_BUSY] = {"busy", REASON_AGENT_FAILED},
    [HELPER_FAULT_TIMED_OUT] = {"timed_out", REASON_AGENT_FAILED},
    [HELPER_FAULT_LIMIT] = {"limit", REASON_FILE_SYSTEM_LIMIT},
    [HELPER_FAULT_GROWING] = {"growing", REASON_GROWING},
    [HELPER_FAULT_FAILED] = {"failed", REASON_AGENT_FAILED},
};

static void take_text(const cJSON *object, const char *name, char *ret_text, size_t size)
{
    const char *text = json_string(object, name);

    if (text)
        text_clean(text, strlen(text), ret_text, size);
}

/* 0 also for sizes from 2^53 on (8 PiB), which cJSON has as doubles: such a resize is unverified.
 */
static uint64_t number_of(const cJSON *object, const char *name)
{
    uint64_t number = 0;

    (void)json_number(object, name, &number);
    return number;
}

/* A file system without any blocks was not examined. */
static void take_stats(const cJSON *object, struct agent_stats *stats)
{
    const char *condition = json_string(object, "condition");

    stats->total = number_of(object, "total");
    stats->used = number_of(object, "used");
    stats->available = number_of(object, "available");
    stats->has_bytes = stats->total > 0;
    stats->total_inodes = number_of(object, "total_inodes");
    stats->used_inodes = number_of(object, "used_inodes");
    stats->available_inodes = number_of(object, "available_inodes");
    stats->has_inodes = stats->total_inodes > 0;
    stats->abnormal = condition && strcmp(condition, "abnormal") == 0;
    take_text(object, "message", stats->condition, sizeof(stats->condition));
}

static int take_volume(const cJSON *object, const char *expected, struct helper_volume *volume,
                       struct error *error)
{
    const char *path = json_string(object, "path"), *fault = json_string(object, "error");

    if (!path || strcmp(path, expected) != 0)
        return error_set(error, -EBADMSG, "the helper's report has another path than %s", expected);
    if (!fault)
        return error_set(error, -EBADMSG, "the helper's report lacks the error of %s", expected);
    volume->fault = HELPER_FAULT_NONE;
    while (volume->fault < HELPER_FAULT_FAILED && strcmp(faults[volume->fault].name, fault) != 0)
        volume->fault++;
    take_text(object, "error_text", volume->text, sizeof(volume->text));
    if (volume->fault != HELPER_FAULT_NONE && !volume->text[0])
        text_clean(fault, strlen(fault), volume->text, sizeof(volume->text));
    take_text(object, "layer", volume->layer, sizeof(volume->layer));
    volume->device_bytes = number_of(object, "device_bytes");
    take_stats(object, &volume->stats);
    return 0;
}

int helper_report_parse(const char *text, size_t length, const char *const *path, unsigned paths,
                        struct helper_report *ret_report, struct error *error)
{
    static const struct json_limits limits = {HELPER_REPORT_BYTES, DEPTH, 4096};
    static const char names[] =
        "version volumes{path error error_text layer device_bytes condition message"
        " total used available total_inodes used_inodes available_inodes}";
    cleanup(json_deletep) cJSON *object = NULL;
    const cJSON *volumes, *volume;
    uint64_t version = 0;
    unsigned count = 0;
    int r;

    *ret_report = (struct helper_report){0};
    if (paths > HELPER_VOLUMES)
        return error_set(error, -EBADMSG, "more than %d paths in one report", HELPER_VOLUMES);
    r = json_read(text, length, limits, names, &object, error);
    if (r != FILE_READ) {
        (void)error_prefix(error, "the helper's report: ");
        return -EBADMSG;
    }
    if (json_number(object, "version", &version) != JSON_NUMBER || version != VERSION)
        return error_set(error, -EBADMSG, "the helper's report is not of version %d", VERSION);
    volumes = json_member(object, "volumes");
    if (!cJSON_IsArray(volumes))
        return error_set(error, -EBADMSG, "the helper's report has no volumes");
    cJSON_ArrayForEach(volume, volumes)
    {
        if (count == paths)
            return error_set(error, -EBADMSG, "the helper's report has more than %u paths", paths);
        r = take_volume(volume, path[count], &ret_report->volume[count], error);
        if (r < 0)
            return r;
        ret_report->volumes = ++count;
    }
    return count == paths
               ? 0
               : error_set(error, -EBADMSG, "the helper's report has %u paths of %u", count, paths);
}

/* ---- judge ---------------------------------------------------------------------------------- */

static void say(struct helper_verdict *verdict, enum volume_reason reason, const char *text)
{
    verdict->reason = reason;
    (void)snprintf(verdict->text, sizeof(verdict->text), "%s", text);
}

static void judge_one(const struct helper_volume *volume, uint64_t device_bytes, bool grew,
                      struct helper_verdict *verdict)
{
    verdict->device_bytes = volume->device_bytes;
    verdict->stats = volume->stats;
    if (grew || (volume->fault != HELPER_FAULT_NONE && !volume->stats.has_bytes))
        say(verdict, faults[volume->fault].reason, volume->text);
    /* The helper reported success, and the device may not have the expected size. */
    if (!grew || verdict->reason != REASON_NONE || !volume->device_bytes ||
        volume->device_bytes >= device_bytes)
        return;
    if (volume->layer[0]) {
        say(verdict, REASON_GUEST_LAYER_UNSUPPORTED, volume->layer);
        return;
    }
    verdict->reason = REASON_AGENT_FAILED;
    (void)snprintf(verdict->text, sizeof(verdict->text),
                   "the guest's device has %" PRIu64 " bytes and not yet %" PRIu64,
                   volume->device_bytes, device_bytes);
}

/* Several devices may have this size: a resize is judged by all of them together, and usage is
 * unknown. */
void helper_judge(const struct helper_volume *volume, unsigned volumes, uint64_t device_bytes,
                  bool grew, struct helper_verdict *ret_verdict)
{
    const struct helper_volume *alike[HELPER_VOLUMES], *mounted = NULL;
    unsigned alikes = 0, mounts = 0;

    *ret_verdict = (struct helper_verdict){0};
    for (unsigned i = 0; i < volumes; i++) {
        if (volume[i].fault == HELPER_FAULT_NOT_MOUNTED ||
            volume[i].fault == HELPER_FAULT_NOT_A_BLOCK_DEVICE)
            continue;
        mounted = &volume[i];
        mounts++;
        if (!device_bytes || volume[i].device_bytes == device_bytes)
            alike[alikes++] = &volume[i];
    }
    if (volumes == 1) {
        judge_one(volume, device_bytes, grew, ret_verdict);
    } else if (alikes == 1 || (alikes == 0 && mounts == 1)) {
        judge_one(alikes ? alike[0] : mounted, device_bytes, grew, ret_verdict);
    } else if (alikes > 1) {
        for (unsigned i = 0; i < alikes && ret_verdict->reason == REASON_NONE; i++)
            judge_one(alike[i], device_bytes, grew, ret_verdict);
        ret_verdict->stats = (struct agent_stats){0};
        if (!grew)
            say(ret_verdict, REASON_GUEST_PATH_UNKNOWN,
                "several devices of the guest have this size and could be the volume");
    } else {
        say(ret_verdict, REASON_GUEST_PATH_UNKNOWN,
            "no place in the guest that could be the volume's has a device of its size");
    }
}
