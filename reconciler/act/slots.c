/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c - see slots.h.
 *
 * Cost is independent of how many volumes wait: a volume waits in its sandbox's own queue, and only
 *  sandboxes that could run stand in the common one. A sandbox is known while it is taken or waited
 * for.
 */
#include "reconciler/act/slots.h"

#include <stdlib.h>

#include "lib/hash.h"

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

static struct sandbox_slot *slot_get(struct slots *slots, int64_t sandbox_ref)
{
    struct sandbox_slot *slot = slot_find(slots, sandbox_ref);

    if (slot)
        return slot;
    slot = calloc(1, sizeof(*slot));
    if (!slot)
        return NULL;
    slot->sandbox_ref = sandbox_ref;
    HASH_ADD(hh, slots->sandboxes, sandbox_ref, sizeof(slot->sandbox_ref), slot);
    if (!slot->hh.tbl) {
        free(slot);
        return NULL;
    }
    return slot;
}

static bool nobody_waits(const struct sandbox_slot *slot)
{
    return key_queue_is_empty(&slot->first) && key_queue_is_empty(&slot->waiting);
}

static bool slot_take(struct sandbox_slot *slot, uint64_t *ret_volume_id)
{
    return key_queue_take_number(&slot->first, ret_volume_id) ||
           key_queue_take_number(&slot->waiting, ret_volume_id);
}

static void slot_wait(struct slots *slots, struct sandbox_slot *slot, struct key_queue *queue,
                      int64_t volume_id)
{
    key_queue_add_number(queue, (uint64_t)volume_id);
    slots->runnable.lost = slots->runnable.lost || queue->lost;
    queue->lost = false;
    if (!slot->busy)
        key_queue_add_number(&slots->runnable, (uint64_t)slot->sandbox_ref);
}

static bool enter(struct slots *slots, int64_t sandbox_ref, int64_t volume_id, bool first)
{
    struct sandbox_slot *slot = slot_get(slots, sandbox_ref);

    if (!slot) {
        slots->runnable.lost = true;
        return false;
    }
    if (!slot->busy && slots->busy < slots->parallel &&
        (first || key_queue_is_empty(&slot->first))) {
        slot->busy = true;
        slots->busy++;
        return true;
    }
    slot_wait(slots, slot, first ? &slot->first : &slot->waiting, volume_id);
    return false;
}

bool slots_enter(struct slots *slots, int64_t sandbox_ref, int64_t volume_id)
{
    return enter(slots, sandbox_ref, volume_id, false);
}

bool slots_enter_first(struct slots *slots, int64_t sandbox_ref, int64_t volume_id)
{
    return enter(slots, sandbox_ref, volume_id, true);
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

        if (!slot || slot->busy || !slot_take(slot, &volume_id))
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
