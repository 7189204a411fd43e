/* SPDX-License-Identifier: Apache-2.0 */
/* actor.c - the acts that are decided, running and answered, with their slots, deadlines and
 * records. */
#include "reconciler/act/actor.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "config/config.h"
#include "lib/child.h"
#include "lib/clock.h"
#include "lib/collections.h"
#include "lib/log.h"
#include "reconciler/core/context.h"
#include "reconciler/core/work_queue.h"
#include "reconciler/decide/decide.h"

static const struct act_ops *ops_of(const struct act *act)
{
    if (act->action == ACTION_RESCAN_DISK)
        return &act_rescan_ops;
    return act->action == ACTION_RESIZE_GUEST ? &act_guest_ops : &act_hypervisor_ops;
}

struct actor *actor_new(const struct context *context)
{
    struct actor *actor = calloc(1, sizeof(*actor));

    if (!actor)
        return NULL;
    actor->context = context;
    slots_init(&actor->slots, context->config->resize.parallel);
    return actor;
}

static void act_free(struct act *act)
{
    LL_DELETE(act->actor->acts, act);
    ops_of(act)->done(act);
    slots_leave(&act->actor->slots, act->volume.sandbox_ref);
    free(act);
}

struct actor *actor_free(struct actor *actor)
{
    if (!actor)
        return NULL;
    while (actor->acts)
        act_free(actor->acts);
    slots_done(&actor->slots);
    free(actor);
    return NULL;
}

static int start(struct act *act)
{
    act->deadline_ns =
        clock_boottime() + act->context->config->resize.call_timeout_seconds * NSEC_PER_SEC;
    return ops_of(act)->start(act);
}

int actor_decide(struct actor *actor, const struct store_volume *volume, enum decide_action action)
{
    struct act *act;
    int r;

    if (actor_is_acting(actor, volume->volume_id))
        return 0;
    /* One helper grows the file systems of all volumes of a sandbox, so its VMM gets all their
     * sizes first. */
    if (!slots_enter(&actor->slots, volume->sandbox_ref, volume->volume_id,
                     action != ACTION_RESIZE_GUEST))
        return 0;
    act = malloc(sizeof(*act));
    if (!act) {
        slots_leave(&actor->slots, volume->sandbox_ref);
        return -ENOMEM;
    }
    memset(act, 0, offsetof(struct act, volume));
    act->actor = actor;
    act->context = actor->context;
    act->action = action;
    store_volume_copy(&act->volume, volume);
    LL_APPEND(actor->acts, act);
    r = ops_of(act)->intend
            ? ops_of(act)->intend(act)
            : store_intend(act->context->store, &act->volume, decide_action_name(action));
    /* The VMM is asked while the database writes, and told nothing before actor_start(), which also
     * starts what could not be started here. */
    if (r == 0 && action == ACTION_RESIZE_HYPERVISOR) {
        act->is_ahead = true;
        act->is_ahead = start(act) == 0;
    }
    return r;
}

void actor_drop(struct actor *actor)
{
    struct act *act, *next;

    LL_FOREACH_SAFE(actor->acts, act, next)
    if (act->step == ACT_DECIDED)
        act_free(act);
}

void actor_withdraw(struct actor *actor, int64_t volume_id, enum decide_action action)
{
    struct act *act, *next;

    LL_FOREACH_SAFE(actor->acts, act, next)
    if (act->step == ACT_DECIDED && act->volume.volume_id == volume_id && act->action != action)
        act_free(act);
}

void actor_cancel_stale(struct actor *actor, const struct store_volume *volume)
{
    struct act *act, *next;

    LL_FOREACH_SAFE(actor->acts, act, next)
    if (act->step == ACT_RUNNING && act->volume.volume_id == volume->volume_id &&
        act->volume.binding_id != volume->binding_id)
        act_free(act);
}

void actor_start(struct actor *actor)
{
    struct act *act;

    LL_FOREACH(actor->acts, act)
    {
        const struct act_ops *ops = ops_of(act);
        struct error error;
        int r = 0;

        if (act->step != ACT_DECIDED)
            continue;
        act->step = ACT_RUNNING;
        if (act->is_ahead)
            hypervisor_call_go(act->vmm.call);
        else
            r = start(act);
        if (r == 0)
            continue;
        (void)error_set(&error, r, "%s: %s", ops->problem, child_explain(r));
        act_finish(act, ops->unstarted, &error);
    }
}

void act_finish(struct act *act, enum volume_reason reason, const struct error *error)
{
    act->reason = reason;
    act->error = *error;
    act->step = ACT_FINISHED;
}

uint64_t act_time_left(const struct act *act)
{
    uint64_t now = clock_boottime();

    return act->deadline_ns > now ? act->deadline_ns - now : 1;
}

uint64_t actor_backoff(uint32_t failures)
{
    uint64_t number;

    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
        number = clock_boottime();
    return backoff_delay(failures, number);
}

bool act_has_worked(const struct act *act)
{
    return act->reason == REASON_NONE || act->reason == REASON_UNVERIFIED;
}

/* A success clears the count of attempts; a failure waits for its next attempt, or for a change.
 * A file system that still grows is no failure: it is asked again after the shortest pause. */
static int record_attempt(const struct act *act)
{
    struct store *store = act->context->store;
    uint32_t failures = act->reason == REASON_GROWING ? 0 : act->volume.attempts + 1;
    enum volume_state state =
        act->action == ACTION_RESIZE_GUEST ? STATE_BLOCK_GROWN : STATE_BLOCKED;
    struct store_volume now = {.volume_id = act->volume.volume_id};
    uint64_t delay;
    int r = act_has_worked(act) ? 0 : store_get_volume_itself(store, &now);

    if (r < 0)
        return r;
    /* If the device grew during the call, a resize has to be opened for it first. */
    if (act_has_worked(act) || now.device_bytes > act->volume.device_bytes)
        return store_set_attempts(store, act->volume.volume_id, 0, 0, 0);
    if (!reason_heals(act->reason, state))
        return store_set_attempts(store, act->volume.volume_id, failures, 0, 0);
    delay = actor_backoff(failures);
    return store_set_attempts(store, act->volume.volume_id, failures, clock_boottime() + delay,
                              clock_realtime_ms() + (int64_t)(delay / NSEC_PER_MSEC));
}

static int act_record(struct act *act)
{
    const struct log_ids ids = {act->volume.volume_id, act->volume.sandbox_id,
                                act->volume.device_name, NULL, act->volume.pv};
    int r;

    if (act_has_worked(act))
        log_info(&ids, "%s: done", decide_action_name(act->action));
    else if (act->reason == REASON_GROWING)
        log_info(&ids, "%s: %s", decide_action_name(act->action), act->error.text);
    else
        log_warning(&ids, "%s: %s: %s", decide_action_name(act->action), reason_name(act->reason),
                    act->error.text);
    /* A rescan is about the host alone, whichever sandbox has the volume. */
    if (act->action == ACTION_RESCAN_DISK)
        return ops_of(act)->record(act);
    /* If the volume has been bound elsewhere meanwhile, the result does not concern it. */
    if (!store_is_binding_open(act->context->store, act->volume.binding_id))
        return 0;
    r = ops_of(act)->record(act);
    return r < 0 ? r : record_attempt(act);
}

int actor_record(struct actor *actor)
{
    struct act *act, *next;
    int r = 0;

    LL_FOREACH_SAFE(actor->acts, act, next)
    if (r == 0 && act->step == ACT_FINISHED) {
        r = act_record(act);
        (void)work_queue_add_volume(actor->context->queue, act->volume.volume_id);
        act_free(act);
    }
    return r;
}

bool actor_is_acting(const struct actor *actor, int64_t volume_id)
{
    const struct act *act = actor->acts;

    while (act && (act->step == ACT_FINISHED || act->volume.volume_id != volume_id))
        act = act->next;
    return act != NULL;
}

unsigned actor_count(const struct actor *actor)
{
    unsigned count = 0;

    for (const struct act *act = actor->acts; act; act = act->next)
        count += act->step != ACT_FINISHED;
    return count;
}

bool actor_has_results(const struct actor *actor)
{
    const struct act *act = actor->acts;

    while (act && act->step != ACT_FINISHED)
        act = act->next;
    return act != NULL;
}

/* ---- slots ---------------------------------------------------------------------------------- */

/* See actor.h.
 *
 * Cost is independent of how many volumes wait: a volume waits in its sandbox's own queue, and only
 * sandboxes that could run stand in the common one. A sandbox is known while it is taken or waited
 * for.
 */

struct sandbox_slot {
    UT_hash_handle hh;
    int64_t sandbox_ref;
    bool busy, rests;
    struct key_queue first;   /* volume ids: those before */
    struct key_queue waiting; /* … all of these */
};

void slots_init(struct slots *slots, unsigned parallel)
{
    *slots = (struct slots){.parallel = parallel};
}

static void slot_remove(struct slots *slots, struct sandbox_slot *slot)
{
    HASH_DEL(slots->sandboxes, slot);
    key_queue_done(&slot->first);
    key_queue_done(&slot->waiting);
    free(slot);
}

void slots_done(struct slots *slots)
{
    struct sandbox_slot *slot, *next;

    HASH_ITER (hh, slots->sandboxes, slot, next)
        slot_remove(slots, slot);
    key_queue_done(&slots->runnable);
    slots->runnable.lost = false;
    slots->busy = slots->resting = 0;
}

static struct sandbox_slot *slot_find(struct slots *slots, int64_t sandbox_ref)
{
    struct sandbox_slot *slot;

    HASH_FIND(hh, slots->sandboxes, &sandbox_ref, sizeof(sandbox_ref), slot);
    return slot;
}

static bool nobody_waits(const struct sandbox_slot *slot)
{
    return key_queue_is_empty(&slot->first) && key_queue_is_empty(&slot->waiting);
}

bool slots_enter(struct slots *slots, int64_t sandbox_ref, int64_t volume_id, bool is_first)
{
    struct sandbox_slot *slot = slot_find(slots, sandbox_ref);
    struct key_queue *queue;

    if (!slot && (slot = calloc(1, sizeof(*slot)))) {
        slot->sandbox_ref = sandbox_ref;
        HASH_ADD(hh, slots->sandboxes, sandbox_ref, sizeof(slot->sandbox_ref), slot);
    }
    if (!slot || !slot->hh.tbl) {
        free(slot);
        slots->runnable.lost = true;
        return false;
    }
    if (!slot->busy && slots->busy < slots->parallel &&
        (is_first || key_queue_is_empty(&slot->first))) {
        slot->busy = true;
        slots->busy++;
        return true;
    }
    queue = is_first ? &slot->first : &slot->waiting;
    key_queue_add_number(queue, (uint64_t)volume_id);
    slots->runnable.lost = slots->runnable.lost || queue->lost;
    queue->lost = false;
    if (!slot->busy)
        key_queue_add_number(&slots->runnable, (uint64_t)slot->sandbox_ref);
    return false;
}

void slots_rest(struct slots *slots, int64_t sandbox_ref)
{
    struct sandbox_slot *slot = slot_find(slots, sandbox_ref);

    if (!slot || !slot->busy || slot->rests || slots->resting == SLOTS_RESTING)
        return;
    slot->rests = true;
    slots->resting++;
    slots->busy--;
}

void slots_leave(struct slots *slots, int64_t sandbox_ref)
{
    struct sandbox_slot *slot = slot_find(slots, sandbox_ref);

    if (!slot || !slot->busy)
        return;
    if (slot->rests)
        slots->resting--;
    else
        slots->busy--;
    slot->busy = slot->rests = false;
    if (nobody_waits(slot))
        slot_remove(slots, slot);
    else
        key_queue_add_number(&slots->runnable, (uint64_t)sandbox_ref);
}

bool slots_next(struct slots *slots, int64_t *ret_volume_id)
{
    uint64_t sandbox_ref, volume_id;

    while (slots->busy < slots->parallel && key_queue_take_number(&slots->runnable, &sandbox_ref)) {
        struct sandbox_slot *slot = slot_find(slots, (int64_t)sandbox_ref);

        if (!slot || slot->busy ||
            !(key_queue_take_number(&slot->first, &volume_id) ||
              key_queue_take_number(&slot->waiting, &volume_id)))
            continue;
        if (nobody_waits(slot))
            slot_remove(slots, slot);
        else
            key_queue_add_number(&slots->runnable, sandbox_ref);
        *ret_volume_id = (int64_t)volume_id;
        return true;
    }
    return false;
}

bool slots_have_next(const struct slots *slots)
{
    return slots->busy < slots->parallel && !key_queue_is_empty(&slots->runnable);
}

bool slots_take_loss(struct slots *slots)
{
    bool lost = slots->runnable.lost;

    slots->runnable.lost = false;
    return lost;
}
