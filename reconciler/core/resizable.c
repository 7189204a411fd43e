/* SPDX-License-Identifier: Apache-2.0 */
/* resizable.c - records whether a resize of a volume would reach its file system.
 *
 * This needs no request of its own: the VMM's list is read at each binding, and each binding gets
 * one ResizeVolume, by whichever route into the guest works. So it is judged whenever the volume
 * is.
 */
#include <string.h>

#include "hypervisor/hypervisor.h"
#include "lib/log.h"
#include "reconciler/core/context.h"
#include "reconciler/core/permit.h"
#include "reconciler/core/volume_steps.h"
#include "reconciler/decide/resizable.h"

/* ---- the drive ---- */

static bool may_tell_vmm(const struct context *context, const struct store_volume *volume)
{
    return hypervisor_has_client(volume->hypervisor) &&
           !permit_find_forbidding(context->config, volume->hypervisor);
}

static void judge_monitor(const struct context *context, const struct store_volume *volume,
                          struct resizable_facts *facts)
{
    bool is_seen = volume->list == STORE_LIST_HAS && volume->obstacle_known;

    facts->monitor_reason = volume->obstacle;
    if (is_seen && facts->monitor_reason != REASON_NONE) {
        facts->monitor = MONITOR_UNABLE;
    } else if (!may_tell_vmm(context, volume)) {
        facts->monitor = MONITOR_UNABLE;
        facts->monitor_reason = REASON_HYPERVISOR_UNSUPPORTED;
    } else {
        facts->monitor = is_seen ? MONITOR_ABLE : MONITOR_UNASKED;
    }
}

/* ---- on the record ---- */

static int record(const struct context *context, const struct store_volume *volume,
                  const char *answer, enum volume_reason reason)
{
    const struct log_ids ids = {volume->volume_id, volume->sandbox_id, volume->device_name, NULL,
                                volume->pv};
    bool changed = false;
    int r = store_set_resizable(context->store, volume, answer, reason, &changed);

    if (r < 0 || !changed || !answer)
        return r;
    if (strcmp(answer, "no") == 0)
        log_info(&ids, "a resize would not reach its file system: %s", reason_name(reason));
    else if (strcmp(volume->resizable, "no") == 0)
        log_info(&ids, "an obstacle to resizes is gone: %s", reason_name(volume->resizable_reason));
    return 0;
}

int resizable_record(const struct context *context, const struct store_volume *volume,
                     const struct decide_facts *resize)
{
    struct decide_facts given = *resize;
    struct resizable_facts facts = {.resize = &given};
    struct resizable resizable;

    if (resize->guest_reason == REASON_GROWING) { /* proof that it can */
        given.guest_reason = REASON_NONE;
        given.guest_proven = true;
    }
    judge_monitor(context, volume, &facts);
    resizable = resizable_decide(&facts);
    return record(context, volume, resizable_name(resizable.answer), resizable.reason);
}
