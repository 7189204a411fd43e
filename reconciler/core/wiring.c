/* SPDX-License-Identifier: Apache-2.0 */
/* wiring.c - makes and frees the reconciler, queues what the watchers report, and serves what
 * others need of it: configuration, health. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/act/actor.h"
#include "reconciler/command/clients.h"
#include "reconciler/core/observer.h"
#include "reconciler/core/reconciler_internal.h"
#include "reconciler/drive/drives.h"
#include "reconciler/helper/helper.h"
#include "reconciler/kubernetes/kubernetes_events.h"
#include "store/read.h"

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
    database_try_soon(&reconciler->database);
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
    struct kubernetes_events_counts events;
    const char *problem = database_problem(&reconciler->database);

    if (!problem && scan_is_over_limit(&reconciler->scan))
        problem =
            "there are more volumes than crustd can handle: further directories are passed over";
    *ret_health = (struct reconciler_health){
        .synced = reconciler->context.synced,
        .database_fails = database_fails(&reconciler->database),
        .in_memory = store_is_in_memory(reconciler->context.store),
        .acts_in_flight = actor_count(reconciler->context.actor),
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
                   reconciler->cleanup.watch_health.problem);
    watchers_report(&reconciler->watchers, ret_health);
    if (problem) {
        ret_health->degraded = true;
        snprintf(ret_health->problem, sizeof(ret_health->problem), "%s", problem);
    }
}

const struct reconciler_findings *reconciler_get_findings(const struct reconciler *reconciler)
{
    return &reconciler->examination.findings;
}

void reconciler_get_modes(const struct reconciler *reconciler, struct reconciler_modes *ret_modes)
{
    *ret_modes = (struct reconciler_modes){
        .resize = config_resize_mode_name(reconciler->config.resize.mode),
        .cleanup = config_cleanup_mode_name(reconciler->config.cleanup.mode),
        .per_volume = reconciler->config.metrics.per_volume,
    };
}

void reconciler_configure(struct reconciler *reconciler, const struct config *config)
{
    struct config next = *config;

    memcpy(&next.paths, &reconciler->config.paths, sizeof(next.paths));
    reconciler->config = next;
    reconciler->context.actor->slots.parallel = next.resize.parallel;
    journal_lines_configure(&reconciler->journal_lines, false);
    if (reconciler->options.tells_kubernetes)
        kubernetes_events_configure(reconciler->kubernetes_events);
    reconciler_on_sweep(&reconciler->sweep);
    stats_poll_start(reconciler);
    if (reconciler->context.synced)
        examination_begin(reconciler);
    reconciler_retry_everything(reconciler);
}

void reconciler_start(struct reconciler *reconciler)
{
    stagings_sweep(reconciler);
    reconciler_queue_everything(reconciler);
    journal_lines_configure(&reconciler->journal_lines, true);
    if (reconciler->options.tells_kubernetes)
        kubernetes_events_start(reconciler->kubernetes_events);
    loop_prepare_start(reconciler->context.loop, &reconciler->pass, reconciler_on_prepare);
    work_queue_wake(&reconciler->queue, 0);
    loop_timer_start(reconciler->context.loop, &reconciler->sweep,
                     reconciler->config.resize.sweep_seconds * NSEC_PER_SEC, reconciler_on_sweep);
    stats_poll_start(reconciler);
}

void reconciler_stop(struct reconciler *reconciler)
{
    reconciler->context.stopping = true;
    expansions_answer(reconciler);
    helpers_stop(reconciler->context.helpers);
    drives_stop(reconciler->drives);
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

static void wire(struct reconciler *reconciler, const struct reconciler_options *options)
{
    const struct context *context = &reconciler->context;

    reconciler->config = *options->config;
    reconciler->options = *options;
    reconciler->options.config = &reconciler->config;
    reconciler->context = (struct context){.loop = options->loop,
                                           .store = options->store,
                                           .config = &reconciler->config,
                                           .root = options->root,
                                           .sysfs = -1,
                                           .queue = &reconciler->queue,
                                           .watchers = &reconciler->watchers,
                                           .trees = &reconciler->trees,
                                           .scan = &reconciler->scan,
                                           .unresolved = &reconciler->unresolved,
                                           .devices = &reconciler->devices,
                                           .monitors = &reconciler->cleanup.monitors,
                                           .watch_health = &reconciler->cleanup.watch_health,
                                           .database = &reconciler->database};
    work_queue_init(&reconciler->queue, options->loop);
    devices_init(&reconciler->devices, context);
    reconciler->trees.context = reconciler->scan.context = reconciler->unresolved.context =
        reconciler->cleanup.monitors.context = reconciler->cleanup.context =
            reconciler->cleanup.watch_health.context = reconciler->database.context = context;
    reconciler->database.options = &reconciler->options;
    journal_lines_init(&reconciler->journal_lines, context, options->journal_output, options->node);
}

int reconciler_new(const struct reconciler_options *options, struct reconciler **ret_reconciler,
                   struct error *error)
{
    struct reconciler *reconciler = calloc(1, sizeof(*reconciler));
    struct context *context = reconciler ? &reconciler->context : NULL;
    int r;

    if (!reconciler)
        return error_set(error, -ENOMEM, "out of memory");
    wire(reconciler, options);
    r = observe_open_sysfs(options->root, options->config->paths.sysfs, &context->sysfs);
    if (r < 0) {
        reconciler_free(reconciler);
        return error_set_errno(error, r, "cannot open %s", options->config->paths.sysfs);
    }
    r = observe_cache_new(config_list_item(&reconciler->config.resize.grow_annotation, 0),
                          &context->cache);
    if (r == 0)
        r = distrusted_new(&context->distrusted);
    context->helpers = helpers_new(context);
    context->actor = actor_new(context);
    reconciler->drives = drives_new(context);
    reconciler->kubernetes_events = kubernetes_events_new(context, options->node);
    if (r < 0 || !context->helpers || !context->actor || !reconciler->drives ||
        !reconciler->kubernetes_events) {
        reconciler_free(reconciler);
        return error_set(error, r < 0 ? r : -ENOMEM, "out of memory");
    }
    log_set_namer(name_volume, reconciler);
    if (options->why_in_memory)
        database_begin_in_memory(&reconciler->database, options->why_in_memory);
    *ret_reconciler = reconciler;
    return 0;
}

struct reconciler *reconciler_free(struct reconciler *reconciler)
{
    if (!reconciler)
        return NULL;
    log_set_namer(NULL, NULL);
    watchers_done(&reconciler->watchers);
    loop_prepare_stop(&reconciler->pass);
    loop_timer_stop(&reconciler->attempt);
    loop_timer_stop(&reconciler->sweep);
    loop_timer_stop(&reconciler->idle);
    loop_timer_stop(&reconciler->trim);
    loop_timer_stop(&reconciler->examination.timer);
    database_done(&reconciler->database);
    journal_lines_done(&reconciler->journal_lines);
    kubernetes_events_free(reconciler->kubernetes_events);
    drives_free(reconciler->drives);
    expansions_done(reconciler);
    stagings_done(reconciler);
    stats_done(reconciler);
    actor_free(reconciler->context.actor);
    helpers_free(reconciler->context.helpers);
    cleanup_done(&reconciler->cleanup);
    scan_done(&reconciler->scan);
    unresolved_done(&reconciler->unresolved);
    work_queue_done(&reconciler->queue);
    devices_done(&reconciler->devices);
    trees_done(&reconciler->trees);
    distrusted_free(reconciler->context.distrusted);
    observe_cache_free(reconciler->context.cache);
    fd_close(reconciler->context.sysfs);
    free(reconciler);
    return NULL;
}

/* ---- the sources of events: what they report is queued, to be observed again ------------------
 */

static void on_directory(void *userdata, unsigned tree, const char *name)
{
    struct reconciler *reconciler = userdata;

    work_queue_add_directory(&reconciler->queue, tree, name);
}

/* The whole tree must be read, because its root was replaced or events were lost. */
static void on_tree(void *userdata, unsigned tree)
{
    struct reconciler *reconciler = userdata;

    scan_want(&reconciler->scan, tree);
    watch_health_disturb(&reconciler->cleanup.watch_health);
}

static const struct watch_directories_handler directories_handler = {on_directory, on_tree};

static void on_device(void *userdata, uint32_t major, uint32_t minor)
{
    struct reconciler *reconciler = userdata;

    work_queue_add_device(&reconciler->queue, major, minor);
}

static void on_capacity(void *userdata, const char *devpath)
{
    struct reconciler *reconciler = userdata;

    lower_devices_announce(&reconciler->context, devpath);
}

static void on_devices(void *userdata)
{
    struct reconciler *reconciler = userdata;

    log_warning(&(struct log_ids){.source = "uevent"},
                "events were lost, observing every volume again");
    work_queue_doubt_devices(&reconciler->queue);
    work_queue_add_all_volumes(&reconciler->queue);
}

static const struct watch_block_handler block_handler = {on_device, on_capacity, on_devices};

static void on_mounts(void *userdata)
{
    struct reconciler *reconciler = userdata;

    watch_directories_check_roots(reconciler->watchers.directories);
    devices_note_mounts(&reconciler->devices);
}

static void on_exited(void *userdata, const char *sandbox_id, pid_t pid)
{
    struct reconciler *reconciler = userdata;

    work_queue_add_exit(&reconciler->queue, sandbox_id, pid);
}

int reconciler_watch(struct reconciler *reconciler, struct error *error)
{
    struct watchers *watchers = &reconciler->watchers;
    struct loop *loop = reconciler->context.loop;
    unsigned number;
    int r = watch_directories_new(loop, reconciler->context.root, &directories_handler, reconciler,
                                  &watchers->directories);

    for (enum reconciler_tree tree = 0; r == 0 && tree < TREE_BUNDLES; tree++)
        r = watch_directories_add_tree(watchers->directories, trees_path(&reconciler->trees, tree),
                                       &number);
    if (r < 0)
        return error_set_errno(error, r, "cannot watch directories");
    r = watch_block_new(loop, &block_handler, reconciler, &watchers->block);
    if (r < 0)
        return error_set_errno(error, r, "cannot listen to the kernel's block events");
    r = watch_mounts_new(loop, on_mounts, reconciler, &watchers->mounts);
    if (r < 0)
        return error_set_errno(error, r, "cannot watch the host's mounts");
    r = watch_processes_new(loop, on_exited, reconciler, &watchers->processes);
    return r < 0 ? error_set_errno(error, r, "cannot watch processes") : 0;
}
