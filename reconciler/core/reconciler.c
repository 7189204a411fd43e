/* SPDX-License-Identifier: Apache-2.0 */
/* reconciler.c - the turn, and what starts one.
 *
 * A turn runs when the loop has served every ready source. It records what acts came to, looks
 * again at a bounded number of marked things, decides the volumes they touch, commits all of it in
 * one transaction, and only then starts the acts it decided. What it did not get to waits for the
 * next turn, and the loop serves its sources in between. A turn that the store fails is rolled back
 * and leads to a fresh look at everything, for a mark taken is a mark forgotten.
 */
#include "reconciler/core/reconciler.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/act/actor.h"
#include "reconciler/command/clients.h"
#include "reconciler/command/stats_poll.h"
#include "reconciler/core/internal.h"
#include "reconciler/helper/helper.h"
#include "store/cleanups.h"
#include "store/read.h"

/* How long a turn looks at things before the loop is served again. Longer before the first scan is
 * done, when nothing else waits. */
static const uint64_t TURN_NS = 500 * 1000;
static const uint64_t FIRST_TURNS_NS = 20 * NSEC_PER_MSEC;
static const uint64_t STORE_RETRY_NS = 1 * NSEC_PER_SEC;
enum { FAILED_TURNS = 5 };
static const uint64_t IDLE_NS = 2 * NSEC_PER_SEC;
static const uint64_t TRIM_PAUSE_NS = 20 * NSEC_PER_MSEC;

#define TOO_MANY "there are more volumes than crustd takes: further directories are passed over"

/* ---- what is left to do ---- */

static bool has_marks(const struct reconciler *reconciler)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        if (!marks_is_empty(&reconciler->directories[tree]))
            return true;
    return !marks_is_empty(&reconciler->exits) || !marks_is_empty(&reconciler->sandboxes) ||
           !marks_is_empty(&reconciler->devices) || !marks_is_empty(&reconciler->announced) ||
           !marks_is_empty(&reconciler->volumes) || reconciler->all_volumes ||
           !scan_is_done(reconciler) || !hidden_is_idle(&reconciler->hidden);
}

static bool has_work(const struct reconciler *reconciler)
{
    return has_marks(reconciler) || actor_has_results(reconciler->actor) ||
           stagings_are_due(reconciler->clients) || stats_poll_is_due(reconciler->stats_poll) ||
           (!reconciler->stopping && actor_has_next_volume(reconciler->actor));
}

/* Unlike an attempt after a failure, a growth that has yet to settle is not done. */
static bool awaits_stillness(const struct reconciler *reconciler)
{
    return reconciler->config.resize.settle_ms && store_awaits_stillness(reconciler->store);
}

/* A stop does not wait for a store that fails: what was found out is found out again. */
static bool is_settled(const struct reconciler *reconciler)
{
    if (actor_count_running(reconciler->actor) || actor_has_decided(reconciler->actor) ||
        !helpers_are_idle(reconciler->helpers))
        return false;
    if (reconciler->stopping)
        return reconciler->problem[0] ||
               (!actor_has_results(reconciler->actor) && !stagings_wait(reconciler->clients));
    /* What the database does not take for so long is not to be done now. */
    if (reconciler->failed_turns >= FAILED_TURNS)
        return true;
    return !has_work(reconciler) && retries_are_done(reconciler) && !awaits_stillness(reconciler) &&
           !cleanup_is_busy(reconciler) && !monitors_are_busy(reconciler);
}

/* ---- one turn ---- */

/* Marks that found no memory: everything is looked at instead. */
static void recover_lost_marks(struct reconciler *reconciler)
{
    bool lost = reconciler->sandboxes.lost || reconciler->devices.lost ||
                reconciler->volumes.lost || actor_take_loss(reconciler->actor);

    for (enum reconciler_tree tree = 0; tree < TREES; tree++) {
        lost = lost || reconciler->directories[tree].lost;
        reconciler->directories[tree].lost = false;
    }
    reconciler->sandboxes.lost = reconciler->devices.lost = reconciler->volumes.lost = false;
    if (lost)
        reconciler_look_at_everything(reconciler);
}

/* Before its sandbox is looked at, and found to be gone. */
static int note_exit(struct reconciler *reconciler, const char *exit)
{
    const char *sandbox_id = strchr(exit, ' ');

    return sandbox_id ? store_note_exit(reconciler->store, sandbox_id + 1, (pid_t)atoi(exit)) : 0;
}

/* The next mark, in the order in which facts build upon each other. 1: there was one, 0: none. */
static int look_once(struct reconciler *reconciler)
{
    char name[256];
    uint64_t number;
    int r;

    for (enum reconciler_tree tree = TREE_KATA_VOLUMES; tree <= TREE_CRUST_VOLUMES; tree++)
        if (marks_take_name(&reconciler->directories[tree], name, sizeof(name))) {
            r = look_at_entry(reconciler, tree, name);
            return r < 0 ? r : 1;
        }
    for (enum reconciler_tree tree = TREE_BUNDLES; tree < TREES; tree++)
        if (marks_take_name(&reconciler->directories[tree], name, sizeof(name))) {
            r = look_at_bundle(reconciler, tree, name);
            return r < 0 ? r : 1;
        }
    if (marks_take_name(&reconciler->exits, name, sizeof(name))) {
        r = note_exit(reconciler, name);
        return r < 0 ? r : 1;
    }
    if (marks_take_name(&reconciler->sandboxes, name, sizeof(name))) {
        r = look_at_sandbox(reconciler, name);
        return r < 0 ? r : 1;
    }
    /* Which volumes stand on a disk is known after the first scan. */
    if (reconciler->synced && marks_take_number(&reconciler->announced, &number)) {
        r = look_at_announced(reconciler, number);
        return r < 0 ? r : 1;
    }
    if (marks_take_number(&reconciler->devices, &number)) {
        r = look_at_device(reconciler, (uint32_t)(number >> 32), (uint32_t)number);
        return r < 0 ? r : 1;
    }
    return scan_is_done(reconciler) ? hidden_search(reconciler) : 0;
}

/* Volumes are decided once what they stand on is known: after the first scan. */
static int decide_once(struct reconciler *reconciler)
{
    uint64_t number;
    int64_t volume_id;
    int r;

    if (!reconciler->synced)
        return 0;
    if (reconciler->all_volumes) {
        reconciler->all_volumes = false;
        r = store_each_volume(reconciler->store, mark_volume, reconciler);
        reconciler->devices_are_fresh &= !marks_is_empty(&reconciler->volumes);
        return r < 0 ? r : 1;
    }
    if (marks_take_number(&reconciler->volumes, &number))
        volume_id = (int64_t)number;
    else if (reconciler->stopping || !actor_next_volume(reconciler->actor, &volume_id))
        return 0;
    r = reconcile_volume(reconciler, volume_id);
    if (r == 0)
        r = expansions_note(reconciler->clients, volume_id);
    reconciler->devices_are_fresh &= !marks_is_empty(&reconciler->volumes);
    return r < 0 ? r : 1;
}

static int work(struct reconciler *reconciler)
{
    uint64_t until = clock_boottime() + (reconciler->synced ? TURN_NS : FIRST_TURNS_NS);
    int r;

    r = actor_record(reconciler->actor);
    if (r == 0)
        r = stagings_record(reconciler->clients);
    if (r == 0)
        r = stats_poll_record(reconciler->stats_poll);
    if (r < 0)
        return r;
    do {
        scan_some(reconciler);
        r = look_once(reconciler);
        if (r == 0)
            r = decide_once(reconciler);
        if (r < 0)
            return r;
    } while (r > 0 && clock_boottime() < until);
    return 0;
}

static void note_first_scan(struct reconciler *reconciler)
{
    if (reconciler->synced || !scan_is_done(reconciler) || !hidden_is_idle(&reconciler->hidden) ||
        !marks_is_empty(&reconciler->sandboxes) ||
        !marks_is_empty(&reconciler->directories[TREE_KATA_VOLUMES]) ||
        !marks_is_empty(&reconciler->directories[TREE_CRUST_VOLUMES]))
        return;
    reconciler->synced = true;
    reconciler->all_volumes = true;
    cleanup_want(reconciler);
    monitors_want(reconciler);
    log_info(NULL, "the first scan is complete");
    helpers_start(reconciler->helpers);
    stats_poll_begin(reconciler->stats_poll);
    if (reconciler->on_synced)
        reconciler->on_synced(reconciler->userdata);
}

/* The store would not take this turn: nothing of it happened, and all of it is looked at again. */
static void give_up_turn(struct reconciler *reconciler, int r)
{
    char text[ERROR_TEXT_BYTES];

    (void)snprintf(text, sizeof(text), "%s", store_error_text(reconciler->store));
    store_rollback(reconciler->store);
    actor_drop(reconciler->actor);
    expansions_forget(reconciler->clients);
    stagings_fail(reconciler->clients, text);
    announcements_roll_back(reconciler);
    reconciler->devices_are_fresh = false;
    fallback_on_failure(reconciler, r, text);
    reconciler_look_at_everything(reconciler);
}

/* Outside a turn. One that another program hinders is not counted: the turns are. */
static void note_failure(struct reconciler *reconciler, int r)
{
    if (r < 0 && r != -EBUSY)
        give_up_turn(reconciler, r);
}

static bool take_turn(struct reconciler *reconciler)
{
    int r;

    r = store_begin(reconciler->store);
    if (r == 0)
        r = work(reconciler);
    if (r == 0)
        r = store_commit(reconciler->store);
    if (r < 0) {
        give_up_turn(reconciler, r);
        return false;
    }
    reconciler->problem[0] = '\0';
    reconciler->failed_turns = 0;
    announcements_commit(reconciler);
    note_first_scan(reconciler);
    actor_start(reconciler->actor);
    expansions_answer(reconciler->clients);
    r = stagings_answer(reconciler->clients);
    if (r < 0)
        give_up_turn(reconciler, r);
    return r == 0;
}

/* ---- timers ---- */

static void on_again(struct loop_timer *timer)
{
    (void)timer; /* it only wakes the loop; the turn follows */
}

static void on_attempt(struct loop_timer *timer)
{
    struct reconciler *reconciler = container_of(timer, struct reconciler, attempt);
    uint64_t now = clock_boottime();
    int r = store_each_volume_due(reconciler->store, now, mark_volume, reconciler);

    if (r == 0)
        reconciler->attempts_marked_ns = now;
    note_failure(reconciler, r);
}

/* What was due before has been looked at; if its sandbox was busy, it waits in the lane. */
static void arm_attempt(struct reconciler *reconciler)
{
    uint64_t next, now = clock_boottime();

    if (reconciler->stopping ||
        store_next_attempt(reconciler->store, reconciler->attempts_marked_ns, &next) < 0 ||
        next == UINT64_MAX) {
        loop_timer_stop(&reconciler->attempt);
        return;
    }
    loop_timer_start(reconciler->loop, &reconciler->attempt,
                     next > now ? next - now + NSEC_PER_MSEC : NSEC_PER_MSEC, on_attempt);
}

/* When nothing has happened for a while: the database's own housekeeping. */
static void on_idle(struct loop_timer *timer)
{
    struct reconciler *reconciler = container_of(timer, struct reconciler, idle);

    if (!actor_count_running(reconciler->actor))
        note_failure(reconciler, store_idle(reconciler->store));
}

/* History is trimmed in steps, between which everything else has its turn. */
static void on_trim(struct loop_timer *timer)
{
    struct reconciler *reconciler = container_of(timer, struct reconciler, trim);
    bool more;
    int r = store_begin(reconciler->store);

    if (r == 0)
        r = store_trim(reconciler->store);
    more = r == STORE_TRIM_MORE;
    note_failure(reconciler, r < 0 ? r : store_commit(reconciler->store));
    if (more)
        loop_timer_start(reconciler->loop, timer, TRIM_PAUSE_NS, on_trim);
}

struct tree_marks {
    struct reconciler *reconciler;
    enum reconciler_tree tree;
};

static int mark_directory(void *userdata, const char *key)
{
    const struct tree_marks *marks = userdata;

    marks_add_name(&marks->reconciler->directories[marks->tree], key);
    return 0;
}

/* What may have changed without a word: also what stands beside a volume, which the kubelet and
 * others may write after the driver has staged it. */
static int mark_doubtful(struct reconciler *reconciler)
{
    struct tree_marks kata = {reconciler, TREE_KATA_VOLUMES},
                      crust = {reconciler, TREE_CRUST_VOLUMES};
    int r = store_each_bound_volume(reconciler->store, mark_volume, reconciler);

    /* Not before the first scan has looked at them all: it would never end. */
    if (r == 0 && reconciler->synced)
        r = store_each_young_entry(reconciler->store, LAYOUT_KATA, mark_directory, &kata);
    if (r == 0 && reconciler->synced)
        r = store_each_young_entry(reconciler->store, LAYOUT_CRUST, mark_directory, &crust);
    if (r == 0)
        r = store_each_volume_without_device(reconciler->store, mark_volume, reconciler);
    return r;
}

/* Too many is what it stays until a whole scan has passed over nothing. */
static void want_what_was_passed_over(struct reconciler *reconciler)
{
    if (!reconciler->too_many || !scan_is_done(reconciler))
        return;
    reconciler->too_many = reconciler->passed_over;
    reconciler->passed_over = false;
    reconciler->scan_wanted[TREE_KATA_VOLUMES] |= reconciler->too_many;
    reconciler->scan_wanted[TREE_CRUST_VOLUMES] |= reconciler->too_many;
}

/* Not while it scans, which may take longer than from sweep to sweep: the first scan would never
 * end. */
static void want_trees(struct reconciler *reconciler)
{
    if (!reconciler->synced)
        return;
    want_what_was_passed_over(reconciler);
    reconciler->scan_wanted[TREE_GO_SANDBOXES] = true;
    reconciler->scan_wanted[TREE_RS_SANDBOXES] = true;
    reconciler->hidden.wanted = true;
}

/* Events can be lost, and some things never cause one: a link that leads elsewhere, a file that
 * grew, a tree that was mounted over, a VMM that starts long after its sandbox's directory. */
static void on_sweep(struct loop_timer *timer)
{
    struct reconciler *reconciler = container_of(timer, struct reconciler, sweep);

    reconciler_look_at_mounts(reconciler);
    reconciler->senses->check(reconciler->userdata);
    note_failure(reconciler, mark_doubtful(reconciler));
    want_trees(reconciler);
    cleanup_want(reconciler);
    monitors_want(reconciler);
    helpers_sweep(reconciler->helpers);
    on_trim(&reconciler->trim);
    fallback_check_file(reconciler);
    loop_timer_start(reconciler->loop, &reconciler->sweep,
                     reconciler->config.resize.sweep_seconds * NSEC_PER_SEC, on_sweep);
}

static void after_turn(struct reconciler *reconciler, bool worked)
{
    note_failure(reconciler,
                 store_contain(reconciler->store, !actor_count_running(reconciler->actor)));
    if (!worked)
        loop_timer_start(reconciler->loop, &reconciler->again,
                         reconciler->problem[0] ? STORE_RETRY_NS : 0, on_again);
    else if (has_work(reconciler))
        loop_timer_start(reconciler->loop, &reconciler->again, 0, on_again);
    else
        loop_timer_start(reconciler->loop, &reconciler->idle, IDLE_NS, on_idle);
    arm_attempt(reconciler);
}

/* When there is nothing else to do, for it concludes from what is on the record. */
static void clean_up(struct reconciler *reconciler)
{
    bool more;

    if (!reconciler->synced || reconciler->stopping || reconciler->problem[0] ||
        has_work(reconciler) || !(cleanup_is_busy(reconciler) || monitors_are_busy(reconciler)))
        return;
    more = cleanup_work(reconciler);
    more |= monitors_work(reconciler);
    if (more || has_work(reconciler))
        loop_timer_start(reconciler->loop, &reconciler->again, 0, on_again);
}

static void on_turn(struct loop_prepare *prepare)
{
    struct reconciler *reconciler = container_of(prepare, struct reconciler, turn);

    recover_lost_marks(reconciler);
    /* After a failing store the next turn waits for its time. */
    if (reconciler->problem[0] && loop_timer_is_active(&reconciler->again))
        return;
    if (has_work(reconciler))
        after_turn(reconciler, take_turn(reconciler));
    clean_up(reconciler);
    if (reconciler->settled && is_settled(reconciler))
        reconciler->settled(reconciler->userdata);
}

/* ---- commands ---- */

struct store_reader *reconciler_reader(struct reconciler *reconciler)
{
    return store_get_reader(reconciler->store);
}

void reconciler_look_at_volume(struct reconciler *reconciler, int64_t volume_id)
{
    reconciler->devices_are_fresh = false;
    marks_add_number(&reconciler->volumes, (uint64_t)volume_id);
    loop_timer_start(reconciler->loop, &reconciler->again, 0, on_again);
}

static void forget(struct reconciler *reconciler, int (*step)(struct store *store))
{
    if (store_begin(reconciler->store) < 0)
        return;
    if (step(reconciler->store) < 0 || store_commit(reconciler->store) < 0)
        store_rollback(reconciler->store);
}

void reconciler_look_afresh(struct reconciler *reconciler)
{
    forget(reconciler, store_forget_waiting);
    reconciler_look_at_everything(reconciler);
    fallback_hurry(reconciler);
    loop_timer_start(reconciler->loop, &reconciler->again, 0, on_again);
}

/* Whoever asks has rescanned what was to be rescanned: what brought no growth then brings none. */
void reconciler_resync(struct reconciler *reconciler)
{
    forget(reconciler, store_forget_announcements);
    reconciler_look_afresh(reconciler);
}

static const char *problem_of(const struct reconciler *reconciler)
{
    if (reconciler->fallback.problem[0])
        return reconciler->fallback.problem;
    if (reconciler->problem[0])
        return reconciler->problem;
    return reconciler->too_many ? TOO_MANY : NULL;
}

void reconciler_get_health(const struct reconciler *reconciler,
                           struct reconciler_health *ret_health)
{
    const char *problem = problem_of(reconciler);

    *ret_health = (struct reconciler_health){
        .synced = reconciler->synced,
        .database_fails = reconciler->failed_turns > 0 || reconciler->fallback.problem[0],
        .in_memory = store_is_in_memory(reconciler->store),
        .acts_in_flight = actor_count_running(reconciler->actor),
    };
    if (reconciler->senses->report)
        reconciler->senses->report(reconciler->userdata, ret_health);
    if (problem) {
        ret_health->degraded = true;
        snprintf(ret_health->problem, sizeof(ret_health->problem), "%s", problem);
    }
}

/* ---- life ---- */

void reconciler_configure(struct reconciler *reconciler, const struct config *config)
{
    struct config next = *config;

    memcpy(&next.paths, &reconciler->config.paths, sizeof(next.paths));
    reconciler->config = next;
    actor_set_parallel(reconciler->actor, next.resize.parallel);
    on_sweep(&reconciler->sweep);
    stats_poll_start(reconciler->stats_poll);
    reconciler_look_afresh(reconciler);
}

void reconciler_start(struct reconciler *reconciler)
{
    stagings_sweep(reconciler->clients);
    reconciler_look_at_everything(reconciler);
    loop_prepare_start(reconciler->loop, &reconciler->turn, on_turn);
    loop_timer_start(reconciler->loop, &reconciler->again, 0, on_again);
    loop_timer_start(reconciler->loop, &reconciler->sweep,
                     reconciler->config.resize.sweep_seconds * NSEC_PER_SEC, on_sweep);
    stats_poll_start(reconciler->stats_poll);
}

void reconciler_stop(struct reconciler *reconciler)
{
    reconciler->stopping = true;
    expansions_answer(reconciler->clients);
    helpers_stop(reconciler->helpers);
    stats_poll_stop(reconciler->stats_poll);
    loop_timer_start(reconciler->loop, &reconciler->again, 0, on_again);
}

/* For the log. A store that fails has no names, and its error is told elsewhere. */
static void name_volume(void *userdata, int64_t volume_id, char ret_pv[static LOG_PV_BYTES])
{
    const struct reconciler *reconciler = userdata;
    char pv[STORE_KEY_BYTES];

    if (store_get_pv(reconciler->store, volume_id, pv) == 0)
        (void)snprintf(ret_pv, LOG_PV_BYTES, "%s", pv);
}

static int make_modules(struct reconciler *reconciler)
{
    struct actor_options actor = {
        .context = &reconciler->context,
        .queue_volume = mark_volume,
        .userdata = reconciler,
    };
    struct clients_options clients = {
        .context = &reconciler->context,
        .core = &core_for_clients,
        .userdata = reconciler,
    };

    reconciler->helpers = actor.helpers = helpers_new(&reconciler->context);
    reconciler->actor = actor_new(&actor);
    clients.actor = reconciler->actor;
    clients.helpers = reconciler->helpers;
    reconciler->clients = clients_new(&clients);
    reconciler->stats_poll = stats_poll_new(&reconciler->context, reconciler->clients);
    return reconciler->helpers && reconciler->actor && reconciler->clients && reconciler->stats_poll
               ? 0
               : -ENOMEM;
}

int reconciler_new(const struct reconciler_options *options, struct reconciler **ret_reconciler,
                   struct error *error)
{
    struct reconciler *reconciler = calloc(1, sizeof(*reconciler));
    int r;

    if (!reconciler)
        return error_set(error, -ENOMEM, "out of memory");
    reconciler->loop = options->loop;
    reconciler->store = options->store;
    reconciler->instance = options->instance;
    reconciler->config = *options->config;
    reconciler->root = options->root;
    reconciler->senses = options->senses;
    reconciler->on_synced = options->synced;
    reconciler->settled = options->settled;
    reconciler->userdata = options->userdata;
    reconciler->sysfs = -1;
    reconciler->devices_are_fresh = true;
    r = observe_open_sysfs(options->root, options->config->paths.sysfs, &reconciler->sysfs);
    if (r < 0) {
        reconciler_free(reconciler);
        return error_set_errno(error, r, "cannot open %s", options->config->paths.sysfs);
    }
    r = observe_cache_new(&reconciler->cache);
    if (r < 0) {
        reconciler_free(reconciler);
        return error_set(error, r, "out of memory");
    }
    reconciler->context = (struct context){
        .loop = options->loop,
        .store = options->store,
        .config = &reconciler->config,
        .root = options->root,
        .sysfs = reconciler->sysfs,
        .cache = reconciler->cache,
    };
    if (make_modules(reconciler) < 0) {
        reconciler_free(reconciler);
        return error_set(error, -ENOMEM, "out of memory");
    }
    log_set_namer(name_volume, reconciler);
    if (options->why_in_memory)
        fallback_begin(reconciler, options->why_in_memory);
    *ret_reconciler = reconciler;
    return 0;
}

struct reconciler *reconciler_free(struct reconciler *reconciler)
{
    if (!reconciler)
        return NULL;
    log_set_namer(NULL, NULL);
    loop_prepare_stop(&reconciler->turn);
    loop_timer_stop(&reconciler->again);
    loop_timer_stop(&reconciler->attempt);
    loop_timer_stop(&reconciler->sweep);
    loop_timer_stop(&reconciler->idle);
    loop_timer_stop(&reconciler->trim);
    fallback_done(reconciler);
    stats_poll_free(reconciler->stats_poll);
    clients_free(reconciler->clients);
    actor_free(reconciler->actor);
    helpers_free(reconciler->helpers);
    cleanup_done(reconciler);
    monitors_done(reconciler);
    retries_done(reconciler);
    scan_done(reconciler);
    hidden_done(&reconciler->hidden);
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        marks_done(&reconciler->directories[tree]);
    marks_done(&reconciler->exits);
    marks_done(&reconciler->sandboxes);
    marks_done(&reconciler->devices);
    marks_done(&reconciler->announced);
    marks_done(&reconciler->announced_taken);
    marks_done(&reconciler->volumes);
    observed_mounts_free(reconciler->mounts);
    observe_cache_free(reconciler->cache);
    for (unsigned i = 0; i < reconciler->bundles; i++)
        free(reconciler->bundle[i]);
    fd_close(reconciler->sysfs);
    free(reconciler);
    return NULL;
}
