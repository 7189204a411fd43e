/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - see observer.h.
 *
 * A tree's root is watched before its scan begins, so a directory made meanwhile is found by the
 * watch or by the scan. Directories that the store knows and the tree no longer has are observed
 * too, and found absent. Directories of the sandbox trees only name sandboxes to observe. Those of
 * the bundle trees name containers, whose sandboxes are observed.
 *
 * A sandbox has a directory in more than one tree, and one observation covers all of them. To
 * observe it only once, the last of the trees that contain it queues it; sandboxes that the store
 * knows or that an entry names are left to the trees as well.
 */
#include "reconciler/core/observer.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/directory.h"
#include "lib/encode.h"
#include "lib/log.h"
#include "lib/path.h"
#include "observe/observe.h"
#include "reconciler/cleanup/cleaner.h"
#include "reconciler/core/context.h"
#include "reconciler/core/lower_devices.h"
#include "reconciler/core/work_queue.h"
#include "store/store.h"
#include "watch/watch.h"

enum { NAMES_PER_STEP = 64 };

struct known {
    struct work_queue *queue;
    enum reconciler_tree tree;
    int directory; /* -1: the root does not exist */
};

/* Queues entries that have a row and are no longer in the tree. */
static int add_if_absent(void *userdata, const char *key)
{
    struct known *known = userdata;
    struct stat st;

    if (known->directory < 0 || fstatat(known->directory, key, &st, AT_SYMLINK_NOFOLLOW) < 0)
        work_queue_add_directory(known->queue, known->tree, key);
    return 0;
}

/* If a tree that is being read contains the sandbox, it has queued it or will do so. */
static bool is_in_trees_from(const struct scan *scan, enum reconciler_tree first, const char *name)
{
    struct stat st;

    for (enum reconciler_tree tree = first; tree < TREE_BUNDLES; tree++)
        if (scan->open[tree] &&
            fstatat(dirfd(scan->open[tree]), name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            return true;
    return false;
}

static int add_sandbox(void *userdata, const struct store_helper_run *sandbox)
{
    struct scan *scan = userdata;

    if (!is_in_trees_from(scan, TREE_GO_SANDBOXES, sandbox->sandbox_id))
        work_queue_add_sandbox(scan->context->queue, sandbox->sandbox_id);
    return 0;
}

static void end_tree(struct scan *scan, enum reconciler_tree tree)
{
    if (scan->open[tree])
        (void)closedir(scan->open[tree]);
    scan->open[tree] = NULL;
}

static void begin_tree(struct scan *scan, enum reconciler_tree tree)
{
    const char *path = trees_path(scan->context->trees, tree);
    struct known known = {scan->context->queue, tree, -1};
    struct stat st;
    int r;

    end_tree(scan, tree);
    scan->wanted[tree] = false;
    if (!path)
        return;
    r = directory_list_in_root(scan->context->root, path, &scan->open[tree]);
    if (r < 0) {
        scan->open[tree] = NULL;
        if (r != PATH_MISSING)
            log_warning(NULL, "cannot open %s: %s", path, strerror(-r));
    } else {
        known.directory = dirfd(scan->open[tree]);
        if (tree < TREE_BUNDLES && fstat(known.directory, &st) == 0)
            watch_health_note_root(scan->context->watch_health, tree, &st);
    }
    if (tree_has_volumes(tree))
        (void)store_each_entry(scan->context->store, tree_layout(tree), false, add_if_absent,
                               &known);
}

void scan_some(struct scan *scan)
{
    bool sandboxes = false;

    /* The sandbox trees are always read together, because each relies on the later ones. */
    for (enum reconciler_tree tree = TREE_GO_SANDBOXES; tree < TREES; tree++)
        sandboxes |= scan->wanted[tree];
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        if (scan->wanted[tree] || (sandboxes && tree_has_sandboxes(tree) && scan->open[tree]))
            begin_tree(scan, tree);
    if (sandboxes)
        (void)store_each_sandbox(scan->context->store, false, add_sandbox, scan);
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        for (unsigned names = 0; names < NAMES_PER_STEP && scan->open[tree] &&
                                 work_queue_has_room(scan->context->queue, tree);
             names++) {
            const char *name = directory_next(scan->open[tree]);

            if (!name)
                end_tree(scan, tree);
            else if (!(tree_has_sandboxes(tree) && is_in_trees_from(scan, tree + 1, name)))
                work_queue_add_directory(scan->context->queue, tree, name);
        }
}

bool scan_is_done(const struct scan *scan)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        if (scan->wanted[tree] || scan->open[tree])
            return false;
    return true;
}

void scan_want(struct scan *scan, enum reconciler_tree tree)
{
    scan->wanted[tree] = true;
}

void scan_want_all(struct scan *scan)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        scan_want(scan, tree);
}

void scan_want_sweep(struct scan *scan)
{
    /* Clears the over-limit flag only after a full scan that skipped nothing. */
    if (scan->over_limit && scan_is_done(scan)) {
        scan->over_limit = scan->passed_over;
        scan->passed_over = false;
        scan->wanted[TREE_KATA_VOLUMES] |= scan->over_limit;
        scan->wanted[TREE_CRUST_VOLUMES] |= scan->over_limit;
    }
    scan_want(scan, TREE_GO_SANDBOXES);
    scan_want(scan, TREE_RS_SANDBOXES);
}

bool scan_is_over_limit(const struct scan *scan)
{
    return scan->over_limit;
}

void scan_done(struct scan *scan)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        end_tree(scan, tree);
}

/* ---- entries -------------------------------------------------------------------------------- */

/* Metadata directories: see observer.h. */

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

/* Called before an entry is written: if its volume ends, the store no longer links it to the
 * volumes it shared a device with. */
static int queue_beside(const struct context *context, const char *name)
{
    if (!context->synced)
        return 0; /* the end of the first scan queues all */
    return store_each_volume(context->store, STORE_SEARCH(BESIDE, .name = name),
                             work_queue_add_volume, context->queue);
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
static int find_target_path(const struct context *context, const char *name,
                            const struct observed_entry *observed,
                            char learned[static STORE_TARGET_BYTES], const char **ret_path)
{
    int r = 0;

    learned[0] = '\0';
    if (observed->target_path)
        r = unresolved_offer(context, observed->target_path, "layout");
    else if (observed->is_hashed)
        r = store_path_of_hash(context->store, name, learned);
    *ret_path = observed->target_path ? observed->target_path : known(learned);
    if (observed->is_hashed && !*ret_path)
        context->unresolved->wanted = true;
    return r;
}

/* A volume is new or has changed: it is decided again, and the sandboxes that it names are
 * observed. Whoever changed it may have resized its drive as well, so the VMM is asked again. */
static int follow_change(const struct context *context, const char *name, int64_t volume_id,
                         const struct observed_entry *observed)
{
    const struct log_ids ids = {.volume = volume_id};

    (void)work_queue_add_volume(context->queue, volume_id);
    for (unsigned i = 0; i < observed->sandboxes; i++)
        if (context->synced ||
            !is_in_trees_from(context->scan, TREE_GO_SANDBOXES, observed->sandbox[i]))
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

static struct store_entry describe(enum volume_layout layout, const char *name,
                                   const struct observed_entry *observed,
                                   const struct observed_publish_path *publish)
{
    struct store_entry entry = {
        .layout = layout,
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
        .grows_file_system = !observed->is_raw,
        .sandboxes = observed->sandboxes,
        .pv = known(publish->pv),
        .pod_uid = known(publish->pod_uid),
        .driver = known(publish->driver),
        .volume_handle = known(publish->volume_handle),
        .defer_fs_mount = flags[publish->defer_fs_mount],
        .subpaths = known(publish->subpaths),
    };

    for (unsigned i = 0; i < observed->sandboxes; i++)
        entry.sandbox[i] = observed->sandbox[i];
    return entry;
}

static int put_entry(const struct context *context, enum volume_layout layout, const char *name,
                     const struct observed_entry *observed)
{
    char learned[STORE_TARGET_BYTES], remark[REMARK_BYTES];
    struct observed_publish_path publish = {0};
    const char *target_path;
    struct store_entry entry;
    struct observed_device on;
    struct store_device device;
    struct store_entry_put put;
    int r = find_target_path(context, name, observed, learned, &target_path);

    if (r < 0)
        return r;
    if (target_path)
        (void)node_publish_path(context, target_path, &publish);
    entry = describe(layout, name, observed, &publish);
    entry.target_path = target_path;
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
        if (!context->scan->over_limit)
            log_warning(NULL,
                        "the limit of %d volumes is reached: further directories are passed over",
                        STORE_VOLUMES);
        context->scan->over_limit = context->scan->passed_over = true;
        return 0;
    }
    if (r < 0)
        return r;
    if (put.changed)
        r = follow_change(context, name, put.volume_id, observed);
    if (r == 0 && put.changed && publish.problem[0])
        log_warning(&(struct log_ids){.volume = put.volume_id, .pv = publish.pv}, "%s",
                    publish.problem);
    return r < 0 || put.is_on ? r : refresh_device(context, put.volume_id);
}

static int remove_entry(const struct context *context, enum volume_layout layout, const char *name)
{
    char sandbox_id[STORE_SANDBOX_ID_BYTES] = "";
    int64_t volume_id = 0;
    int r = queue_beside(context, name);

    if (r == 0)
        r = store_remove_entry(context->store, layout, name, &volume_id);
    if (r == 0 && volume_id)
        r = store_find_unstaged(context->store, volume_id, sandbox_id);
    if (r < 0 || !volume_id)
        return r;
    if (sandbox_id[0]) /* A pod has to be able to end beside a VMM that hangs. */
        log_warning(
            &(struct log_ids){.volume = volume_id, .sandbox = sandbox_id},
            "its metadata was removed while the sandbox has it: it stays listed until the VM "
            "has ended");
    (void)work_queue_add_volume(context->queue, volume_id);
    /* The entry that leads now may name another one. */
    return refresh_device(context, volume_id);
}

int observer_observe_entry(const struct context *context, enum reconciler_tree tree,
                           const char *name)
{
    cleanup(observed_entry_done) struct observed_entry observed = {0};
    cleanup(fd_closep) int fd = -1;
    const char *path = trees_path(context->trees, tree);
    int r, root, opened = trees_open(context->trees, tree, &root);
    bool has_root = opened == 0;

    /* The directory is watched and read by one descriptor, so that the watched directory is the one
     * that was read. */
    if (has_root)
        opened = path_open_directory_below(root, name, &fd);
    (void)watch_directories_arm_opened(context->watchers->directories, tree, name, opened, fd);
    if (has_root)
        r = observe_opened_entry(opened, fd, name, &observed);
    else
        r = opened == PATH_MISSING ? OBSERVED_ABSENT : opened;
    trees_release(context->trees);
    if (r < 0) {
        log_warning(NULL, "cannot read %s/%s: %s", path, name, strerror(-r));
        (void)work_queue_retry(context->queue, tree, name);
        return 0;
    }
    if (observed.try_again && work_queue_retry(context->queue, tree, name))
        return 0;
    if (!observed.try_again)
        work_queue_forget_retry(context->queue, tree, name);
    return r == OBSERVED_ABSENT ? remove_entry(context, tree_layout(tree), name)
                                : put_entry(context, tree_layout(tree), name, &observed);
}

/* ---- raw block claims ---------------------------------------------------------------------- */

int observer_put_block_claims(const struct context *context,
                              const struct observed_sandbox *observed)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < observed->claims; i++) {
        const struct observed_claim *claim = &observed->claim[i];
        struct observed_entry entry = {
            .target_path = claim->path,
            .device = claim->path,
            .policy = claim->is_confidential ? POLICY_FIXED : POLICY_GROW,
            .is_raw = !claim->grows_file_systems,
        };
        char hash[SHA256_HEX_BYTES], key[STORE_KEY_BYTES];

        if (!claim->given)
            continue;
        sha256_hex(claim->path, strlen(claim->path), hash);
        (void)snprintf(key, sizeof(key), "block:%s", hash);
        r = put_entry(context, LAYOUT_NONE, key, &entry);
    }
    return r;
}

int observer_end_block_claims(const struct context *context)
{
    char key[STORE_KEY_BYTES];
    int r;

    do {
        r = store_find_unclaimed(context->store, key);
        if (r == 0 && key[0])
            r = remove_entry(context, LAYOUT_NONE, key);
    } while (r == 0 && key[0]);
    return r;
}
