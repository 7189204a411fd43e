/* lanes.c - see lanes.h.
 *
 * Cost is independent of how many volumes wait: a volume waits in its sandbox's own queue, and only
 * lanes that could run stand in the common one. A lane exists while it is busy or somebody waits.
 */
#include "reconciler/lanes.h"

#include <stdlib.h>

#include "lib/hash.h"

struct lane {
    UT_hash_handle hh;
    int64_t sandbox_ref;
    bool busy;
    struct marks waiting; /* volume ids */
};

void lanes_init(struct lanes *lanes, unsigned parallel)
{
    *lanes = (struct lanes){.parallel = parallel};
}

static void lane_remove(struct lanes *lanes, struct lane *lane)
{
    HASH_DEL(lanes->lanes, lane);
    marks_done(&lane->waiting);
    free(lane);
}

void lanes_done(struct lanes *lanes)
{
    struct lane *lane, *next;

    HASH_ITER (hh, lanes->lanes, lane, next)
        lane_remove(lanes, lane);
    marks_done(&lanes->runnable);
    lanes->busy = 0;
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

bool lanes_enter(struct lanes *lanes, int64_t sandbox_ref, int64_t volume_id)
{
    struct lane *lane = lane_get(lanes, sandbox_ref);

    if (!lane) {
        lanes->runnable.lost = true;
        return false;
    }
    if (!lane->busy && lanes->busy < lanes->parallel) {
        lane->busy = true;
        lanes->busy++;
        return true;
    }
    marks_add_number(&lane->waiting, (uint64_t)volume_id);
    lanes->runnable.lost = lanes->runnable.lost || lane->waiting.lost;
    lane->waiting.lost = false;
    if (!lane->busy)
        marks_add_number(&lanes->runnable, (uint64_t)sandbox_ref);
    return false;
}

void lanes_leave(struct lanes *lanes, int64_t sandbox_ref)
{
    struct lane *lane = lane_find(lanes, sandbox_ref);

    if (!lane || !lane->busy)
        return;
    lane->busy = false;
    lanes->busy--;
    if (marks_is_empty(&lane->waiting))
        lane_remove(lanes, lane);
    else
        marks_add_number(&lanes->runnable, (uint64_t)sandbox_ref);
}

bool lanes_next(struct lanes *lanes, int64_t *ret_volume_id)
{
    uint64_t sandbox_ref, volume_id;

    while (lanes->busy < lanes->parallel && marks_take_number(&lanes->runnable, &sandbox_ref)) {
        struct lane *lane = lane_find(lanes, (int64_t)sandbox_ref);

        if (!lane || lane->busy || !marks_take_number(&lane->waiting, &volume_id))
            continue;
        if (marks_is_empty(&lane->waiting))
            lane_remove(lanes, lane);
        else
            marks_add_number(&lanes->runnable, sandbox_ref);
        *ret_volume_id = (int64_t)volume_id;
        return true;
    }
    return false;
}
