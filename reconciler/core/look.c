/* SPDX-License-Identifier: Apache-2.0 */
/* look.c - one thing of the world, as it is now, into the store.
 *
 * Watch first, then read: a change after the reading then says so. A reading that failed for a
 * reason of this machine (no descriptors, no memory) teaches nothing, so nothing is written and the
 * thing is looked at again later.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/path.h"
#include "observe/observe.h"
#include "reconciler/core/internal.h"
#include "reconciler/core/node_paths.h"
#include "store/cleanups.h"

const char *look_path(const struct reconciler *reconciler, enum reconciler_tree tree)
{
    if (tree >= TREE_BUNDLES)
        return reconciler->bundle[tree - TREE_BUNDLES];
    switch ((int)tree) {
    case TREE_KATA_VOLUMES:
        return reconciler->config.paths.kata_volumes;
    case TREE_CRUST_VOLUMES:
        return reconciler->config.paths.crust_volumes;
    case TREE_GO_SANDBOXES:
        return reconciler->config.paths.kata_go_sandboxes;
    case TREE_GO_VMS:
        return reconciler->config.paths.kata_go_vms;
    default:
        return reconciler->config.paths.kata_rs_sandboxes;
    }
}

enum reconciler_tree look_tree_of(enum volume_layout layout)
{
    return layout == LAYOUT_CRUST ? TREE_CRUST_VOLUMES : TREE_KATA_VOLUMES;
}

const char *look_trash_path(const struct reconciler *reconciler, enum volume_layout layout)
{
    return node_trash_path(&reconciler->config, layout);
}

int mark_volume(void *userdata, int64_t volume_id)
{
    struct reconciler *reconciler = userdata;

    /* The end of the first scan marks them all. */
    if (reconciler->synced)
        marks_add_number(&reconciler->volumes, (uint64_t)volume_id);
    return 0;
}

/* ---- metadata directories ---- */

enum volume_layout look_layout_of(enum reconciler_tree tree)
{
    return tree == TREE_CRUST_VOLUMES ? LAYOUT_CRUST : LAYOUT_KATA;
}

static const enum store_flag flags[] = {
    [OBSERVED_UNSAID] = STORE_UNSAID,
    [OBSERVED_NO] = STORE_NO,
    [OBSERVED_YES] = STORE_YES,
};

#define PLUGIN_FILE                                                                                \
    "csiPlugin.json at the volume's root: refused and not followed, a tenant may have written it"

static const char *known(const char *text)
{
    return text[0] ? text : NULL;
}

static void look_up_publish_path(const struct reconciler *reconciler, const char *target_path,
                                 struct observed_publish_path *ret_path)
{
    const struct config_paths_list *list = &reconciler->config.paths.kubelet;
    const char *kubelet[CONFIG_LIST_ITEMS];

    *ret_path = (struct observed_publish_path){0};
    for (unsigned i = 0; i < list->count; i++)
        kubelet[i] = list->item[i];
    if (target_path)
        (void)observe_publish_path(reconciler->root, kubelet, list->count, target_path, ret_path);
}

/* Before an entry is written: if its volume ends, nothing leads from it to those it shared a device
 * with any more. */
static int mark_beside(struct reconciler *reconciler, const char *name)
{
    if (!reconciler->synced)
        return 0; /* then all are marked */
    return store_each_volume_beside(reconciler->store, name, mark_volume, reconciler);
}

/* The sweep looks again, in case others have gone. */
static int pass_over(struct reconciler *reconciler)
{
    if (!reconciler->too_many)
        log_warning(NULL, "there are %d volumes already: further directories are passed over",
                    STORE_VOLUMES);
    reconciler->too_many = reconciler->passed_over = true;
    return 0;
}

/* What is worth saying of a volume that is well. NULL: nothing. */
static const char *compose_remark(const struct observed_entry *observed, bool has_plugin_file,
                                  char ret_text[static 2 * STORE_TEXT_BYTES])
{
    if (!observed->remark || !has_plugin_file)
        return has_plugin_file ? PLUGIN_FILE : observed->remark;
    (void)snprintf(ret_text, 2 * STORE_TEXT_BYTES, "%s; %s", PLUGIN_FILE, observed->remark);
    return ret_text;
}

/* From the name, or from what was learned about it. NULL if it is not known. */
static int find_target_path(struct reconciler *reconciler, const char *name,
                            const struct observed_entry *observed,
                            char learned[static STORE_TARGET_BYTES], const char **ret_path)
{
    int r = 0;

    learned[0] = '\0';
    if (observed->target_path)
        r = hidden_offer_volume(reconciler, observed->target_path);
    else if (observed->is_hashed)
        r = store_path_of_hash(reconciler->store, name, learned);
    *ret_path = observed->target_path ? observed->target_path : known(learned);
    if (observed->is_hashed && !*ret_path)
        reconciler->hidden.wanted = true;
    return r;
}

static int put_entry(struct reconciler *reconciler, enum reconciler_tree tree, const char *name,
                     const struct observed_entry *observed)
{
    char learned[STORE_TARGET_BYTES], remark[2 * STORE_TEXT_BYTES];
    struct observed_publish_path publish;
    struct store_entry entry = {
        .layout = look_layout_of(tree),
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
    int64_t volume_id;
    bool changed;
    int r;

    r = find_target_path(reconciler, name, observed, learned, &entry.target_path);
    if (r < 0)
        return r;
    look_up_publish_path(reconciler, entry.target_path, &publish);
    entry.pv = known(publish.pv);
    entry.pod_uid = known(publish.pod_uid);
    entry.driver = known(publish.driver);
    entry.volume_handle = known(publish.volume_handle);
    entry.defer_fs_mount = flags[publish.defer_fs_mount];
    entry.subpaths = known(publish.subpaths);
    entry.remark = compose_remark(observed, publish.has_plugin_file, remark);
    for (unsigned i = 0; i < observed->sandboxes; i++)
        entry.sandbox[i] = observed->sandbox[i];

    r = mark_beside(reconciler, name);
    if (r == 0)
        r = store_put_entry(reconciler->store, &entry, &volume_id, &changed);
    if (r == STORE_TOO_MANY)
        return pass_over(reconciler);
    if (r < 0)
        return r;
    if (changed) {
        (void)mark_volume(reconciler, volume_id);
        for (unsigned i = 0; i < observed->sandboxes; i++)
            if (reconciler->synced || !scan_comes_to(reconciler, observed->sandbox[i]))
                marks_add_name(&reconciler->sandboxes, observed->sandbox[i]);
        if (observed->problem)
            log_warning(&(struct log_ids){.volume = volume_id}, "invalid metadata in %s: %s", name,
                        observed->problem);
        else if (observed->remark)
            log_warning(&(struct log_ids){.volume = volume_id}, "metadata in %s: %s", name,
                        observed->remark);
    }
    return reconciler->synced ? 0 : look_at_volume_device(reconciler, volume_id);
}

static int remove_entry(struct reconciler *reconciler, enum reconciler_tree tree, const char *name)
{
    int64_t volume_id = 0;
    int r;

    retry_forget(reconciler, tree, name);
    r = mark_beside(reconciler, name);
    if (r == 0)
        r = store_remove_entry(reconciler->store, look_layout_of(tree), name, &volume_id);
    if (r == 0 && volume_id)
        (void)mark_volume(reconciler, volume_id);
    return r;
}

int look_at_entry(struct reconciler *reconciler, enum reconciler_tree tree, const char *name)
{
    cleanup(fd_closep) int directory = -1;
    cleanup(observed_entry_done) struct observed_entry observed = {0};
    int r;

    (void)reconciler->senses->arm(reconciler->userdata, tree, name);
    r = path_open_directory_in_root(reconciler->root, look_path(reconciler, tree), &directory);
    if (r == -ENOENT)
        return remove_entry(reconciler, tree, name);
    if (r == 0)
        r = observe_entry(directory, name, &observed);
    if (r < 0) {
        log_warning(NULL, "cannot read %s/%s: %s", look_path(reconciler, tree), name, strerror(-r));
        (void)retry_later(reconciler, tree, name);
        return 0;
    }
    if (r == OBSERVED_ABSENT)
        return remove_entry(reconciler, tree, name);
    if (observed.try_again && retry_later(reconciler, tree, name))
        return 0;
    if (!observed.try_again)
        retry_forget(reconciler, tree, name);
    return put_entry(reconciler, tree, name, &observed);
}

/* ---- sandboxes ---- */

static int end_sandbox(struct reconciler *reconciler, const char *sandbox_id)
{
    /* The look may come before the word of the exit, which is witnessed all the same. */
    pid_t ended = reconciler->senses->unpin(reconciler->userdata, sandbox_id);
    bool changed;
    int r = ended ? store_note_exit(reconciler->store, sandbox_id, ended) : 0;

    /* Its volumes first: once it has ended, nothing leads from it to those it shared a device with.
     */
    if (r == 0)
        r = store_each_volume_of_sandbox(reconciler->store, sandbox_id, mark_volume, reconciler);
    if (r == 0)
        r = store_each_bypassed_volume(reconciler->store, sandbox_id, mark_volume, reconciler);
    if (r == 0)
        r = store_end_sandbox(reconciler->store, sandbox_id, &changed);
    if (r == 0 && changed) {
        log_info(&(struct log_ids){.sandbox = sandbox_id}, "sandbox is gone");
        monitors_want(reconciler);
    }
    return r;
}

static struct store_drive *copy_drives(const struct observed_sandbox *observed)
{
    struct store_drive *drives = calloc(observed->drives + 1, sizeof(*drives));

    for (unsigned i = 0; drives && i < observed->drives; i++)
        drives[i] = (struct store_drive){
            .mount_source = observed->drive[i].mount_source,
            .file = observed->drive[i].file,
            .major = observed->drive[i].major,
            .minor = observed->drive[i].minor,
            .drive_id = observed->drive[i].drive_id,
            .guest_path = observed->drive[i].guest_path,
        };
    return drives;
}

static const enum store_carrier carriers[] = {
    [CARRIER_ENDED] = STORE_CARRIER_ENDED,
    [CARRIER_UNKNOWN] = STORE_CARRIER_UNKNOWN,
    [CARRIER_DIRECTORY] = STORE_CARRIER_DIRECTORY,
    [CARRIER_DEVICE] = STORE_CARRIER_DEVICE,
};

static struct store_claim *copy_claims(const struct observed_sandbox *observed)
{
    struct store_claim *claims = calloc(observed->claims + 1, sizeof(*claims));

    for (unsigned i = 0; claims && i < observed->claims; i++)
        claims[i] = (struct store_claim){
            .path = observed->claim[i].path,
            .source = observed->claim[i].source,
            .guest_path = observed->claim[i].guest_path,
            .carrier = carriers[observed->claim[i].carrier],
            .drive = observed->claim[i].drive,
        };
    return claims;
}

static int note_volume(void *userdata, int64_t volume_id)
{
    marks_add_number(userdata, (uint64_t)volume_id);
    return 0;
}

/* Whoever was the sandbox's before the change or is after it. */
static int mark_volumes_of(struct reconciler *reconciler, const char *sandbox_id,
                           struct marks *before)
{
    uint64_t volume_id;
    int r;

    if (before->lost)
        reconciler->all_volumes = true;
    while (marks_take_number(before, &volume_id))
        (void)mark_volume(reconciler, (int64_t)volume_id);
    r = store_each_volume_of_sandbox(reconciler->store, sandbox_id, mark_volume, reconciler);
    return r < 0
               ? r
               : store_each_bypassed_volume(reconciler->store, sandbox_id, mark_volume, reconciler);
}

static int put_sandbox(struct reconciler *reconciler, const char *sandbox_id,
                       const struct observed_sandbox *observed)
{
    cleanup(freep) struct store_drive *drives = copy_drives(observed);
    cleanup(freep) struct store_claim *claims = copy_claims(observed);
    cleanup(marks_done) struct marks before = {0};
    struct store_sandbox sandbox = {
        .sandbox_id = sandbox_id,
        .runtime = observed->runtime,
        .hypervisor = observed->hypervisor,
        .vmm_pid = observed->vmm_pid,
        .vmm_start_ns = observed->vmm_start_ns,
        .control_socket = observed->control_socket,
        .agent_address = observed->agent_address,
        .pod_namespace = observed->pod_namespace,
        .pod_name = observed->pod_name,
        .drives = observed->drives,
        .drive = drives,
        .claims = observed->claims,
        .claim = claims,
    };
    int64_t sandbox_ref;
    bool changed = false;
    int r;

    if (!drives || !claims)
        return -ENOMEM;
    r = store_each_volume_of_sandbox(reconciler->store, sandbox_id, note_volume, &before);
    if (r == 0)
        r = hidden_offer_claims(reconciler, observed);
    if (r == 0)
        r = store_put_sandbox(reconciler->store, &sandbox, &sandbox_ref, &changed);
    if (r < 0 || !changed)
        return r;
    log_info(&(struct log_ids){.sandbox = sandbox_id}, "sandbox is alive: %s, %s, pid %d",
             runtime_name(observed->runtime), hypervisor_name(observed->hypervisor),
             (int)observed->vmm_pid);
    r = store_forget_waiting_of(reconciler->store, sandbox_ref);
    return r < 0 ? r : mark_volumes_of(reconciler, sandbox_id, &before);
}

/* Containers come and go while the sandbox lives. */
static void watch_bundles(struct reconciler *reconciler, const char *path)
{
    enum reconciler_tree tree = TREE_BUNDLES + reconciler->bundles;
    char *copy;
    int r;

    for (unsigned i = 0; i < reconciler->bundles; i++)
        if (strcmp(reconciler->bundle[i], path) == 0)
            return;
    copy = reconciler->bundles < RECONCILER_BUNDLES ? strdup(path) : NULL;
    if (!copy)
        return; /* the sweep looks */
    reconciler->bundle[reconciler->bundles++] = copy;
    r = reconciler->senses->watch(reconciler->userdata, tree, path);
    if (r < 0)
        log_warning(NULL, "cannot watch %s: %s", path, strerror(-r));
}

int look_at_bundle(struct reconciler *reconciler, enum reconciler_tree tree, const char *name)
{
    struct observe_sandbox_paths paths = {.root = reconciler->root, .cache = reconciler->cache};
    char sandbox_id[OBSERVE_SANDBOX_ID_BYTES];
    int r = observe_bundle_owner(&paths, look_path(reconciler, tree), name, sandbox_id);

    if (r < 0)
        log_warning(NULL, "cannot read the bundle %s/%s: %s", look_path(reconciler, tree), name,
                    strerror(-r));
    if (r < 0 || r == 2)
        (void)retry_later(reconciler, tree, name);
    else
        retry_forget(reconciler, tree, name);
    if (r >= 0 && sandbox_id[0])
        marks_add_name(&reconciler->sandboxes, sandbox_id);
    return 0;
}

void look_sandbox_paths(const struct reconciler *reconciler, const char *bundles[CONFIG_LIST_ITEMS],
                        struct observe_sandbox_paths *ret_paths)
{
    node_sandbox_paths(&reconciler->context, bundles, ret_paths);
}

int look_at_sandbox(struct reconciler *reconciler, const char *sandbox_id)
{
    cleanup(observed_sandbox_done) struct observed_sandbox observed = {0};
    struct observe_sandbox_paths paths;
    const char *bundles[CONFIG_LIST_ITEMS];
    int r;

    look_sandbox_paths(reconciler, bundles, &paths);
    (void)reconciler->senses->arm(reconciler->userdata, TREE_GO_SANDBOXES, sandbox_id);
    (void)reconciler->senses->arm(reconciler->userdata, TREE_GO_VMS, sandbox_id);
    (void)reconciler->senses->arm(reconciler->userdata, TREE_RS_SANDBOXES, sandbox_id);
    r = observe_sandbox(&paths, sandbox_id, &observed);
    if (r < 0) {
        log_warning(&(struct log_ids){.sandbox = sandbox_id}, "cannot look at the sandbox: %s",
                    strerror(-r));
        (void)retry_later(reconciler, TREE_GO_SANDBOXES, sandbox_id);
        return 0;
    }
    if (observed.try_again && retry_later(reconciler, TREE_GO_SANDBOXES, sandbox_id))
        return 0;
    if (!observed.try_again)
        retry_forget(reconciler, TREE_GO_SANDBOXES, sandbox_id);
    if (r == OBSERVED_ABSENT || !observed.alive)
        return end_sandbox(reconciler, sandbox_id);
    /* 1: it died between the reading and now. */
    if (reconciler->senses->pin(reconciler->userdata, sandbox_id, observed.vmm_pid) == 1)
        return end_sandbox(reconciler, sandbox_id);
    if (observed.bundles)
        watch_bundles(reconciler, observed.bundles);
    return put_sandbox(reconciler, sandbox_id, &observed);
}

/* ---- devices ---- */

int look_at_device(struct reconciler *reconciler, uint32_t major, uint32_t minor)
{
    int r = store_each_volume_of_device(reconciler->store, major, minor, mark_volume, reconciler);

    reconciler->devices_are_fresh = false;
    if (r < 0)
        return r;
    /* It may be the one that a volume's path has been waiting for. */
    return store_each_volume_without_device(reconciler->store, mark_volume, reconciler);
}
