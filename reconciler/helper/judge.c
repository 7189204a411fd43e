/* SPDX-License-Identifier: Apache-2.0 */
/* judge.c - see report.h.
 *
 * The container binds a place whatever is there: if the volume is not mounted there, or not yet,
 * the helper finds the directory, which has no block device.
 */
#include "reconciler/helper/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const enum volume_reason resize_reasons[HELPER_FAULTS] = {
    [HELPER_FAULT_NONE] = REASON_NONE,
    [HELPER_FAULT_NOT_MOUNTED] = REASON_GUEST_PATH_UNKNOWN,
    [HELPER_FAULT_NOT_A_BLOCK_DEVICE] = REASON_GUEST_PATH_UNKNOWN,
    [HELPER_FAULT_UNSUPPORTED] = REASON_FILE_SYSTEM_NOT_GROWABLE,
    [HELPER_FAULT_REFUSED] = REASON_FILE_SYSTEM_NOT_GROWABLE,
    [HELPER_FAULT_READ_ONLY] = REASON_READ_ONLY,
    [HELPER_FAULT_ERRORS] = REASON_FILE_SYSTEM_NOT_GROWABLE,
    [HELPER_FAULT_SHUT_DOWN] = REASON_FILE_SYSTEM_SHUT_DOWN,
    [HELPER_FAULT_NO_CAPABILITY] = REASON_HELPER_FAILED,
    [HELPER_FAULT_BUSY] = REASON_AGENT_FAILED,
    [HELPER_FAULT_TIMED_OUT] = REASON_AGENT_FAILED,
    [HELPER_FAULT_LIMIT] = REASON_FILE_SYSTEM_LIMIT,
    [HELPER_FAULT_GROWING] = REASON_GROWING,
    [HELPER_FAULT_FAILED] = REASON_AGENT_FAILED,
};

static void say(struct helper_verdict *verdict, enum volume_reason reason, const char *text)
{
    verdict->reason = reason;
    (void)snprintf(verdict->text, sizeof(verdict->text), "%s", text);
}

/* The helper reported success; checks whether the device has the expected size. */
static void judge_size(const struct helper_volume *volume, uint64_t device_bytes,
                       struct helper_verdict *verdict)
{
    if (!volume->device_bytes || volume->device_bytes >= device_bytes)
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

static void judge_one(const struct helper_volume *volume, uint64_t device_bytes, bool grew,
                      struct helper_verdict *verdict)
{
    verdict->device_bytes = volume->device_bytes;
    verdict->stats = volume->stats;
    if (grew)
        say(verdict, resize_reasons[volume->fault], volume->text);
    else if (volume->fault != HELPER_FAULT_NONE && !volume->stats.has_bytes)
        say(verdict, resize_reasons[volume->fault], volume->text);
    if (grew && verdict->reason == REASON_NONE)
        judge_size(volume, device_bytes, verdict);
}

struct choice {
    const struct helper_volume *found;
    unsigned count;
};

static bool has_device(const struct helper_volume *volume)
{
    return volume->fault != HELPER_FAULT_NOT_MOUNTED &&
           volume->fault != HELPER_FAULT_NOT_A_BLOCK_DEVICE;
}

static struct choice choose(const struct helper_volume *volume, unsigned volumes,
                            uint64_t device_bytes)
{
    struct choice choice = {0};

    for (unsigned i = 0; i < volumes; i++) {
        if (!has_device(&volume[i]) || (device_bytes && volume[i].device_bytes != device_bytes))
            continue;
        if (choice.count++ == 0)
            choice.found = &volume[i];
    }
    return choice;
}

/* Several devices have this size: a resize is judged by all of them together, and usage is
 * unknown. */
static void judge_alike(const struct helper_volume *volume, unsigned volumes, uint64_t device_bytes,
                        bool grew, struct helper_verdict *verdict)
{
    for (unsigned i = 0; i < volumes && verdict->reason == REASON_NONE; i++)
        if (has_device(&volume[i]) && volume[i].device_bytes == device_bytes)
            judge_one(&volume[i], device_bytes, grew, verdict);
    verdict->stats = (struct agent_stats){0};
    if (!grew)
        say(verdict, REASON_GUEST_PATH_UNKNOWN,
            "several devices of the guest have this size and could be the volume");
}

void helper_judge(const struct helper_volume *volume, unsigned volumes, uint64_t device_bytes,
                  bool grew, struct helper_verdict *ret_verdict)
{
    struct choice alike = choose(volume, volumes, device_bytes), mounted;

    *ret_verdict = (struct helper_verdict){0};
    if (volumes == 1) {
        judge_one(volume, device_bytes, grew, ret_verdict);
        return;
    }
    if (alike.count > 1) {
        judge_alike(volume, volumes, device_bytes, grew, ret_verdict);
        return;
    }
    mounted = choose(volume, volumes, 0);
    if (alike.count == 1 || mounted.count == 1)
        judge_one(alike.count == 1 ? alike.found : mounted.found, device_bytes, grew, ret_verdict);
    else
        say(ret_verdict, REASON_GUEST_PATH_UNKNOWN,
            "no place in the guest that could be the volume's has a device of its size");
}
