/* SPDX-License-Identifier: Apache-2.0 */
/* entries.c - metadata directories: see observer.h. */
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/path.h"
#include "observe/observe.h"
#include "reconciler/core/context.h"
#include "reconciler/core/device_record.h"
#include "reconciler/core/devices.h"
#include "reconciler/core/observer.h"
#include "reconciler/core/scan.h"
#include "reconciler/core/unresolved.h"
#include "reconciler/core/watchers.h"
#include "reconciler/core/work_queue.h"
#include "store/store.h"

static const enum store_flag flags[] = {
    [OBSERVED_UNSAID] = STORE_UNSAID,
    [OBSERVED_NO] = STORE_NO,
    [OBSERVED_YES] = STORE_YES,
};

#define PLUGIN_FILE                                                                                \
    "csiPlugin.json at the volume's root: refused and not followed, a tenant may have written it"

enum { REMARK_BYTES = 3 * STORE_TEXT_BYTES };

static const char *known(const char *text)
{
    return text[0] ? text : NULL;
}

static void read_publish_path(const struct context *context, const char *target_path,
                              struct observed_publish_path *ret_path)
{
    const struct config_list *list = &context->config->paths.kubelet;
    const char *kubelet[CONFIG_LIST_ITEMS];

    *ret_path = (struct observed_publish_path){0};
    for (unsigned i = 0; i < list->count; i++)
        kubelet[i] = config_list_item(list, i);
    if (target_path)
        (void)observe_publish_path(context->root, kubelet, list->count, target_path, ret_path);
}

/* Called before an entry is written: if its volume ends, the store no longer links it to the
 * volumes it shared a device with. */
static int queue_beside(const struct context *context, const char *name)
{
    if (!context->synced)
        return 0; /* the end of the first scan queues all */
    return store_each_volume_beside(context->store, name, work_queue_add_volume, context->queue);
}

/* What is worth reporting about a volume that is well. NULL: nothing. */
static const char *compose_remark(const struct observed_entry *observed,
                                  const struct observed_publish_path *publish,
                                  char ret_text[static REMARK_BYTES])
{
    const char *const parts[] = {publish->has_plugin_file ? PLUGIN_FILE : "", publish->problem,
                                 observed->remark ? observed->remark : ""};
    size_t length = 0;

    ret_text[0] = '\0';
    for (unsigned i = 0; i < array_length(parts) && length < REMARK_BYTES; i++)
        if (parts[i][0])
            length += (size_t)snprintf(ret_text + length, REMARK_BYTES - length, "%s%s",
                                       length ? "; " : "", parts[i]);
    return known(ret_text);
}

/* The path is taken from the name, or from what was learned about the name. NULL if it is not
 * known. */
static int find_target_path(const struct observer *observer, const char *name,
                            const struct observed_entry *observed,
                            char learned[static STORE_TARGET_BYTES], const char **ret_path)
{
    int r = 0;

    learned[0] = '\0';
    if (observed->target_path)
        r = unresolved_offer_volume(observer->context, observed->target_path);
    else if (observed->is_hashed)
        r = store_path_of_hash(observer->context->store, name, learned);
    *ret_path = observed->target_path ? observed->target_path : known(learned);
    if (observed->is_hashed && !*ret_path)
        unresolved_want(observer->unresolved);
    return r;
}

/* A volume is new or has changed: it is decided again, and the sandboxes that it names are
 * observed. Whoever changed it may have resized its drive as well, so the VMM is asked again. */
static int follow_change(const struct observer *observer, const char *name, int64_t volume_id,
                         const struct observed_entry *observed)
{
    const struct context *context = observer->context;
    const struct log_ids ids = {.volume = volume_id};

    (void)work_queue_add_volume(context->queue, volume_id);
    for (unsigned i = 0; i < observed->sandboxes; i++)
        if (context->synced || !scan_comes_to(observer->scan, observed->sandbox[i]))
            work_queue_add_sandbox(context->queue, observed->sandbox[i]);
    if (observed->problem)
        log_warning(&ids, "invalid metadata in %s: %s", name, observed->problem);
    else if (observed->remark)
        log_warning(&ids, "metadata in %s: %s", name, observed->remark);
    return store_want_list(context->store, volume_id);
}

/* The first decisions take it as it is here; each later one observes it by itself. */
static int refresh_device(const struct context *context, int64_t volume_id)
{
    return context->synced && !work_queue_devices_are_fresh(context->queue)
               ? 0
               : devices_refresh_volume(context, volume_id);
}

/* What the metadata itself says. */
static struct store_entry describe(enum reconciler_tree tree, const char *name,
                                   const struct observed_entry *observed)
{
    struct store_entry entry = {
        .layout = tree_layout(tree),
        .key = name,
        .problem = observed->problem,
        .directory_device = observed->directory.device,
        .directory_inode = observed->directory.inode,
        .directory_born_ns = observed->directory.born.tv_sec * (int64_t)NSEC_PER_SEC +
                             observed->directory.born.tv_nsec,
        .mount_info_sha256 = known(observed->mount_info_sha256),
        .volume_type = observed->volume_type,
        .device = observed->device,
        .fs_type = observed->fs_type,
        .options = observed->options,
        .metadata = observed->metadata,
        .policy = observed->policy,
        .read_only = observed->read_only,
        .sandboxes = observed->sandboxes,
    };

    for (unsigned i = 0; i < observed->sandboxes; i++)
        entry.sandbox[i] = observed->sandbox[i];
    return entry;
}

static void add_publish_path(struct store_entry *entry, const struct observed_publish_path *publish)
{
    entry->pv = known(publish->pv);
    entry->pod_uid = known(publish->pod_uid);
    entry->driver = known(publish->driver);
    entry->volume_handle = known(publish->volume_handle);
    entry->defer_fs_mount = flags[publish->defer_fs_mount];
    entry->subpaths = known(publish->subpaths);
}

static int put_entry(const struct observer *observer, enum reconciler_tree tree, const char *name,
                     const struct observed_entry *observed)
{
    const struct context *context = observer->context;
    char learned[STORE_TARGET_BYTES], remark[REMARK_BYTES];
    struct observed_publish_path publish;
    struct store_entry entry = describe(tree, name, observed);
    struct observed_device on;
    struct store_device device;
    struct store_entry_put put;
    int r;

    r = find_target_path(observer, name, observed, learned, &entry.target_path);
    if (r < 0)
        return r;
    read_publish_path(context, entry.target_path, &publish);
    add_publish_path(&entry, &publish);
    entry.remark = compose_remark(observed, &publish, remark);
    /* After the first scan, the pass over the volume does this. */
    if (!context->synced && entry.device && devices_observe_plain(context, entry.device, &on)) {
        device = device_to_record(&on);
        entry.leads_to = &device;
    }
    r = queue_beside(context, name);
    if (r == 0)
        r = store_put_entry_on_device(context->store, &entry, &put);
    if (r == STORE_TOO_MANY) {
        scan_pass_over(observer->scan);
        return 0;
    }
    if (r < 0)
        return r;
    if (put.changed)
        r = follow_change(observer, name, put.volume_id, observed);
    if (r < 0)
        return r;
    if (put.changed && publish.problem[0])
        log_warning(&(struct log_ids){.volume = put.volume_id, .pv = publish.pv}, "%s",
                    publish.problem);
    return put.is_on ? 0 : refresh_device(context, put.volume_id);
}

/* A pod has to be able to end beside a VMM that hangs. */
static int tell_unstaged(const struct context *context, int64_t volume_id)
{
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    int r = store_find_unstaged(context->store, volume_id, sandbox_id);

    if (r == 0 && sandbox_id[0])
        log_warning(
            &(struct log_ids){.volume = volume_id, .sandbox = sandbox_id},
            "its metadata was removed while the sandbox has it: it stays listed until the VM "
            "has ended");
    return r;
}

static int remove_entry(const struct context *context, enum reconciler_tree tree, const char *name)
{
    int64_t volume_id = 0;
    int r;

    work_queue_forget_retry(context->queue, tree, name);
    r = queue_beside(context, name);
    if (r == 0)
        r = store_remove_entry(context->store, tree_layout(tree), name, &volume_id);
    if (r == 0 && volume_id)
        r = tell_unstaged(context, volume_id);
    if (r == 0 && volume_id)
        r = work_queue_add_volume(context->queue, volume_id);
    /* The entry that leads now may name another one. */
    return r == 0 && volume_id ? refresh_device(context, volume_id) : r;
}

/* The directory is watched and read by one descriptor, so that the watched directory is the one
 * that was read. */
static int read_entry(const struct observer *observer, enum reconciler_tree tree, const char *name,
                      struct observed_entry *ret_observed)
{
    const struct reconciler_watchers *watchers = observer->watchers;
    cleanup(fd_closep) int fd = -1;
    int root, opened = trees_open(observer->trees, tree, &root);
    bool has_root = opened == 0;

    if (has_root)
        opened = path_open_directory_below(root, name, &fd);
    trees_release(observer->trees);
    (void)watchers->arm_opened(watchers->userdata, tree, name, opened, fd);
    if (has_root)
        return observe_opened_entry(opened, fd, name, ret_observed);
    return opened == PATH_MISSING ? OBSERVED_ABSENT : opened;
}

int observer_observe_entry(const struct observer *observer, enum reconciler_tree tree,
                           const char *name)
{
    const struct context *context = observer->context;
    cleanup(observed_entry_done) struct observed_entry observed = {0};
    int r = read_entry(observer, tree, name, &observed);

    if (r < 0) {
        log_warning(NULL, "cannot read %s/%s: %s", trees_path(observer->trees, tree), name,
                    strerror(-r));
        (void)work_queue_retry(context->queue, tree, name);
        return 0;
    }
    if (r == OBSERVED_ABSENT)
        return remove_entry(context, tree, name);
    if (observed.try_again && work_queue_retry(context->queue, tree, name))
        return 0;
    if (!observed.try_again)
        work_queue_forget_retry(context->queue, tree, name);
    return put_entry(observer, tree, name, &observed);
}
