/* SPDX-License-Identifier: Apache-2.0 */
/* observed_sandbox.c - asks the reader of each supported runtime for a sandbox.
 *
 * The runtime of a sandbox is recognised by where it left traces. A node may have sandboxes of both
 * runtimes, because a runtime can be upgraded while pods run. Traces do not prove that a sandbox is
 * alive, so leftovers of one runtime do not prevent a check for the other. The id is validated
 * before it becomes part of any path.
 */
#include "observe/observed_sandbox.h"
#include "observe/process_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/process.h"
#include "observe/bundles.h"
#include "observe/kata.h"
#include "observe/observe.h"

static int observe_either(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                          struct observed_sandbox *sandbox)
{
    cleanup(observed_sandbox_done) struct observed_sandbox other = {0};
    struct bundles_place place;
    int r = kata_go_observe(paths, sandbox_id, sandbox), s;

    if (r == OBSERVED && sandbox->alive) {
        r = bundle_find(paths, sandbox_id, 0, sandbox, &place);
        if (r != 0)
            return r;
        return place.own[0] ? claims_read(paths, sandbox_id, &place, false, sandbox)
                            : claims_from_records(sandbox);
    }
    if (r < 0 || r == OBSERVED_UNFINISHED || sandbox->alive)
        return r;
    s = kata_rs_observe(paths, sandbox_id, &other);
    if (s < 0)
        return s;
    if (s == OBSERVED_ABSENT)
        return r;
    other.try_again |= sandbox->try_again;
    observed_sandbox_done(sandbox);
    *sandbox = other;
    other = (struct observed_sandbox){0};
    return s;
}

/* QEMU or Cloud Hypervisor of a sandbox without records, if its process is known already: an absent
 * sandbox is an ordinary answer, which must not cost a reading of all processes. */
static int find_unrecorded(struct observe_cache *cache, const char *sandbox_id,
                           struct observed_sandbox *sandbox)
{
    struct indexed_process vmm;

    /* Firecracker's arguments have half of the sandbox's id. Others live in the shim. */
    if (!process_index_find_known(cache, PROCESS_VMM, sandbox_id, &vmm) ||
        (vmm.hypervisor != HYPERVISOR_QEMU && vmm.hypervisor != HYPERVISOR_CLOUD_HYPERVISOR))
        return OBSERVED_ABSENT;
    sandbox->alive = sandbox->unrecorded = true;
    sandbox->runtime = RUNTIME_UNKNOWN;
    sandbox->hypervisor = vmm.hypervisor;
    sandbox->vmm_pid = vmm.pid;
    sandbox->vmm_start_ns = vmm.start_ns;
    return OBSERVED;
}

int observe_sandbox(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                    struct observed_sandbox *ret_sandbox)
{
    cleanup(observed_sandbox_done) struct observed_sandbox sandbox = {0};
    int r;

    if (!observe_is_sandbox_id(sandbox_id))
        return OBSERVED_ABSENT;
    r = observe_either(paths, sandbox_id, &sandbox);
    if (r == OBSERVED_ABSENT)
        r = find_unrecorded(paths->cache, sandbox_id, &sandbox);
    if (r != OBSERVED)
        return r;
    *ret_sandbox = sandbox;
    sandbox = (struct observed_sandbox){0};
    return OBSERVED;
}

void observed_sandbox_done(struct observed_sandbox *sandbox)
{
    if (!sandbox)
        return;
    for (unsigned i = 0; i < sandbox->drives; i++) {
        free(sandbox->drive[i].mount_source);
        free(sandbox->drive[i].file);
        free(sandbox->drive[i].drive_id);
        free(sandbox->drive[i].guest_path);
    }
    for (unsigned i = 0; i < sandbox->claims; i++) {
        free(sandbox->claim[i].path);
        free(sandbox->claim[i].guest_path);
    }
    records_done(sandbox);
    free(sandbox->drive);
    free(sandbox->claim);
    free(sandbox->control_socket);
    free(sandbox->agent_address);
    free(sandbox->pod_namespace);
    free(sandbox->pod_name);
    free(sandbox->bundles);
    free(sandbox->problem);
    *sandbox = (struct observed_sandbox){0};
}

/* ---- what is remembered ------------------------------------------------------------------ */

int observe_cache_new(const char *grow_annotation, struct observe_cache **ret_cache)
{
    struct observe_cache *cache = calloc(1, sizeof(*cache));
    int r;

    if (!cache)
        return -ENOMEM;
    r = process_table_new(&cache->processes);
    if (r == 0)
        r = bundles_new(grow_annotation, &cache->bundles);
    if (r == 0)
        *ret_cache = cache;
    else
        observe_cache_free(cache);
    return r;
}

struct observe_cache *observe_cache_free(struct observe_cache *cache)
{
    if (!cache)
        return NULL;
    process_table_free(cache->processes);
    bundles_free(cache->bundles);
    free(cache);
    return NULL;
}

/* ---- orphan --------------------------------------------------------------------------------- */

/* A shim that is killed leaves its VMM running with the volumes' devices open. containerd never
 * starts a shim again; it runs `shim delete`, which may remove the sandbox's records, and with the
 * Go runtime may fail to. Nothing that can be missing proves an orphan by itself, so two facts have
 * to come together: the shim has certainly ended, and either no record is left or the VMM's parent
 * is the first process, so nothing else on the node looks after it.
 */

enum { INIT = 1, DESCRIPTORS = 4096, DEVICES = 256 };

int observe_shim(struct observe_cache *cache, const char *sandbox_id, pid_t vmm_pid,
                 uint64_t vmm_start_ns, bool has_records)
{
    struct process_search shim;
    struct process vmm;
    int r = has_records ? process_read(vmm_pid, &vmm) : 0;

    if (r < 0)
        return OBSERVED_SHIM_UNKNOWN;
    if (has_records && vmm.parent != INIT)
        return OBSERVED_SHIM_RUNS;
    r = process_index_find(cache, PROCESS_SHIM, sandbox_id, &shim);
    if (r == PROCESS_INDEX_FOUND)
        return OBSERVED_SHIM_RUNS;
    if (r == PROCESS_INDEX_UNFINISHED)
        return OBSERVED_SHIM_UNFINISHED;
    /* A shim starts before its VMM. So one that runs is in every whole reading that began after the
     * VMM's start. */
    return r == PROCESS_INDEX_NONE && !shim.is_contested && shim.sure_since_ns > vmm_start_ns
               ? OBSERVED_SHIM_ENDED
               : OBSERVED_SHIM_UNKNOWN;
}

/* ---- what a VMM has open ------------------------------------------------------------------- */

static int read_descriptors(pid_t pid, struct observed_sandbox *held)
{
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    char path[32];
    int r = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    names = opendir(path);
    if (!names)
        return -errno;
    for (unsigned seen = 0; r == 0 && (name = directory_next(names)); seen++) {
        struct statx status;

        if (seen == DESCRIPTORS)
            return -E2BIG;
        if (statx(dirfd(names), name, AT_STATX_DONT_SYNC, STATX_TYPE, &status) < 0) {
            r = errno == ENOENT ? 0 : -errno;
        } else if (S_ISBLK(status.stx_mode)) {
            if (held->drives == DEVICES)
                return -E2BIG;
            held->drive[held->drives++] = (struct observed_drive){
                .major = status.stx_rdev_major,
                .minor = status.stx_rdev_minor,
            };
        }
    }
    return r < 0 ? r : -errno;
}

int observe_held_drives(pid_t pid, uint64_t start_ns, struct observed_sandbox *ret_held)
{
    cleanup(observed_sandbox_done) struct observed_sandbox held = {0};
    int r;

    held.drive = calloc(DEVICES, sizeof(*held.drive));
    r = held.drive ? read_descriptors(pid, &held) : -ENOMEM;
    if (r == 0 && process_has_ended(pid, start_ns) != 0)
        r = -ESRCH;
    if (r < 0)
        return r;
    *ret_held = held;
    held = (struct observed_sandbox){0};
    return 0;
}
