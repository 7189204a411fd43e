/* SPDX-License-Identifier: Apache-2.0 */
/* volume_pass.c - load → refresh → bind → decide → record. */
#include "reconciler/core/volume_pass.h"

#include <inttypes.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "reconciler/act/actor.h"
#include "reconciler/core/context.h"
#include "reconciler/core/devices.h"
#include "reconciler/core/observer.h"
#include "reconciler/core/permit.h"
#include "reconciler/core/volume_steps.h"
#include "reconciler/core/work_queue.h"

static struct log_ids ids_of(const struct store_volume *volume)
{
    return (struct log_ids){volume->volume_id, volume->sandbox_id, volume->device_name, NULL,
                            volume->pv};
}

/* ---- load and refresh ---- */

static int load(const struct context *context, int64_t volume_id, struct store_volume *ret_volume)
{
    int r = store_get_volume(context->store, volume_id, ret_volume);

    return r == 0 && ret_volume->status == STORE_PRESENT &&
                   !work_queue_devices_are_fresh(context->queue)
               ? devices_refresh(context, ret_volume)
               : r;
}

/* ---- bind and decide ---- */

static int open_resize(const struct context *context, struct store_volume *volume)
{
    uint64_t from = decide_baseline(volume->hypervisor_bytes, volume->first_bytes);
    const struct log_ids ids = ids_of(volume);
    int r = store_open_resize(context->store, volume, from, volume->device_bytes);

    if (r == 0)
        log_info(&ids, "device grew from %" PRIu64 " to %" PRIu64 " bytes", from,
                 volume->device_bytes);
    return r;
}

/* A new or ended binding, or a new resize, is recorded before the volume is decided. */
static int bind_and_decide(const struct volume_pass *pass, struct store_volume *volume,
                           struct decide_facts *ret_facts, struct decision *ret_decision)
{
    const struct context *context = pass->context;
    enum decide_conflict conflict;
    bool mismatch = false;
    int r = binding_refresh(context, volume, &mismatch);

    if (r < 0)
        return r;
    actor_cancel_stale(pass->actor, volume);
    conflict = volume_facts_conflict(pass->devices, volume, mismatch);
    if (volume_facts_show_resize(context, volume, conflict))
        r = open_resize(context, volume);
    *ret_facts = volume_facts_of(context, volume, conflict);
    if (r == 0 && ret_facts->lower == LOWER_STALE && context->config->resize.scsi_rescan)
        r = actor_may_rescan(pass->actor, volume, &ret_facts->may_rescan);
    *ret_decision = decide(ret_facts);
    return r;
}

/* Kata's Rust runtime makes the directory that shows the guest path when the container exists, long
 * after its bundle. */
static bool lacks_guest_path(const struct volume_pass *pass, const struct store_volume *volume,
                             const struct decision *decision)
{
    return decision->action == ACTION_RESIZE_GUEST && volume->guest_path[0] != '/' &&
           !actor_is_acting(pass->actor, volume->volume_id);
}

static int observe_guest_path(const struct volume_pass *pass, struct store_volume *volume)
{
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    int r;

    memcpy(sandbox_id, volume->sandbox_id, sizeof(sandbox_id));
    r = observer_observe_sandbox(pass->observer, sandbox_id);
    return r < 0 ? r : store_reload_volume(pass->context->store, volume);
}

/* ---- record ---- */

static int record_state(const struct context *context, struct store_volume *volume,
                        const struct decision *decision)
{
    const struct log_ids ids = ids_of(volume);
    enum volume_state state = volume->state;
    enum volume_reason reason = volume->reason;
    bool observed = permit_of(context->config, volume) == POLICY_OBSERVE, changed = false;
    int r = store_set_state(context->store, volume, decision->state, decision->reason, &changed);

    if (r == 0 && volume->observed != observed)
        r = store_set_observed(context->store, volume->volume_id, observed);
    if (r == 0 && changed)
        log_info(&ids, "%s/%s -> %s/%s", state_name(state), reason_name(reason),
                 state_name(decision->state), reason_name(decision->reason));
    return r == 0 && changed ? devices_queue_neighbours(context, volume) : r;
}

/* A volume that is due and has nothing to try stops waiting: its state says what it lacks. */
static int end_waiting(const struct context *context, const struct store_volume *volume,
                       const struct decide_facts *facts)
{
    return volume->next_attempt_ns && (facts->may_try || facts->conflict == CONFLICT_DETACHED)
               ? store_set_attempts(context->store, volume->volume_id, 0, 0, 0)
               : 0;
}

/* The device may grow further; the timer of attempts will have the volume decided again. */
static int wait_until_still(const struct context *context, const struct store_volume *volume)
{
    uint64_t due = volume_facts_still_from(context, volume), now = clock_boottime();
    uint64_t left_ms = due > now ? (due - now) / NSEC_PER_MSEC : 0;

    if (volume->next_attempt_ns == due)
        return 0;
    return store_set_attempts(context->store, volume->volume_id, 0, due,
                              clock_realtime_ms() + (int64_t)left_ms);
}

static int follow(const struct volume_pass *pass, const struct store_volume *volume,
                  const struct decide_facts *facts, enum decide_action action)
{
    if (action == ACTION_WAIT)
        return wait_until_still(pass->context, volume);
    if (action == ACTION_NONE)
        return end_waiting(pass->context, volume, facts);
    return pass->context->stopping ? 0 : actor_decide(pass->actor, volume, action);
}

static int record(const struct volume_pass *pass, struct store_volume *volume,
                  const struct decide_facts *facts, const struct decision *decision)
{
    int r;

    actor_withdraw(pass->actor, volume->volume_id, decision->action);
    r = record_state(pass->context, volume, decision);
    if (r == 0)
        r = evidence_text_record(pass->context, volume, decision);
    if (r == 0)
        r = resizable_record(pass->context, volume, facts);
    return r < 0 ? r : follow(pass, volume, facts, decision->action);
}

int volume_pass_run(const struct volume_pass *pass, int64_t volume_id)
{
    struct store_volume volume;
    struct decide_facts facts;
    struct decision decision;
    int r = load(pass->context, volume_id, &volume);

    if (r == STORE_NO_VOLUME)
        return 0;
    if (r == 0)
        r = bind_and_decide(pass, &volume, &facts, &decision);
    if (r == 0 && lacks_guest_path(pass, &volume, &decision)) {
        r = observe_guest_path(pass, &volume);
        if (r == 0)
            r = bind_and_decide(pass, &volume, &facts, &decision);
    }
    return r < 0 ? r : record(pass, &volume, &facts, &decision);
}
