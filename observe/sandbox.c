/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.c - asks the reader of each supported runtime for a sandbox.
 *
 * The runtime of a sandbox is recognised by where it left traces. A node may have sandboxes of both
 * runtimes, because a runtime can be upgraded while pods run. Traces do not prove that a sandbox is
 * alive, so leftovers of one runtime do not prevent a check for the other. The id is validated
 * before it becomes part of any path.
 */
#include <errno.h>
#include <stdlib.h>

#include "lib/cleanup.h"
#include "observe/bundle_find.h"
#include "observe/cache.h"
#include "observe/claims.h"
#include "observe/kata_go.h"
#include "observe/kata_rs.h"
#include "observe/orphan.h"
#include "observe/records.h"

static int observe_go(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                      struct observed_sandbox *sandbox)
{
    struct bundles_place place;
    int r = kata_go_observe(paths, sandbox_id, sandbox);

    if (r != OBSERVED || !sandbox->alive)
        return r;
    r = bundle_find(paths, sandbox_id, 0, sandbox, &place);
    if (r == 0)
        r = place.own[0] ? claims_read(paths, sandbox_id, &place, false, sandbox)
                         : claims_from_records(sandbox);
    return r;
}

static int observe_either(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                          struct observed_sandbox *sandbox)
{
    cleanup(observed_sandbox_done) struct observed_sandbox other = {0};
    int r = observe_go(paths, sandbox_id, sandbox), s;

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

int observe_sandbox(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                    struct observed_sandbox *ret_sandbox)
{
    cleanup(observed_sandbox_done) struct observed_sandbox sandbox = {0};
    int r;

    if (!observe_is_sandbox_id(sandbox_id))
        return OBSERVED_ABSENT;
    r = observe_either(paths, sandbox_id, &sandbox);
    if (r == OBSERVED_ABSENT)
        r = observe_unrecorded(paths->cache, sandbox_id, &sandbox);
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

int observe_cache_new(struct observe_cache **ret_cache)
{
    struct observe_cache *cache = calloc(1, sizeof(*cache));
    int r;

    if (!cache)
        return -ENOMEM;
    r = process_index_new(&cache->processes);
    if (r == 0)
        r = absences_new(&cache->absences);
    if (r == 0)
        r = bundles_new(&cache->bundles);
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
    process_index_free(cache->processes);
    absences_free(cache->absences);
    bundles_free(cache->bundles);
    free(cache);
    return NULL;
}

int observe_cache_refresh(struct observe_cache *cache)
{
    return process_index_refresh(cache->processes);
}

int observe_cache_read_on(struct observe_cache *cache)
{
    return process_index_read_on(cache->processes);
}

void observe_cache_hold(struct observe_cache *cache, bool is_held)
{
    process_index_hold(cache->processes, is_held);
}

int observe_bundle_owner(const struct observe_sandbox_paths *paths, const char *parent,
                         const char *container_id,
                         char ret_sandbox_id[static OBSERVE_SANDBOX_ID_BYTES])
{
    _Static_assert((int)OBSERVE_SANDBOX_ID_BYTES == (int)BUNDLES_ID_BYTES, "one length");

    return bundles_owner(paths->cache->bundles, paths->root, parent, container_id, ret_sandbox_id);
}
