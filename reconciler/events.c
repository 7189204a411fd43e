/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - the watchers and the core, which know nothing of each other, wired together.
 *
 * An event puts a key into the core's work queue. The core has directories and processes watched
 * before it reads them, and has the watchers compare at each sweep what causes no events.
 */
#include "reconciler/events.h"

#include <errno.h>
#include <stdio.h>

#include "lib/cleanup.h"
#include "lib/log.h"
#include "reconciler/core/reconciler.h"
#include "watch/watch.h"

/* ---- watchers to core ---- */

static void on_directory(void *userdata, unsigned tree, const char *name)
{
    struct events *events = userdata;

    reconciler_queue_directory(events->reconciler, tree, name);
}

static void on_tree(void *userdata, unsigned tree)
{
    struct events *events = userdata;

    reconciler_queue_tree(events->reconciler, tree);
}

static const struct watch_directories_handler directories_handler = {on_directory, on_tree};

static void on_device(void *userdata, uint32_t major, uint32_t minor)
{
    struct events *events = userdata;

    reconciler_queue_device(events->reconciler, major, minor);
}

static void on_capacity(void *userdata, const char *devpath)
{
    struct events *events = userdata;

    reconciler_queue_announcement(events->reconciler, devpath);
}

static void on_devices(void *userdata)
{
    struct events *events = userdata;

    log_warning(&(struct log_ids){.source = "uevent"},
                "events were lost, observing every volume again");
    reconciler_queue_all_volumes(events->reconciler);
}

static const struct watch_block_handler block_handler = {on_device, on_capacity, on_devices};

static void on_mounts(void *userdata)
{
    struct events *events = userdata;

    watch_directories_check_roots(events->directories);
    reconciler_queue_mounts(events->reconciler);
}

static void on_exited(void *userdata, const char *sandbox_id, pid_t pid)
{
    struct events *events = userdata;

    reconciler_queue_exit(events->reconciler, sandbox_id, pid);
}

/* ---- core to watchers ---- */

static int watch(void *userdata, enum reconciler_tree tree, const char *path)
{
    struct events *events = userdata;
    unsigned number;
    int r = watch_directories_add_tree(events->directories, path, &number);

    if (r < 0 || number == tree)
        return r;
    watch_directories_remove_tree(events->directories, number);
    return -EEXIST;
}

static void unwatch(void *userdata, enum reconciler_tree tree)
{
    struct events *events = userdata;

    watch_directories_remove_tree(events->directories, tree);
}

static int arm(void *userdata, enum reconciler_tree tree, const char *name)
{
    struct events *events = userdata;

    return watch_directories_arm(events->directories, tree, name);
}

static int arm_opened(void *userdata, enum reconciler_tree tree, const char *name, int opened,
                      int fd)
{
    struct events *events = userdata;

    return watch_directories_arm_opened(events->directories, tree, name, opened, fd);
}

static int pin(void *userdata, const char *sandbox_id, pid_t pid)
{
    struct events *events = userdata;

    return watch_processes_add(events->processes, sandbox_id, pid);
}

static pid_t unpin(void *userdata, const char *sandbox_id)
{
    struct events *events = userdata;

    return watch_processes_remove(events->processes, sandbox_id);
}

#define UNARMED                                                                                    \
    "directories could not be watched and are only observed by the sweep: raise "                  \
    "fs.inotify.max_user_watches"
#define DOWN                                                                                       \
    "no events from %s: changes are only found by the sweep; raise "                               \
    "fs.inotify.max_user_instances, or the limit of open files"

static void warn_if_down(enum watch_source source, const struct watch_counters *counters)
{
    const char *name = watch_source_name(source);

    if (!counters->up)
        log_warning(&(struct log_ids){.source = name}, DOWN, name);
}

static void check(void *userdata)
{
    struct events *events = userdata;

    watch_block_check(events->block);
    watch_directories_check_roots(events->directories);
    watch_directories_observe_unarmed(events->directories);
    warn_if_down(WATCH_UEVENT, watch_block_counters(events->block));
    warn_if_down(WATCH_INOTIFY, watch_directories_counters(events->directories));
    if (watch_directories_unarmed(events->directories))
        log_warning(&(struct log_ids){.source = "inotify"}, "%u " UNARMED,
                    watch_directories_unarmed(events->directories));
    events->swept(events->userdata);
}

static void report_source(struct reconciler_health *health, enum watch_source source,
                          const struct watch_counters *counters)
{
    const char *name = watch_source_name(source);

    health->source[health->sources++] =
        (struct reconciler_source){name, counters->up, counters->events, counters->overflows};
    if (!counters->up) {
        health->degraded = true;
        snprintf(health->problem, sizeof(health->problem), DOWN, name);
    }
}

static void report(void *userdata, struct reconciler_health *ret_health)
{
    struct events *events = userdata;
    unsigned unarmed = watch_directories_unarmed(events->directories);

    if (unarmed) {
        ret_health->degraded = true;
        snprintf(ret_health->problem, sizeof(ret_health->problem), "%u " UNARMED, unarmed);
    }
    report_source(ret_health, WATCH_INOTIFY, watch_directories_counters(events->directories));
    report_source(ret_health, WATCH_UEVENT, watch_block_counters(events->block));
    report_source(ret_health, WATCH_MOUNTS, watch_mounts_counters(events->mounts));
    report_source(ret_health, WATCH_PROCESS, watch_processes_counters(events->processes));
}

/* ---- beginning and end ---- */

void events_init(struct events *events, void (*swept)(void *userdata), void *userdata)
{
    *events = (struct events){
        .callbacks = {events, watch, unwatch, arm, arm_opened, pin, unpin, check, report},
        .swept = swept,
        .userdata = userdata,
    };
}

int events_start(struct events *events, struct loop *loop, int root, const struct config *config,
                 struct reconciler *reconciler, struct error *error)
{
    static const enum reconciler_tree order[] = {TREE_KATA_VOLUMES, TREE_CRUST_VOLUMES,
                                                 TREE_GO_SANDBOXES, TREE_GO_VMS, TREE_RS_SANDBOXES};
    const char *paths[] = {config->paths.kata_volumes, config->paths.crust_volumes,
                           config->paths.kata_go_sandboxes, config->paths.kata_go_vms,
                           config->paths.kata_rs_sandboxes};
    unsigned tree;
    int r;

    events->reconciler = reconciler;
    r = watch_directories_new(loop, root, &directories_handler, events, &events->directories);
    for (unsigned i = 0; r == 0 && i < array_length(order); i++)
        r = watch_directories_add_tree(events->directories, paths[i], &tree);
    if (r < 0)
        return error_set_errno(error, r, "cannot watch directories");
    r = watch_block_new(loop, &block_handler, events, &events->block);
    if (r < 0)
        return error_set_errno(error, r, "cannot listen to the kernel's block events");
    r = watch_mounts_new(loop, on_mounts, events, &events->mounts);
    if (r < 0)
        return error_set_errno(error, r, "cannot watch the host's mounts");
    r = watch_processes_new(loop, on_exited, events, &events->processes);
    return r < 0 ? error_set_errno(error, r, "cannot watch processes") : 0;
}

void events_done(struct events *events)
{
    watch_processes_free(events->processes);
    watch_mounts_free(events->mounts);
    watch_block_free(events->block);
    watch_directories_free(events->directories);
}
