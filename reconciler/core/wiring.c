/* SPDX-License-Identifier: Apache-2.0 */
/* wiring.c - makes and frees the reconciler, and serves what others need of it: events,
 * configuration, health. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/act/actor.h"
#include "reconciler/command/clients.h"
#include "reconciler/command/stats_poll.h"
#include "reconciler/core/doubts.h"
#include "reconciler/core/internal.h"
#include "reconciler/drive/drives.h"
#include "reconciler/helper/helper.h"
#include "reconciler/kubernetes/kubernetes_events.h"
#include "store/read.h"

#define TOO_MANY                                                                                   \
    "there are more volumes than crustd can handle: further directories are passed over"

/* ---- events ---- */

void reconciler_queue_directory(struct reconciler *reconciler, enum reconciler_tree tree,
                                const char *name)
{
    work_queue_add_directory(&reconciler->queue, tree, name);
}

void reconciler_queue_tree(struct reconciler *reconciler, enum reconciler_tree tree)
{
    scan_want(&reconciler->scan, tree);
    visibility_disturb(&reconciler->cleanup.visibility);
}

void reconciler_queue_device(struct reconciler *reconciler, uint32_t major, uint32_t minor)
{
    work_queue_add_device(&reconciler->queue, major, minor);
}

void reconciler_queue_announcement(struct reconciler *reconciler, const char *devpath)
{
    lower_devices_announce(&reconciler->context, devpath);
}

void reconciler_queue_all_volumes(struct reconciler *reconciler)
{
    work_queue_doubt_devices(&reconciler->queue);
    work_queue_add_all_volumes(&reconciler->queue);
}

void reconciler_queue_everything(struct reconciler *reconciler)
{
    scan_want_all(&reconciler->scan);
    work_queue_add_all_volumes(&reconciler->queue);
    unresolved_want(&reconciler->unresolved);
    devices_forget_mounts(&reconciler->devices);
}

void reconciler_queue_mounts(struct reconciler *reconciler)
{
    devices_note_mounts(&reconciler->devices);
}

void reconciler_queue_exit(struct reconciler *reconciler, const char *sandbox_id, pid_t pid)
{
    work_queue_add_exit(&reconciler->queue, sandbox_id, pid);
}

/* ---- commands ---- */

struct store_reader *reconciler_reader(struct reconciler *reconciler)
{
    return store_get_reader(reconciler->context.store);
}

static void forget(struct reconciler *reconciler, int (*step)(struct store *store))
{
    struct store *store = reconciler->context.store;

    if (store_begin(store) == 0)
        (void)store_end(store, step(store));
}

void reconciler_retry_everything(struct reconciler *reconciler)
{
    forget(reconciler, store_forget_waiting);
    reconciler_queue_everything(reconciler);
    drives_retry(reconciler->drives);
    fallback_hurry(&reconciler->fallback);
    work_queue_wake(&reconciler->queue, 0);
}

/* The client has rescanned its disks, so announcements that have still not brought a new size are
 * obsolete. */
void reconciler_resync(struct reconciler *reconciler)
{
    forget(reconciler, store_forget_announcements);
    reconciler_retry_everything(reconciler);
}

void reconciler_get_health(const struct reconciler *reconciler,
                           struct reconciler_health *ret_health)
{
    const struct reconciler_watchers *watchers = reconciler->trees.watchers;
    struct kubernetes_events_counts events;
    const char *problem = fallback_problem(&reconciler->fallback);

    if (!problem && scan_is_over_limit(&reconciler->scan))
        problem = TOO_MANY;
    *ret_health = (struct reconciler_health){
        .synced = reconciler->context.synced,
        .database_fails = fallback_database_fails(&reconciler->fallback),
        .in_memory = store_is_in_memory(reconciler->context.store),
        .acts_in_flight = actor_count_running(reconciler->actor),
        .longest_pass_ns = reconciler->context.loop->pass.longest_ns,
        .longest_pass_processor_ns = reconciler->context.loop->pass.longest_processor_ns,
        .journal_printed = reconciler->journal_lines.output.written,
        .journal_dropped = reconciler->journal_lines.output.dropped,
    };
    kubernetes_events_count(reconciler->kubernetes_events, &events);
    ret_health->events_sent = events.sent;
    ret_health->events_merged = events.merged;
    ret_health->events_refused = events.refused;
    ret_health->events_dropped = events.dropped;
    (void)snprintf(ret_health->cleanup_problem, sizeof(ret_health->cleanup_problem), "%s",
                   reconciler->cleanup.visibility.problem);
    watchers->report(watchers->userdata, ret_health);
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
    journal_lines_configure(&reconciler->journal_lines);
    if (reconciler->tells_kubernetes)
        kubernetes_events_configure(reconciler->kubernetes_events);
    reconciler_on_sweep(&reconciler->sweep);
    stats_poll_start(reconciler->stats_poll);
    if (reconciler->context.synced)
        examination_begin(&reconciler->examination, &reconciler->context);
    reconciler_retry_everything(reconciler);
}

void reconciler_start(struct reconciler *reconciler)
{
    stagings_sweep(reconciler->clients);
    reconciler_queue_everything(reconciler);
    journal_lines_start(&reconciler->journal_lines);
    if (reconciler->tells_kubernetes)
        kubernetes_events_start(reconciler->kubernetes_events);
    loop_prepare_start(reconciler->context.loop, &reconciler->pass, reconciler_on_prepare);
    work_queue_wake(&reconciler->queue, 0);
    loop_timer_start(reconciler->context.loop, &reconciler->sweep,
                     reconciler->config.resize.sweep_seconds * NSEC_PER_SEC, reconciler_on_sweep);
    stats_poll_start(reconciler->stats_poll);
}

void reconciler_stop(struct reconciler *reconciler)
{
    reconciler->context.stopping = true;
    expansions_answer(reconciler->clients);
    helpers_stop(reconciler->helpers);
    drives_stop(reconciler->drives);
    stats_poll_stop(reconciler->stats_poll);
    work_queue_wake(&reconciler->queue, 0);
}

/* For the log. A store that fails gives no name; its error is reported elsewhere. */
static void name_volume(void *userdata, int64_t volume_id, char ret_pv[static LOG_PV_BYTES])
{
    const struct reconciler *reconciler = userdata;
    char pv[STORE_KEY_BYTES];

    if (store_get_pv(reconciler->context.store, volume_id, pv) == 0)
        (void)snprintf(ret_pv, LOG_PV_BYTES, "%s", pv);
}

/* The store is a different one: everything that holds ids of the old one is dropped. */
static void begin_anew(void *userdata)
{
    struct reconciler *reconciler = userdata;

    actor_reset(reconciler->actor);
    stats_poll_reset(reconciler->stats_poll);
    drives_reset(reconciler->drives); /* it passes helpers that run on to the next */
    helpers_reset(reconciler->helpers);
    expansions_end(reconciler->clients);
    stagings_fail(reconciler->clients, "crustd starts over with another database");
    cleanup_abandon(&reconciler->cleanup);
    work_queue_forget_volumes(&reconciler->queue);
    scan_done(&reconciler->scan);
    journal_lines_start(&reconciler->journal_lines);
    kubernetes_events_begin_anew(reconciler->kubernetes_events);
    reconciler->attempts_queued_ns = 0;
    reconciler->context.synced = false;
    reconciler_queue_everything(reconciler);
}

static void wire_observing(struct reconciler *reconciler,
                           const struct reconciler_watchers *watchers)
{
    const struct context *context = &reconciler->context;

    work_queue_init(&reconciler->queue, reconciler->context.loop);
    reconciler->trees = (struct trees){.context = context, .watchers = watchers};
    reconciler->scan = (struct scan){.context = context,
                                     .trees = &reconciler->trees,
                                     .visibility = &reconciler->cleanup.visibility};
    reconciler->unresolved.context = context;
    devices_init(&reconciler->devices, context);
    reconciler->monitors.context = context;
    reconciler->observer = (struct observer){.context = context,
                                             .watchers = watchers,
                                             .trees = &reconciler->trees,
                                             .scan = &reconciler->scan,
                                             .unresolved = &reconciler->unresolved,
                                             .monitors = &reconciler->monitors};
}

static void wire_deciding(struct reconciler *reconciler, const struct reconciler_options *options)
{
    const struct context *context = &reconciler->context;

    reconciler->volume_pass = (struct volume_pass){
        .context = context, .devices = &reconciler->devices, .observer = &reconciler->observer};
    reconciler->cleanup = (struct cleanup){.context = context,
                                           .trees = &reconciler->trees,
                                           .observer = &reconciler->observer,
                                           .fallback = &reconciler->fallback};
    reconciler->cleanup.visibility = (struct visibility){
        .context = context, .trees = &reconciler->trees, .watchers = options->watchers};
    reconciler->fallback = (struct fallback){.context = context,
                                             .instance = options->instance,
                                             .begin_anew = begin_anew,
                                             .userdata = reconciler};
}

static void wire(struct reconciler *reconciler, const struct reconciler_options *options)
{
    reconciler->config = *options->config;
    reconciler->on_synced = options->synced;
    reconciler->settled = options->settled;
    reconciler->userdata = options->userdata;
    reconciler->context = (struct context){.loop = options->loop,
                                           .store = options->store,
                                           .config = &reconciler->config,
                                           .root = options->root,
                                           .sysfs = -1,
                                           .queue = &reconciler->queue};
    wire_observing(reconciler, options->watchers);
    wire_deciding(reconciler, options);
    journal_lines_init(&reconciler->journal_lines, &reconciler->context, options->journal_output,
                       options->node);
    reconciler->tells_kubernetes = options->tells_kubernetes;
}

static const struct drive_guest_ops drive_guest = {
    .call_new = drive_guest_call_new,
    .call_free = drive_guest_call_free,
    .call_must_end = drive_guest_call_must_end,
};

static int make_modules(struct reconciler *reconciler, const char *node)
{
    struct clients_options clients = {
        .context = &reconciler->context,
        .core = &core_for_clients,
        .userdata = reconciler,
    };

    reconciler->helpers = reconciler->context.helpers = helpers_new(&reconciler->context);
    reconciler->actor = reconciler->volume_pass.actor =
        actor_new(&reconciler->context, reconciler->helpers);
    clients.actor = reconciler->actor;
    clients.helpers = reconciler->helpers;
    reconciler->clients = clients_new(&clients);
    reconciler->stats_poll = stats_poll_new(&reconciler->context, reconciler->clients);
    reconciler->drives = drives_new(&reconciler->context, &drive_guest);
    reconciler->kubernetes_events = kubernetes_events_new(&reconciler->context, node);
    return reconciler->helpers && reconciler->actor && reconciler->clients &&
                   reconciler->stats_poll && reconciler->drives && reconciler->kubernetes_events
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
    wire(reconciler, options);
    r = observe_open_sysfs(options->root, options->config->paths.sysfs, &reconciler->context.sysfs);
    if (r < 0) {
        reconciler_free(reconciler);
        return error_set_errno(error, r, "cannot open %s", options->config->paths.sysfs);
    }
    r = observe_cache_new(&reconciler->context.cache);
    if (r == 0)
        r = doubts_new(&reconciler->context.doubts);
    if (r == 0)
        r = make_modules(reconciler, options->node);
    if (r < 0) {
        reconciler_free(reconciler);
        return error_set(error, r, "out of memory");
    }
    log_set_namer(name_volume, reconciler);
    if (options->why_in_memory)
        fallback_begin(&reconciler->fallback, options->why_in_memory);
    *ret_reconciler = reconciler;
    return 0;
}

static void stop_timers(struct reconciler *reconciler)
{
    loop_prepare_stop(&reconciler->pass);
    loop_timer_stop(&reconciler->attempt);
    loop_timer_stop(&reconciler->sweep);
    loop_timer_stop(&reconciler->idle);
    loop_timer_stop(&reconciler->trim);
    examination_done(&reconciler->examination);
}

struct reconciler *reconciler_free(struct reconciler *reconciler)
{
    if (!reconciler)
        return NULL;
    log_set_namer(NULL, NULL);
    stop_timers(reconciler);
    fallback_done(&reconciler->fallback);
    journal_lines_done(&reconciler->journal_lines);
    kubernetes_events_free(reconciler->kubernetes_events);
    stats_poll_free(reconciler->stats_poll);
    drives_free(reconciler->drives);
    clients_free(reconciler->clients);
    actor_free(reconciler->actor);
    helpers_free(reconciler->helpers);
    cleanup_done(&reconciler->cleanup);
    monitors_done(&reconciler->monitors);
    scan_done(&reconciler->scan);
    unresolved_done(&reconciler->unresolved);
    work_queue_done(&reconciler->queue);
    devices_done(&reconciler->devices);
    trees_done(&reconciler->trees);
    doubts_free(reconciler->context.doubts);
    observe_cache_free(reconciler->context.cache);
    fd_close(reconciler->context.sysfs);
    free(reconciler);
    return NULL;
}
