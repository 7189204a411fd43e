/* SPDX-License-Identifier: Apache-2.0 */
/* reconciler.c - one reconcile pass, and what starts one.
 *
 * A pass runs when the loop has served every ready source. It records the results of actions,
 * observes a bounded number of queued objects, decides the volumes they affect, commits all of it
 * in one transaction, and only then starts the actions decided upon. The rest waits for the next
 * pass, and the loop serves its sources in between. If the store fails, the pass is rolled back and
 * everything is observed anew, because keys already taken are no longer in the queue.
 */
#include "reconciler/core/reconciler_internal.h"

#include <stdio.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/act/actor.h"
#include "reconciler/command/clients.h"
#include "reconciler/core/context.h"
#include "reconciler/drive/drives.h"
#include "reconciler/helper/helper.h"
#include "reconciler/kubernetes/kubernetes_events.h"
#include "store/cleanups.h"

enum { SWEEPS_PUT_OFF = 8, SLOW_ROUND_SECONDS = 3600 };

/* How long a pass observes and decides before the loop is served again. Longer until the first scan
 * is complete, as nothing else waits then. */
static const uint64_t PASS_NS = 500 * 1000;
static const uint64_t FIRST_PASSES_NS = 20 * NSEC_PER_MSEC;
/* What else is done without being asked for waits for the next pass, if this one has taken so long.
 */
static const uint64_t FULL_NS = 10 * NSEC_PER_MSEC;
static const uint64_t STORE_RETRY_NS = 1 * NSEC_PER_SEC;
static const uint64_t IDLE_NS = 2 * NSEC_PER_SEC;
static const uint64_t TRIM_PAUSE_NS = 20 * NSEC_PER_MSEC;

static bool has_work(const struct reconciler *reconciler)
{
    return !work_queue_is_empty(&reconciler->queue) || !scan_is_done(&reconciler->scan) ||
           !unresolved_is_idle(&reconciler->unresolved) ||
           actor_has_results(reconciler->context.actor) || stagings_are_due(reconciler) ||
           drives_are_due(reconciler->drives) || devices_are_reading(&reconciler->devices) ||
           (!reconciler->context.stopping && slots_have_next(&reconciler->context.actor->slots));
}

/* A stop does not wait for a store that fails: the next start finds the results again. */
static bool is_settled(const struct reconciler *reconciler)
{
    if (actor_count(reconciler->context.actor) || !helpers_are_idle(reconciler->context.helpers) ||
        !drives_are_idle(reconciler->drives))
        return false;
    if (reconciler->context.stopping)
        return database_is_waiting(&reconciler->database) ||
               (!actor_has_results(reconciler->context.actor) && !stagings_wait(reconciler));
    /* After so many failed passes, waiting longer for the database is pointless. */
    if (database_is_lasting(&reconciler->database))
        return true;
    if (has_work(reconciler) || work_queue_has_retries(&reconciler->queue) ||
        cleanup_is_busy(&reconciler->cleanup))
        return false;
    /* Unlike an attempt after a failure, a resize that waits for its device's size to settle is
     * unfinished work. */
    return !reconciler->config.resize.settle_ms ||
           !store_awaits_stillness(reconciler->context.store);
}

/* Returns an enum progress_outcome. */
static int observe_next(struct reconciler *reconciler)
{
    static const char *const titles[] = {
        [WORK_ENTRY] = "observing the metadata directory", [WORK_BUNDLE] = "reading the bundle",
        [WORK_EXIT] = "noting the end of the sandbox",     [WORK_SANDBOX] = "observing the sandbox",
        [WORK_ANNOUNCEMENT] = "noting that a disk grew",   [WORK_DEVICE] = "observing a device",
    };
    const struct context *context = &reconciler->context;
    struct work work;
    int r = 0;

    scan_some(&reconciler->scan);
    if (!work_queue_take(&reconciler->queue, &work))
        return scan_is_done(&reconciler->scan) ? unresolved_search(&reconciler->unresolved) : 0;
    loop_announce(context->loop, titles[work.kind],
                  work.kind < WORK_ANNOUNCEMENT ? work.name : NULL);
    if (work.kind == WORK_EXIT || work.kind == WORK_SANDBOX)
        drives_note_sandbox(reconciler->drives, work.name);
    switch (work.kind) {
    case WORK_ENTRY:
        r = observer_observe_entry(context, work.tree, work.name);
        break;
    case WORK_BUNDLE:
        r = observer_observe_bundle(context, work.tree, work.name);
        break;
    case WORK_EXIT:
        r = store_note_exit(context->store, work.name, work.pid);
        break;
    case WORK_SANDBOX:
        r = observer_observe_sandbox(context, work.name);
        break;
    case WORK_ANNOUNCEMENT:
        r = lower_devices_note_announcement(context, work.major, work.minor);
        break;
    case WORK_DEVICE:
        drives_note_device(reconciler->drives, work.major, work.minor);
        r = devices_note_event(context, work.major, work.minor);
        break;
    }
    return r < 0 ? r : PROGRESS_MORE;
}

/* Volumes are decided only after the first scan, when their devices and sandboxes are known.
 * Returns an enum progress_outcome. */
static int decide_next(struct reconciler *reconciler)
{
    const bool stopping = reconciler->context.stopping;
    int64_t volume_id;
    int r;

    if (!reconciler->context.synced)
        return 0;
    if ((!work_queue_is_empty(&reconciler->queue) || devices_are_reading(&reconciler->devices) ||
         (!stopping && slots_have_next(&reconciler->context.actor->slots))) &&
        !devices_know_mounts(&reconciler->devices))
        return 0;
    if (work_queue_take_all_volumes(&reconciler->queue)) {
        r = store_each_volume(reconciler->context.store, STORE_SEARCH(ALL), work_queue_add_volume,
                              &reconciler->queue);
        work_queue_note_decision(&reconciler->queue); /* there may be no volume at all */
        return r < 0 ? r : PROGRESS_MORE;
    }
    if (!work_queue_take_volume(&reconciler->queue, &volume_id) &&
        (stopping || !slots_next(&reconciler->context.actor->slots, &volume_id)))
        return 0;
    loop_announce(reconciler->context.loop, "deciding about a volume", NULL);
    r = volume_pass_run(&reconciler->context, volume_id);
    if (r == 0)
        r = expansions_note(reconciler, volume_id);
    work_queue_note_decision(&reconciler->queue);
    return r < 0 ? r : PROGRESS_MORE;
}

static void note_first_scan(struct reconciler *reconciler)
{
    struct store *store = reconciler->context.store;
    int r;

    if (reconciler->context.synced || !scan_is_done(&reconciler->scan) ||
        !unresolved_is_idle(&reconciler->unresolved) || !work_queue_is_observed(&reconciler->queue))
        return;
    reconciler->context.synced = reconciler->seeks_vmms = true;
    work_queue_begin_volumes(&reconciler->queue);
    cleanup_want(&reconciler->cleanup);
    r = store_begin(store);
    if (r == 0)
        r = store_want_lists_in_turn(store, 0, 1, 0);
    if (r == 0) /* of sandboxes that ended while crustd did not run */
        r = observer_end_block_claims(&reconciler->context);
    (void)store_end(store, r);
    log_info(NULL, "the first scan is complete");
    examination_begin(reconciler);
    helpers_start(reconciler->context.helpers);
    if (reconciler->options.synced)
        reconciler->options.synced(reconciler->options.userdata);
}

void reconciler_queue_everything(struct reconciler *reconciler)
{
    scan_want_all(&reconciler->scan);
    work_queue_add_all_volumes(&reconciler->queue);
    reconciler->unresolved.wanted = true;
    devices_forget_mounts(&reconciler->devices);
}

/* The store refused this pass: none of it is on record, and everything is observed anew. */
static void roll_back(struct reconciler *reconciler, int r)
{
    char text[ERROR_TEXT_BYTES];

    (void)snprintf(text, sizeof(text), "%s", store_error_text(reconciler->context.store));
    store_rollback(reconciler->context.store);
    actor_drop(reconciler->context.actor);
    expansions_forget(reconciler);
    stagings_fail(reconciler, text);
    drives_roll_back(reconciler->drives, text);
    work_queue_roll_back(&reconciler->queue);
    database_on_failure(&reconciler->database, r, text);
    reconciler_queue_everything(reconciler);
}

/* For failures outside a pass. A lock that another program holds is not counted here, because
 * failing passes count it. */
static void note_failure(struct reconciler *reconciler, int r)
{
    if (r < 0 && r != STORE_LOCKED)
        roll_back(reconciler, r);
}

static bool run_pass(struct reconciler *reconciler)
{
    uint64_t until;
    bool more = true;
    int r = store_begin(reconciler->context.store);

    trees_keep_open(&reconciler->trees, true);
    if (r == 0)
        r = actor_record(reconciler->context.actor);
    if (r == 0)
        r = stagings_record(reconciler);
    until = clock_boottime() + (reconciler->context.synced ? PASS_NS : FIRST_PASSES_NS);
    while (r == 0 && more) {
        r = observe_next(reconciler);
        if (r == 0)
            r = decide_next(reconciler);
        more = r > 0 && clock_boottime() < until;
        r = r < 0 ? r : 0;
    }
    if (r == 0)
        r = drives_record(reconciler->drives);
    trees_keep_open(&reconciler->trees, false);
    loop_announce(reconciler->context.loop, "committing to the database", NULL);
    if (r == 0)
        r = store_commit(reconciler->context.store);
    if (r < 0) {
        roll_back(reconciler, r);
        return false;
    }
    database_on_success(&reconciler->database);
    work_queue_commit(&reconciler->queue);
    note_first_scan(reconciler);
    actor_start(reconciler->context.actor);
    expansions_answer(reconciler);
    r = stagings_answer(reconciler);
    if (r == 0)
        r = drives_go_on(reconciler->drives);
    if (r < 0)
        roll_back(reconciler, r);
    return r == 0;
}

/* ---- timers ---- */

static void on_attempt(struct loop_timer *timer)
{
    struct reconciler *reconciler = container_of(timer, struct reconciler, attempt);
    uint64_t now = clock_boottime();
    int r = store_each_volume(reconciler->context.store, STORE_SEARCH(DUE, .time_ns = now),
                              work_queue_add_volume, &reconciler->queue);

    if (r == 0)
        reconciler->attempts_queued_ns = now;
    note_failure(reconciler, r);
}

/* The database's own housekeeping, when nothing has happened for a while. */
static void on_idle(struct loop_timer *timer)
{
    struct reconciler *reconciler = container_of(timer, struct reconciler, idle);

    if (!actor_count(reconciler->context.actor))
        note_failure(reconciler, store_idle(reconciler->context.store));
}

static void on_trim(struct loop_timer *timer);

/* History is trimmed in steps with pauses, so that other work is not held up; by age in the first
 * step only. */
static void trim(struct reconciler *reconciler, bool by_age)
{
    bool more;
    int r = store_begin(reconciler->context.store);

    if (r == 0)
        r = store_trim(reconciler->context.store, by_age);
    more = r == STORE_TRIM_MORE;
    if (r >= 0)
        r = store_commit(reconciler->context.store);
    if (r < 0) /* a lock that another program holds is no failure here */
        store_rollback(reconciler->context.store);
    note_failure(reconciler, r);
    if (more)
        loop_timer_start(reconciler->context.loop, &reconciler->trim, TRIM_PAUSE_NS, on_trim);
}

static void on_trim(struct loop_timer *timer)
{
    trim(container_of(timer, struct reconciler, trim), false);
}

static int queue_kata_entry(void *queue, const char *key)
{
    work_queue_add_directory(queue, TREE_KATA_VOLUMES, key);
    return 0;
}

static int queue_crust_entry(void *queue, const char *key)
{
    work_queue_add_directory(queue, TREE_CRUST_VOLUMES, key);
    return 0;
}

/* Queues what may have changed without an event, including the files beside a volume, which the
 * kubelet and others may write after the driver has staged it. */
static int queue_doubtful(struct reconciler *reconciler)
{
    struct work_queue *queue = &reconciler->queue;
    struct store *store = reconciler->context.store;
    int r = store_each_volume(store, STORE_SEARCH(BOUND), work_queue_add_volume, queue);

    /* Not before the first scan has observed all entries: it would never end. */
    if (r == 0 && reconciler->context.synced)
        r = store_each_entry(store, LAYOUT_KATA, true, queue_kata_entry, queue);
    if (r == 0 && reconciler->context.synced)
        r = store_each_entry(store, LAYOUT_CRUST, true, queue_crust_entry, queue);
    return r == 0 ? store_each_volume(store, STORE_SEARCH(WITHOUT_DEVICE), work_queue_add_volume,
                                      queue)
                  : r;
}

/* Not during the first scan, and not before the last sweep is through: either may take longer than
 * the interval between sweeps. Observing goes before deciding, so volumes would never have their
 * turn. A node on which there is always something to observe has its sweeps less often. */
static bool may_sweep(struct reconciler *reconciler)
{
    if (!reconciler->context.synced)
        return false;
    if ((!scan_is_done(&reconciler->scan) || !work_queue_is_observed(&reconciler->queue)) &&
        ++reconciler->sweeps_put_off < SWEEPS_PUT_OFF)
        return false;
    reconciler->sweeps_put_off = 0;
    return true;
}

/* Events can be lost, and some changes never cause one: a symbolic link that leads elsewhere, a
 * file that grew, a tree that was mounted over, a VMM that starts long after its sandbox's
 * directory was made. */
void reconciler_on_sweep(struct loop_timer *timer)
{
    struct reconciler *reconciler = container_of(timer, struct reconciler, sweep);
    const bool sweeps = may_sweep(reconciler); /* before what is below queues its own */
    const unsigned seconds = reconciler->config.resize.sweep_seconds;
    const unsigned turns = seconds < SLOW_ROUND_SECONDS ? SLOW_ROUND_SECONDS / seconds : 1;
    struct store *store = reconciler->context.store;
    int r;

    devices_compare_mounts(&reconciler->devices);
    watchers_check(&reconciler->watchers);
    if (reconciler->options.swept)
        reconciler->options.swept(reconciler->options.userdata);
    /* Within an hour each VMM is asked once more what it has: somebody may have taken a drive from
     * it, resized one, or paused it. After a resize it is asked in the next two sweeps: somebody
     * else, such as the CSI driver by way of Kata's shim, may carry out the same resize in another
     * way. */
    reconciler->turn = (reconciler->turn + 1) % turns;
    r = store_begin(store);
    if (r == 0)
        r = store_want_lists_in_turn(store, reconciler->turn, turns,
                                     clock_realtime_ms() - 2000 * (int64_t)seconds);
    note_failure(reconciler, store_end(store, r));
    note_failure(reconciler, queue_doubtful(reconciler));
    if (sweeps) {
        scan_want_sweep(&reconciler->scan);
        reconciler->seeks_vmms = true;
        reconciler->unresolved.wanted = true;
    }
    cleanup_want(&reconciler->cleanup);
    helpers_sweep(reconciler->context.helpers);
    drives_sweep(reconciler->drives);
    trim(reconciler, true);
    database_check_file(&reconciler->database);
    loop_timer_start(reconciler->context.loop, &reconciler->sweep, seconds * NSEC_PER_SEC,
                     reconciler_on_sweep);
}

static void after_pass(struct reconciler *reconciler, bool worked)
{
    uint64_t next, now = clock_boottime();

    note_failure(reconciler,
                 store_contain(reconciler->context.store, !actor_count(reconciler->context.actor)));
    if (!worked)
        work_queue_wake(&reconciler->queue,
                        database_is_waiting(&reconciler->database) ? STORE_RETRY_NS : 0);
    else if (has_work(reconciler))
        work_queue_wake(&reconciler->queue, 0);
    else
        loop_timer_start(reconciler->context.loop, &reconciler->idle, IDLE_NS, on_idle);
    /* Volumes that were due before have been decided again; one whose sandbox was busy waits for
     * its slot instead. */
    if (reconciler->context.stopping ||
        store_next_attempt(reconciler->context.store, reconciler->attempts_queued_ns, &next) < 0 ||
        next == UINT64_MAX)
        loop_timer_stop(&reconciler->attempt);
    else
        loop_timer_start(reconciler->context.loop, &reconciler->attempt,
                         next > now ? next - now + NSEC_PER_MSEC : NSEC_PER_MSEC, on_attempt);
}

static bool is_full(const struct reconciler *reconciler)
{
    return clock_boottime() - reconciler->pass_began_ns >= FULL_NS;
}

/* Only when no other work is left, because cleanup draws conclusions from the record. */
static void clean_up(struct reconciler *reconciler)
{
    if (!reconciler->context.synced || reconciler->context.stopping ||
        database_is_waiting(&reconciler->database) || has_work(reconciler) ||
        !cleanup_is_busy(&reconciler->cleanup))
        return;
    loop_announce(reconciler->context.loop, "looking for stale metadata", NULL);
    if (cleanup_work(&reconciler->cleanup) || has_work(reconciler))
        work_queue_wake(&reconciler->queue, 0);
}

/* When nothing else is to do: looks for VMMs without a row, and goes on reading the table of
 * processes for a client that was told to ask again. */
static void read_in_background(struct reconciler *reconciler)
{
    bool more = is_full(reconciler);
    int r;

    if (!more && !has_work(reconciler)) {
        if (reconciler->seeks_vmms) {
            r = observer_queue_unrecorded(&reconciler->context);
            reconciler->seeks_vmms = r == PROGRESS_MORE;
            note_failure(reconciler, r);
        }
        more = reconciler->seeks_vmms || has_work(reconciler) ||
               observe_cache_read_on(reconciler->context.cache) == PROGRESS_MORE;
    }
    if (more && !work_queue_is_waking(&reconciler->queue))
        work_queue_wake(&reconciler->queue, 0);
}

void reconciler_on_prepare(struct loop_prepare *prepare)
{
    struct reconciler *reconciler = container_of(prepare, struct reconciler, pass);

    bool lost = work_queue_recover(&reconciler->queue);

    reconciler->pass_began_ns = clock_boottime();
    lost |= slots_take_loss(&reconciler->context.actor->slots);
    if (lost) /* keys, for want of memory */
        reconciler_queue_everything(reconciler);
    /* After a failure of the store the next pass waits until it is due. */
    if (database_is_waiting(&reconciler->database) && work_queue_is_waking(&reconciler->queue))
        return;
    if (has_work(reconciler))
        after_pass(reconciler, run_pass(reconciler));
    if (!is_full(reconciler))
        clean_up(reconciler);
    read_in_background(reconciler);
    if (journal_lines_follow(&reconciler->journal_lines) &&
        !work_queue_is_waking(&reconciler->queue))
        work_queue_wake(&reconciler->queue, 0);
    kubernetes_events_follow(reconciler->kubernetes_events);
    if (reconciler->options.settled && is_settled(reconciler))
        reconciler->options.settled(reconciler->options.userdata);
}
