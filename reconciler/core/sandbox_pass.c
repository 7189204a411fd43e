/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_pass.c - sandboxes and their containers' bundles: see observer.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/collections.h"
#include "lib/log.h"
#include "lib/process.h"
#include "observe/observe.h"
#include "observe/observed_sandbox.h"
#include "reconciler/cleanup/cleaner.h"
#include "reconciler/core/context.h"
#include "reconciler/core/observer.h"
#include "reconciler/core/work_queue.h"
#include "store/cleanups.h"
#include "store/store.h"
#include "watch/watch.h"

/* Queues the volumes that the sandbox has, and those of which a container has bypassed a part. */
static int queue_volumes(const struct context *context, const char *sandbox_id)
{
    int r = store_each_volume(context->store, STORE_SEARCH(OF_SANDBOX, .name = sandbox_id),
                              work_queue_add_volume, context->queue);

    return r < 0 ? r
                 : store_each_volume(context->store, STORE_SEARCH(BYPASSED, .name = sandbox_id),
                                     work_queue_add_volume, context->queue);
}

/* Any volume that nobody is known to have may be one of a sandbox that cannot be read. */
static int note_problem(const struct context *context, const char *sandbox_id, const char *problem)
{
    bool changed = false;
    int r = store_set_problem(context->store, sandbox_id, problem, &changed);

    if (r == 0 && changed)
        work_queue_add_all_volumes(context->queue);
    return r;
}

static int end_sandbox(const struct context *context, const char *sandbox_id)
{
    struct store *store = context->store;
    /* This observation may precede the event of the exit. The exit counts as witnessed all the
     * same. */
    pid_t ended = watch_processes_remove(context->watchers->processes, sandbox_id);
    bool changed;
    int r = ended ? store_note_exit(store, sandbox_id, ended) : 0;

    if (r == 0)
        r = note_problem(context, sandbox_id, NULL);
    /* Its volumes are queued first: once the sandbox has ended, the store no longer links it to
     * them or to the volumes they shared a device with. */
    if (r == 0)
        r = queue_volumes(context, sandbox_id);
    if (r == 0)
        r = store_end_sandbox(store, sandbox_id, &changed);
    if (r == 0)
        r = observer_end_block_claims(context);
    trees_leave_bundles(context->trees, sandbox_id);
    if (r == 0 && changed) {
        log_info(&(struct log_ids){.sandbox = sandbox_id}, "sandbox is gone");
        monitors_want(context->monitors);
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
            .given = observed->claim[i].given,
        };
    return claims;
}

static int note_volume(void *userdata, int64_t volume_id)
{
    key_queue_add_number(userdata, (uint64_t)volume_id);
    return 0;
}

static int put_sandbox(const struct context *context, const char *sandbox_id,
                       const struct observed_sandbox *observed)
{
    cleanup(freep) struct store_drive *drives = copy_drives(observed);
    cleanup(freep) struct store_claim *claims = copy_claims(observed);
    cleanup(key_queue_done) struct key_queue before = {0};
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
    uint64_t start_ns, volume_id;
    pid_t before_pid;
    int r;

    if (!drives || !claims)
        return -ENOMEM;
    r = store_find_vmm(context->store, sandbox_id, &before_pid, &start_ns);
    if (r == 0)
        r = store_each_volume(context->store, STORE_SEARCH(OF_SANDBOX, .name = sandbox_id),
                              note_volume, &before);
    if (r == 0)
        r = unresolved_offer_claims(context, observed);
    if (r == 0)
        r = store_put_sandbox(context->store, &sandbox, &sandbox_ref, &changed);
    if (r == 0)
        r = note_problem(context, sandbox_id, observed->hides_volumes ? observed->problem : NULL);
    if (r == 0)
        r = observer_put_block_claims(context, observed);
    if (r == 0 && changed)
        r = observer_end_block_claims(context);
    if (r < 0 || !changed)
        return r;
    if (before_pid != observed->vmm_pid || start_ns != observed->vmm_start_ns)
        log_info(&(struct log_ids){.sandbox = sandbox_id}, "sandbox is alive: %s, %s, pid %d",
                 runtime_name(observed->runtime), hypervisor_name(observed->hypervisor),
                 (int)observed->vmm_pid);
    r = store_forget_waiting_of(context->store, sandbox_ref);
    if (r < 0)
        return r;
    if (before.lost)
        work_queue_add_all_volumes(context->queue);
    while (key_queue_take_number(&before, &volume_id)) /* those that it had before the change */
        (void)work_queue_add_volume(context->queue, (int64_t)volume_id);
    return queue_volumes(context, sandbox_id);
}

int observer_observe_bundle(const struct context *context, enum reconciler_tree tree,
                            const char *name)
{
    const char *path = trees_path(context->trees, tree);
    struct observe_sandbox_paths paths = {.root = context->root, .cache = context->cache};
    char sandbox_id[OBSERVE_SANDBOX_ID_BYTES] = "";
    /* A name may be queued when the tree's last sandbox ends, and the tree with it. */
    int r = path ? observe_bundle_owner(&paths, path, name, sandbox_id) : 0;

    if (r < 0)
        log_warning(NULL, "cannot read the bundle %s/%s: %s", path, name, strerror(-r));
    if (r < 0 || r == 2)
        (void)work_queue_retry(context->queue, tree, name);
    else
        work_queue_forget_retry(context->queue, tree, name);
    if (r >= 0 && sandbox_id[0])
        work_queue_add_sandbox(context->queue, sandbox_id);
    return 0;
}

/* ---- VMMs without a shim ---- */

static int set_orphaned(const struct context *context, const char *sandbox_id, bool orphaned,
                        const struct observed_sandbox *held)
{
    cleanup(freep) struct store_drive *drives = copy_drives(held);
    bool changed;
    int r = !drives ? -ENOMEM
                    : store_set_orphaned(context->store, sandbox_id, orphaned, drives, held->drives,
                                         &changed);

    if (r < 0 || !changed)
        return r;
    if (orphaned)
        log_warning(&(struct log_ids){.sandbox = sandbox_id},
                    "the sandbox is orphaned: its shim has ended and its VMM has not; "
                    "crustctl doctor says what to do");
    return queue_volumes(context, sandbox_id);
}

/* An enum observed_shim. If it has ended, ret_held has what the VMM has open, where that can be
 * read.
 */
static int read_shim(const struct context *context, const char *sandbox_id, pid_t vmm_pid,
                     uint64_t vmm_start_ns, bool has_records, struct observed_sandbox *ret_held)
{
    int shim = observe_shim(context->cache, sandbox_id, vmm_pid, vmm_start_ns, has_records);

    if (shim == OBSERVED_SHIM_UNFINISHED)
        work_queue_add_sandbox(context->queue, sandbox_id);
    if (shim == OBSERVED_SHIM_ENDED)
        (void)observe_held_drives(vmm_pid, vmm_start_ns, ret_held);
    return shim;
}

/* What cannot be told or read now changes nothing: the sweep asks again. */
static int judge_shim(const struct context *context, const char *sandbox_id, pid_t vmm_pid,
                      uint64_t vmm_start_ns, bool has_records)
{
    cleanup(observed_sandbox_done) struct observed_sandbox held = {0};
    int shim = read_shim(context, sandbox_id, vmm_pid, vmm_start_ns, has_records, &held);

    return shim == OBSERVED_SHIM_RUNS || shim == OBSERVED_SHIM_ENDED
               ? set_orphaned(context, sandbox_id, shim == OBSERVED_SHIM_ENDED, &held)
               : 0;
}

static int is_volume(void *userdata, int64_t volume_id)
{
    (void)userdata;
    return volume_id > 0;
}

/* 1, 0 or -errno of the store. */
static int has_volume(const struct context *context, pid_t pid, uint64_t start_ns)
{
    cleanup(observed_sandbox_done) struct observed_sandbox held = {0};
    int r = 0;

    (void)observe_held_drives(pid, start_ns, &held);
    for (unsigned i = 0; r == 0 && i < held.drives; i++)
        r = store_each_volume(context->store,
                              STORE_SEARCH(OF_DEVICE, .major = (uint32_t)held.drive[i].major,
                                           .minor = (uint32_t)held.drive[i].minor),
                              is_volume, NULL);
    return r;
}

static int record_observation(const struct context *context, const char *sandbox_id,
                              const struct observed_sandbox *observed, bool has_records)
{
    cleanup(observed_sandbox_done) struct observed_sandbox held = {0};
    uint64_t start_ns;
    pid_t pid;
    int r;

    if (!observed->alive || observed->unrecorded) {
        r = store_find_vmm(context->store, sandbox_id, &pid, &start_ns);
        /* A sandbox ends with its VMM's process, not with its records. The pin may be another
         * process's that got the pid: its start time says so. */
        if (r == 0 && (pid || !observed->unrecorded))
            return pid == 0 ||
                           watch_processes_add(context->watchers->processes, sandbox_id, pid) ==
                               WATCH_PROCESS_GONE ||
                           process_has_ended(pid, start_ns) == 1
                       ? end_sandbox(context, sandbox_id)
                       : judge_shim(context, sandbox_id, pid, start_ns, has_records);
        /* crustd has never seen it with records. Others' VMMs may be called like Kata's, so one
         * counts only if it has the device of a volume, and its shim has ended. */
        if (r == 0)
            r = has_volume(context, observed->vmm_pid, observed->vmm_start_ns);
        if (r <= 0 || read_shim(context, sandbox_id, observed->vmm_pid, observed->vmm_start_ns,
                                false, &held) != OBSERVED_SHIM_ENDED)
            return r < 0 ? r : 0;
    }
    /* The VMM may have exited after it was observed. */
    if (watch_processes_add(context->watchers->processes, sandbox_id, observed->vmm_pid) ==
        WATCH_PROCESS_GONE)
        return end_sandbox(context, sandbox_id);
    if (observed->bundles)
        trees_watch_bundles(context->trees, observed->bundles, sandbox_id);
    r = put_sandbox(context, sandbox_id, observed);
    return r < 0 ? r
                 : judge_shim(context, sandbox_id, observed->vmm_pid, observed->vmm_start_ns,
                              has_records);
}

/* For those of others, all processes would be read again, and a pod that starts meanwhile would
 * have to wait until they may be read once more. */
static int queue_unknown(void *userdata, const char *sandbox_id, pid_t pid, uint64_t start_ns)
{
    const struct context *context = userdata;
    uint64_t known_start_ns;
    pid_t known;
    int r = store_find_vmm(context->store, sandbox_id, &known, &known_start_ns);

    if (r < 0 || known == pid)
        return r;
    r = known ? 1 : has_volume(context, pid, start_ns);
    if (r > 0)
        work_queue_add_sandbox(context->queue, sandbox_id);
    return r < 0 ? r : 0;
}

int observer_queue_unrecorded(struct context *context)
{
    return observe_each_vmm(context->cache, queue_unknown, context);
}

int observer_observe_sandbox(const struct context *context, const char *sandbox_id)
{
    cleanup(observed_sandbox_done) struct observed_sandbox observed = {0};
    struct observe_sandbox_paths paths;
    struct node_lists lists;
    uint64_t start_ns;
    pid_t pid;
    int r;

    node_sandbox_paths(context, &lists, &paths);
    for (enum reconciler_tree tree = TREE_GO_SANDBOXES; tree < TREE_BUNDLES; tree++)
        (void)watch_directories_arm(context->watchers->directories, tree, sandbox_id);
    r = observe_sandbox(&paths, sandbox_id, &observed);
    if (r < 0) {
        log_warning(&(struct log_ids){.sandbox = sandbox_id}, "cannot observe the sandbox: %s",
                    strerror(-r));
        (void)work_queue_retry(context->queue, TREE_GO_SANDBOXES, sandbox_id);
        /* Another process that has got the recorded VMM's number may keep its memory locked for
         * ever. */
        r = store_find_vmm(context->store, sandbox_id, &pid, &start_ns);
        return r == 0 && pid && process_has_ended(pid, start_ns) == 1
                   ? end_sandbox(context, sandbox_id)
                   : r;
    }
    if (r == OBSERVED_UNFINISHED) {
        work_queue_add_sandbox(context->queue, sandbox_id);
        return 0;
    }
    if (observed.try_again && work_queue_retry(context->queue, TREE_GO_SANDBOXES, sandbox_id))
        return 0;
    if (!observed.try_again)
        work_queue_forget_retry(context->queue, TREE_GO_SANDBOXES, sandbox_id);
    distrusted_note(context->distrusted, sandbox_id, observed.problem);
    return record_observation(context, sandbox_id, &observed,
                              r == OBSERVED && !observed.unrecorded);
}

/* ---- distrusted sandboxes -------------------------------------------------------------------- */

/* In memory only: a doubt is found again whenever its sandbox is observed. Beyond DISTRUSTED_MOST
 * sandboxes nothing is remembered, and so nothing is logged.
 */

enum { DISTRUSTED_MOST = 256 };

struct doubt {
    UT_hash_handle hh;
    const char *text; /* after the id */
    char sandbox_id[];
};

struct distrusted {
    struct doubt *doubt;
};

int distrusted_new(struct distrusted **ret_distrusted)
{
    *ret_distrusted = calloc(1, sizeof(**ret_distrusted));
    return *ret_distrusted ? 0 : -ENOMEM;
}

struct distrusted *distrusted_free(struct distrusted *distrusted)
{
    struct doubt *doubt, *next;

    if (!distrusted)
        return NULL;
    HASH_ITER (hh, distrusted->doubt, doubt, next) {
        HASH_DEL(distrusted->doubt, doubt);
        free(doubt);
    }
    free(distrusted);
    return NULL;
}

void distrusted_note(struct distrusted *distrusted, const char *sandbox_id, const char *text)
{
    const size_t id_size = strlen(sandbox_id) + 1;
    struct doubt *doubt;

    HASH_FIND_STR(distrusted->doubt, sandbox_id, doubt);
    if (doubt && text && strcmp(doubt->text, text) == 0)
        return;
    if (doubt) {
        HASH_DEL(distrusted->doubt, doubt);
        free(doubt);
    }
    if (!text || HASH_COUNT(distrusted->doubt) == DISTRUSTED_MOST)
        return;
    doubt = calloc(1, sizeof(*doubt) + id_size + strlen(text) + 1);
    if (!doubt)
        return;
    memcpy(doubt->sandbox_id, sandbox_id, id_size);
    doubt->text = strcpy(doubt->sandbox_id + id_size, text);
    HASH_ADD_STR(distrusted->doubt, sandbox_id, doubt);
    if (doubt->hh.tbl)
        log_warning(&(struct log_ids){.sandbox = sandbox_id}, "not believed: %s", text);
    else
        free(doubt);
}

void distrusted_each(const struct distrusted *distrusted,
                     void (*callback)(void *userdata, const char *sandbox_id, const char *text),
                     void *userdata)
{
    for (const struct doubt *doubt = distrusted->doubt; doubt; doubt = doubt->hh.next)
        callback(userdata, doubt->sandbox_id, doubt->text);
}
