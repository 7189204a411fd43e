/* SPDX-License-Identifier: Apache-2.0 */
/* trash.c - completes what was begun.
 *
 *   intended   in the trash: it was moved      not there: it was not, forget it
 *   moved      changed since: put it back      unchanged for SETTLE_NS: it is removed
 *   kept       its time is up: delete it, unless it has changed even then
 *   restoring  put it back
 *   deleting   continue
 *
 * Every step may have been taken already. A move is recorded after it happened, in the same
 * transaction in which its directory is observed again, so that the volume and its cleanup agree.
 */
#include "reconciler/cleanup/cleanup_pass.h"

#include <inttypes.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "reconciler/cleanup/cleaner.h"
#include "reconciler/core/context.h"
#include "reconciler/core/observer.h"
#include "reconciler/core/work_queue.h"
#include "store/cleanups.h"
#include "store/store.h"

/* A writer that had the file open when its directory was moved shows within this time. */
static const uint64_t SETTLE_NS = 2 * NSEC_PER_SEC;

struct step {
    struct cleanup *cleanup;
    struct store_trash row;
    struct quarantine_item item;
    struct quarantine quarantine;
    uint64_t now_ns;
    uint64_t wake_ns; /* UINT64_MAX: waits for nothing */
};

static int open_place(struct cleanup *cleanup, enum volume_layout layout, const char *directory,
                      struct quarantine *ret_quarantine, struct error *error)
{
    const char *const watched[] = {cleanup->context->config->paths.kata_volumes,
                                   cleanup->context->config->paths.crust_volumes, NULL};

    return quarantine_open(cleanup->context->root,
                           trees_path(cleanup->context->trees, tree_of_layout(layout)), directory,
                           watched, ret_quarantine, error);
}

bool trash_is_usable(struct cleanup *cleanup, enum volume_layout layout, struct error *error)
{
    cleanup(quarantine_done) struct quarantine quarantine = QUARANTINE_INIT;

    return open_place(cleanup, layout, node_trash_path(cleanup->context->config, layout),
                      &quarantine, error) == QUARANTINE_READY;
}

static uint64_t keep_ns(const struct cleanup *cleanup)
{
    return NSEC_PER_SEC * 3600 * cleanup->context->config->cleanup.keep_hours;
}

/* ---- one row ----------------------------------------------------------------------------- */

static void step_done(struct step *step)
{
    quarantine_done(&step->quarantine);
}

enum {
    STEP_READY,
    STEP_IDLE, /* nothing can be done about it now */
};

static int step_init(struct cleanup *cleanup, int64_t cleanup_id, struct step *step)
{
    struct error error = {0};
    int r;

    *step = (struct step){.cleanup = cleanup,
                          .quarantine = QUARANTINE_INIT,
                          .now_ns = clock_boottime(),
                          .wake_ns = UINT64_MAX};
    r = store_get_trash(cleanup->context->store, cleanup_id, &step->row);
    if (r != STORE_FOUND)
        return r < 0 ? r : STEP_IDLE;
    step->item = (struct quarantine_item){.key = step->row.key,
                                          .file = step->row.file[0] ? step->row.file : NULL,
                                          .name = step->row.name,
                                          .fingerprint = step->row.fingerprint};
    r = open_place(cleanup, step->row.layout, step->row.directory, &step->quarantine, &error);
    if (r == QUARANTINE_READY)
        return STEP_READY;
    log_warning(&(struct log_ids){.volume = step->row.volume_id},
                "metadata stays in the trash until its directory can be opened: %s", error.text);
    return STEP_IDLE;
}

/* The directory is back in its place, or gone: updates the volume. */
static int observe_again(struct step *step)
{
    return observer_observe_entry(step->cleanup->context, tree_of_layout(step->row.layout),
                                  step->row.key);
}

static int finish(struct step *step, enum cleanup_decision decision, enum stale_reason reason)
{
    if (decision == CLEANUP_REMOVED)
        step->wake_ns = step->now_ns + keep_ns(step->cleanup);
    else
        quarantine_tidy(&step->quarantine, &step->item);
    log_info(&(struct log_ids){.volume = step->row.volume_id}, "metadata %s: %s%s%s",
             decision == CLEANUP_REMOVED    ? "moved to the trash"
             : decision == CLEANUP_PUT_BACK ? "put back because it had changed"
                                            : "not removed",
             step->row.key, step->row.file[0] ? "/" : "", step->row.file);
    return store_finish_cleanup(step->cleanup->context->store, step->row.cleanup_id, decision,
                                reason, step->now_ns);
}

/* A failure of the disk: the item stays where it is, and the next sweep tries again. */
static int complain(const struct step *step, const char *what, int r)
{
    log_error(&(struct log_ids){.volume = step->row.volume_id}, "cannot %s %s/%s: %s", what,
              step->row.directory, step->row.name, strerror(-r));
    return 0;
}

/* It changed after its fingerprint was taken. */
static int put_back(struct step *step)
{
    int r = quarantine_put_back(&step->quarantine, &step->item);

    if (r < 0)
        return complain(step, "put back", r);
    if (r == QUARANTINE_TAKEN)
        return finish(step, CLEANUP_REMOVED, STALE_REASON_STAGED_AGAIN);
    r = observe_again(step);
    return r < 0 ? r : finish(step, CLEANUP_PUT_BACK, STALE_REASON_CHANGED);
}

static int advance_intended(struct step *step, const struct quarantine_state *state)
{
    int r = observe_again(step);

    if (r < 0)
        return r;
    if (!state->in_trash) {
        quarantine_tidy(&step->quarantine, &step->item);
        return store_drop_cleanup(step->cleanup->context->store, step->row.cleanup_id);
    }
    if (!state->unchanged)
        return put_back(step);
    step->wake_ns = step->now_ns + SETTLE_NS;
    return store_set_trash_step(step->cleanup->context->store, step->row.cleanup_id,
                                STORE_TRASH_MOVED, step->now_ns);
}

static int advance_moved(struct step *step, const struct quarantine_state *state)
{
    int r;

    if (state->in_trash && !state->unchanged)
        return put_back(step);
    if (state->in_trash && step->now_ns < step->row.since_ns + SETTLE_NS) {
        step->wake_ns = step->row.since_ns + SETTLE_NS;
        return 0;
    }
    if (state->in_trash)
        return finish(step, CLEANUP_REMOVED,
                      state->in_place ? STALE_REASON_STAGED_AGAIN : STALE_REASON_NONE);
    r = observe_again(step);
    if (r < 0)
        return r;
    return state->in_place ? finish(step, CLEANUP_PUT_BACK, STALE_REASON_CHANGED)
                           : finish(step, CLEANUP_FAILED, STALE_REASON_LOST_FROM_TRASH);
}

static int advance_restoring(struct step *step, const struct quarantine_state *state)
{
    const enum stale_reason reason =
        state->in_trash && !state->unchanged ? STALE_REASON_CHANGED : STALE_REASON_REQUESTED;
    int r = QUARANTINE_DONE;

    if (state->in_trash)
        r = quarantine_put_back(&step->quarantine, &step->item);
    else if (!state->in_place)
        r = QUARANTINE_ABSENT; /* someone removed it */
    if (r < 0)
        return complain(step, "put back", r);
    if (r != QUARANTINE_DONE)
        return store_set_trash_step(step->cleanup->context->store, step->row.cleanup_id,
                                    STORE_TRASH_STORED, step->row.since_ns);
    r = observe_again(step);
    quarantine_tidy(&step->quarantine, &step->item);
    if (r == 0)
        r = store_record_restore(step->cleanup->context->store, step->row.cleanup_id, reason);
    if (r == 0)
        log_info(&(struct log_ids){.volume = step->row.volume_id}, "metadata restored: %s",
                 step->row.key);
    return r;
}

static int advance(struct step *step)
{
    struct quarantine_state state;
    struct error error = {0};
    int r = quarantine_observe(&step->quarantine, &step->item, &state);

    if (r < 0)
        return complain(step, "observe", r);
    switch (step->row.step) {
    case STORE_TRASH_INTENDED:
        return advance_intended(step, &state);
    case STORE_TRASH_MOVED:
        return advance_moved(step, &state);
    case STORE_TRASH_STORED:
        if (!state.in_trash)
            return store_forget_trash(step->cleanup->context->store, step->row.cleanup_id);
        step->wake_ns = step->now_ns;
        return store_set_trash_step(step->cleanup->context->store, step->row.cleanup_id,
                                    !state.unchanged && !state.in_place ? STORE_TRASH_RESTORING
                                                                        : STORE_TRASH_DELETING,
                                    step->now_ns);
    case STORE_TRASH_RESTORING:
        return advance_restoring(step, &state);
    case STORE_TRASH_DELETING:
        r = quarantine_delete(&step->quarantine, &step->item, &error);
        if (r == QUARANTINE_DONE)
            return store_forget_trash(step->cleanup->context->store, step->row.cleanup_id);
        log_error(&(struct log_ids){.volume = step->row.volume_id}, "cannot delete %s/%s: %s",
                  step->row.directory, step->row.name, error.text);
        return 0;
    }
    return 0;
}

/* ---- all rows ---------------------------------------------------------------------------- */

static int note_id(void *userdata, int64_t cleanup_id)
{
    key_queue_add_number(userdata, (uint64_t)cleanup_id);
    return 0;
}

static int advance_all(struct cleanup *cleanup, uint64_t *ret_wake_ns)
{
    cleanup(key_queue_done) struct key_queue ids = {0};
    uint64_t now_ns = clock_boottime(), keep = keep_ns(cleanup), cleanup_id, oldest_ns;
    /* Negative if the node has been up for less than the time that items are kept. */
    int r =
        store_each_trash(cleanup->context->store, (int64_t)now_ns - (int64_t)keep, note_id, &ids);

    *ret_wake_ns = ids.lost ? now_ns + SETTLE_NS : UINT64_MAX;
    while (r == 0 && key_queue_take_number(&ids, &cleanup_id)) {
        cleanup(step_done) struct step step;

        r = step_init(cleanup, (int64_t)cleanup_id, &step);
        if (r == STEP_READY)
            r = advance(&step);
        if (step.wake_ns < *ret_wake_ns)
            *ret_wake_ns = step.wake_ns;
        if (r > 0)
            r = 0;
    }
    if (r == 0)
        r = store_oldest_trash(cleanup->context->store, &oldest_ns);
    if (r == 0 && oldest_ns != UINT64_MAX && oldest_ns + keep > now_ns &&
        oldest_ns + keep < *ret_wake_ns)
        *ret_wake_ns = oldest_ns + keep;
    return r;
}

/* If a step leads at once to the next, it is committed in between. */
int trash_advance(struct cleanup *cleanup, uint64_t *ret_wake_ns)
{
    uint64_t wake_ns;
    int r;

    do {
        r = store_begin(cleanup->context->store);
        if (r == 0)
            r = advance_all(cleanup, &wake_ns);
        r = store_end(cleanup->context->store, r);
        if (r < 0)
            return r;
    } while (wake_ns <= clock_boottime());
    *ret_wake_ns = wake_ns;
    return 0;
}

void trash_take(struct cleanup *cleanup, struct key_queue *cleanup_ids)
{
    cleanup(key_queue_done) struct key_queue failed = {0};
    struct store *store = cleanup->context->store;
    uint64_t cleanup_id;
    int r;

    while (key_queue_take_number(cleanup_ids, &cleanup_id)) {
        cleanup(step_done) struct step step;

        r = step_init(cleanup, (int64_t)cleanup_id, &step);
        if (r == 0)
            r = quarantine_take(&step.quarantine, &step.item);
        if (r >= 0)
            continue;
        (void)complain(&step, "move metadata to", r);
        key_queue_add_number(&failed, cleanup_id);
    }
    if (key_queue_is_empty(&failed))
        return;
    r = store_begin(store);
    while (r == 0 && key_queue_take_number(&failed, &cleanup_id))
        r = store_finish_cleanup(store, (int64_t)cleanup_id, CLEANUP_FAILED,
                                 STALE_REASON_CANNOT_MOVE, 0);
    /* If that fails, the rows are later dropped as never moved. */
    (void)store_end(store, r);
}

/* ---- restoring at a person's request ----------------------------------------------------- */

static int refuse(struct cleanup *cleanup, int64_t cleanup_id, struct error *error)
{
    char decision[STORE_NAME_BYTES];
    int r = store_get_cleanup(cleanup->context->store, cleanup_id, decision);

    if (r < 0)
        return r;
    if (r == STORE_NOT_FOUND)
        return error_set(error, TRASH_UNKNOWN, "there is no cleanup %" PRId64, cleanup_id);
    if (strcmp(decision, "removed") == 0)
        return error_set(error, TRASH_REFUSED,
                         "the bytes of cleanup %" PRId64 " are no longer in the trash: they were "
                         "restored before, kept for cleanup.keep_hours and deleted, or taken out "
                         "by hand",
                         cleanup_id);
    return error_set(error, TRASH_REFUSED,
                     "cleanup %" PRId64 " is \"%s\": only what was removed can be restored",
                     cleanup_id, decision);
}

int trash_restore(struct cleanup *cleanup, int64_t cleanup_id, struct error *error)
{
    cleanup(step_done) struct step step = {.quarantine = QUARANTINE_INIT};
    struct quarantine_state state;
    struct store_trash row, after;
    uint64_t wake_ns;
    int r = store_get_trash(cleanup->context->store, cleanup_id, &row);

    if (r != STORE_FOUND)
        return r < 0 ? r : refuse(cleanup, cleanup_id, error);
    if (row.step != STORE_TRASH_STORED)
        return error_set(error, TRASH_BUSY, "cleanup %" PRId64 " is under way: try again",
                         cleanup_id);
    /* Someone may have removed it by hand. If it cannot be observed now, it does not count as gone.
     */
    if (step_init(cleanup, cleanup_id, &step) == STEP_READY &&
        quarantine_observe(&step.quarantine, &step.item, &state) == 0 && !state.in_trash)
        return refuse(cleanup, cleanup_id, error);
    r = store_begin(cleanup->context->store);
    if (r == 0)
        r = store_set_trash_step(cleanup->context->store, cleanup_id, STORE_TRASH_RESTORING,
                                 row.since_ns);
    if (r == 0)
        r = store_commit_durable(cleanup->context->store);
    if (r < 0) {
        store_rollback(cleanup->context->store);
        return r;
    }
    r = trash_advance(cleanup, &wake_ns);
    if (r == 0) /* the row as it is now shows the result */
        r = store_get_trash(cleanup->context->store, cleanup_id, &after);
    if (r < 0)
        return r;
    if (r == STORE_NOT_FOUND)
        return TRASH_RESTORED;
    if (after.step == STORE_TRASH_STORED)
        return error_set(error, TRASH_TAKEN,
                         "%s has been staged again since; what is there now is newer, and stays",
                         row.key);
    return error_set(error, TRASH_BUSY, "it could not be moved back now; see the log of crustd");
}
