/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - see report.h. */
#include "reconciler/helper/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"

enum { VERSION = 1, DEPTH = 4, PATH_BYTES = 24 };

static const char *const faults[HELPER_FAULTS] = {
    [HELPER_FAULT_NONE] = "",
    [HELPER_FAULT_NOT_MOUNTED] = "not_mounted",
    [HELPER_FAULT_NOT_A_BLOCK_DEVICE] = "not_a_block_device",
    [HELPER_FAULT_UNSUPPORTED] = "unsupported",
    [HELPER_FAULT_REFUSED] = "refused",
    [HELPER_FAULT_READ_ONLY] = "read_only",
    [HELPER_FAULT_ERRORS] = "errors",
    [HELPER_FAULT_SHUT_DOWN] = "shut_down",
    [HELPER_FAULT_NO_CAPABILITY] = "no_capability",
    [HELPER_FAULT_BUSY] = "busy",
    [HELPER_FAULT_TIMED_OUT] = "timed_out",
    [HELPER_FAULT_LIMIT] = "limit",
    [HELPER_FAULT_GROWING] = "growing",
    [HELPER_FAULT_FAILED] = "failed",
};

const char *helper_fault_name(enum helper_fault fault)
{
    return faults[fault];
}

static enum helper_fault find_fault(const char *name)
{
    for (unsigned i = 0; i < HELPER_FAULTS; i++)
        if (strcmp(faults[i], name) == 0)
            return i;
    return HELPER_FAULT_FAILED;
}

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

static int take_volume(const cJSON *object, unsigned index, struct helper_volume *volume,
                       struct error *error)
{
    const char *path = json_string(object, "path"), *fault = json_string(object, "error");
    char expected[PATH_BYTES];

    (void)snprintf(expected, sizeof(expected), "/vol/%u", index);
    if (!path || strcmp(path, expected) != 0)
        return error_set(error, -EBADMSG, "the helper's report has another path than %s", expected);
    if (!fault)
        return error_set(error, -EBADMSG, "the helper's report lacks the error of %s", expected);
    volume->fault = find_fault(fault);
    take_text(object, "error_text", volume->text, sizeof(volume->text));
    if (volume->fault != HELPER_FAULT_NONE && !volume->text[0])
        text_clean(fault, strlen(fault), volume->text, sizeof(volume->text));
    take_text(object, "layer", volume->layer, sizeof(volume->layer));
    volume->device_bytes = number_of(object, "device_bytes");
    take_stats(object, &volume->stats);
    return 0;
}

static int take_volumes(const cJSON *volumes, unsigned paths, struct helper_report *report,
                        struct error *error)
{
    const cJSON *object;

    cJSON_ArrayForEach(object, volumes)
    {
        int r;

        if (report->volumes == paths)
            return error_set(error, -EBADMSG, "the helper's report has more than %u paths", paths);
        r = take_volume(object, report->volumes, &report->volume[report->volumes], error);
        if (r < 0)
            return r;
        report->volumes++;
    }
    return report->volumes == paths
               ? 0
               : error_set(error, -EBADMSG, "the helper's report has %u paths of %u",
                           report->volumes, paths);
}

int helper_report_parse(const char *text, size_t length, unsigned paths,
                        struct helper_report *ret_report, struct error *error)
{
    static const struct json_limits limits = {HELPER_REPORT_BYTES, DEPTH, 4096};
    static const char names[] =
        "version volumes{path error error_text layer device_bytes condition message"
        " total used available total_inodes used_inodes available_inodes}";
    cleanup(json_deletep) cJSON *object = NULL;
    const cJSON *volumes;
    uint64_t version = 0;
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
    return take_volumes(volumes, paths, ret_report, error);
}
