/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.c - see lanes.h.
 *
 * Cost is independent of how many volumes wait: a volume waits in its sandbox's own queue, and only
 * lanes that could run stand in the common one. A lane exists while it is busy or somebody waits.
 */
#include "reconciler/core/lanes.h"

#include <stdlib.h>

#include "lib/hash.h"

struct lane {
    UT_hash_handle hh;
    int64_t sandbox_ref;
    bool busy, rests;
    struct marks first;   /* volume ids: those before */
    struct marks waiting; /* … all of these */
};

void lanes_init(struct lanes *lanes, unsigned parallel)
{
    *lanes = (struct lanes){.parallel = parallel};
}

static void lane_remove(struct lanes *lanes, struct lane *lane)
{
    HASH_DEL(lanes->lanes, lane);
    marks_done(&lane->first);
    marks_done(&lane->waiting);
    free(lane);
}

void lanes_done(struct lanes *lanes)
{
    struct lane *lane, *next;

    HASH_ITER (hh, lanes->lanes, lane, next)
        lane_remove(lanes, lane);
    marks_done(&lanes->runnable);
    lanes->busy = lanes->resting = 0;
}

static struct lane *lane_find(struct lanes *lanes, int64_t sandbox_ref)
{
    struct lane *lane;

    HASH_FIND(hh, lanes->lanes, &sandbox_ref, sizeof(sandbox_ref), lane);
    return lane;
}

static struct lane *lane_get(struct lanes *lanes, int64_t sandbox_ref)
{
    struct lane *lane = lane_find(lanes, sandbox_ref);

    if (lane)
        return lane;
    lane = calloc(1, sizeof(*lane));
    if (!lane)
        return NULL;
    lane->sandbox_ref = sandbox_ref;
    HASH_ADD(hh, lanes->lanes, sandbox_ref, sizeof(lane->sandbox_ref), lane);
    if (!lane->hh.tbl) {
        free(lane);
        return NULL;
    }
    return lane;
}

static bool nobody_waits(const struct lane *lane)
{
    return marks_is_empty(&lane->first) && marks_is_empty(&lane->waiting);
}

static bool lane_take(struct lane *lane, uint64_t *ret_volume_id)
{
    return marks_take_number(&lane->first, ret_volume_id) ||
           marks_take_number(&lane->waiting, ret_volume_id);
}

static void lane_wait(struct lanes *lanes, struct lane *lane, struct marks *queue,
                      int64_t volume_id)
{
    marks_add_number(queue, (uint64_t)volume_id);
    lanes->runnable.lost = lanes->runnable.lost || queue->lost;
    queue->lost = false;
    if (!lane->busy)
        marks_add_number(&lanes->runnable, (uint64_t)lane->sandbox_ref);
}

static bool enter(struct lanes *lanes, int64_t sandbox_ref, int64_t volume_id, bool first)
{
    struct lane *lane = lane_get(lanes, sandbox_ref);

    if (!lane) {
        lanes->runnable.lost = true;
        return false;
    }
    if (!lane->busy && lanes->busy < lanes->parallel && (first || marks_is_empty(&lane->first))) {
        lane->busy = true;
        lanes->busy++;
        return true;
    }
    lane_wait(lanes, lane, first ? &lane->first : &lane->waiting, volume_id);
    return false;
}

bool lanes_enter(struct lanes *lanes, int64_t sandbox_ref, int64_t volume_id)
{
    return enter(lanes, sandbox_ref, volume_id, false);
}

bool lanes_enter_first(struct lanes *lanes, int64_t sandbox_ref, int64_t volume_id)
{
    return enter(lanes, sandbox_ref, volume_id, true);
}

void lanes_rest(struct lanes *lanes, int64_t sandbox_ref)
{
    struct lane *lane = lane_find(lanes, sandbox_ref);

    if (!lane || !lane->busy || lane->rests || lanes->resting == LANES_RESTING)
        return;
    lane->rests = true;
    lanes->resting++;
    lanes->busy--;
}

void lanes_leave(struct lanes *lanes, int64_t sandbox_ref)
{
    struct lane *lane = lane_find(lanes, sandbox_ref);

    if (!lane || !lane->busy)
        return;
    if (lane->rests)
        lanes->resting--;
    else
        lanes->busy--;
    lane->busy = lane->rests = false;
    if (nobody_waits(lane))
        lane_remove(lanes, lane);
    else
        marks_add_number(&lanes->runnable, (uint64_t)sandbox_ref);
}

bool lanes_next(struct lanes *lanes, int64_t *ret_volume_id)
{
    uint64_t sandbox_ref, volume_id;

    while (lanes->busy < lanes->parallel && marks_take_number(&lanes->runnable, &sandbox_ref)) {
        struct lane *lane = lane_find(lanes, (int64_t)sandbox_ref);

        if (!lane || lane->busy || !lane_take(lane, &volume_id))
            continue;
        if (nobody_waits(lane))
            lane_remove(lanes, lane);
        else
            marks_add_number(&lanes->runnable, sandbox_ref);
        *ret_volume_id = (int64_t)volume_id;
        return true;
    }
    return false;
}
