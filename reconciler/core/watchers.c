/* SPDX-License-Identifier: Apache-2.0 */
/* watchers.c - the sources of events: what they report is queued, to be observed again. */
#include "lib/cleanup.h"
#include "lib/log.h"
#include "reconciler/core/reconciler_internal.h"

/* ---- events ---- */

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

/* ---- beginning ---- */

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
