/* SPDX-License-Identifier: Apache-2.0 */
/* process_index.c - finds the VMM or shim of a sandbox in the table of processes.
 *
 * The tie of a VMM to its sandbox (is_tied()) cannot be verified once the shim has ended, so a tie
 * that was seen once holds for as long as the process lives. The only tie accepted for a rootless
 * VMM is to be its shim's child.
 */
#include "observe/process_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/process.h"
#include "lib/result.h"
#include "observe/observe.h"

enum { CGROUP_BYTES = 64 * 1024, CGROUP_ID_CHARS = 32, INIT = 1 };

struct process_index {
    struct process_table *table;
    bool is_held;
};

int process_index_new(struct process_index **ret_index)
{
    struct process_index *index = calloc(1, sizeof(*index));
    int r;

    if (!index)
        return -ENOMEM;
    r = process_table_new(&index->table);
    if (r == 0)
        *ret_index = index;
    else
        free(index);
    return r;
}

struct process_index *process_index_free(struct process_index *index)
{
    if (!index)
        return NULL;
    process_table_free(index->table);
    free(index);
    return NULL;
}

/* ---- what ties a VMM to its sandbox ------------------------------------------------------- */

struct shim {
    pid_t pid, parent; /* 0: none is known */
};

/* Whether its cgroup's name contains the sandbox's id, or is the shim's. */
static bool is_in_cgroup(const struct process_table_entry *entry, const struct shim *shim)
{
    cleanup(buffer_done) struct buffer own = BUFFER_INIT(CGROUP_BYTES);
    cleanup(buffer_done) struct buffer other = BUFFER_INIT(CGROUP_BYTES);
    const char *id = entry->named.id;

    if (process_read_file(entry->pid, "cgroup", &own) < 0)
        return false;
    if (memmem(buffer_text(&own), own.length, id, strnlen(id, CGROUP_ID_CHARS)))
        return true;
    return shim->pid && process_read_file(shim->pid, "cgroup", &other) == 0 &&
           own.length == other.length &&
           memcmp(buffer_text(&own), buffer_text(&other), own.length) == 0;
}

/* Whether its parent is the shim, or the process that adopts children of the shim: the first
 * process, or the shim's own parent. */
static bool is_tied(const struct process_table_entry *entry, pid_t parent, const struct shim *shim)
{
    if (shim->pid && parent == shim->pid)
        return true;
    if (entry->trust != PROCESS_ROOTS)
        return false;
    return parent == INIT || (shim->pid && parent == shim->parent) || is_in_cgroup(entry, shim);
}

/* ---- finding ----------------------------------------------------------------------------- */

/* A child that has not called execve(2) yet, or a worker, has the arguments of its parent. */
static bool is_child_of_another(const struct process_table_range *named, pid_t parent)
{
    for (size_t i = 0; i < named->count; i++)
        if (named->entry[i].pid == parent)
            return true;
    return false;
}

/* Finds the one process that is trusted. ret_parent may be NULL. */
static bool find_one(const struct process_table_range *named, const struct shim *shim,
                     struct process_search *search, pid_t *ret_parent)
{
    const struct process_table_entry *found = NULL;

    for (size_t i = 0; i < named->count; i++) {
        struct process_table_entry *entry = &named->entry[i];
        struct process now;

        if (process_read(entry->pid, &now) < 0 || !now.alive || now.start_ns != entry->start_ns ||
            is_child_of_another(named, now.parent))
            continue;
        entry->tied =
            entry->tied || entry->named.role == PROCESS_SHIM || is_tied(entry, now.parent, shim);
        if (!entry->tied) {
            (void)snprintf(search->doubt, sizeof(search->doubt),
                           "process %d names the sandbox, but neither its parent nor its cgroup "
                           "is the sandbox's",
                           (int)entry->pid);
        } else if (found) {
            (void)snprintf(search->doubt, sizeof(search->doubt),
                           "processes %d and %d both name the sandbox, so neither is trusted",
                           (int)found->pid, (int)entry->pid);
            search->is_contested = true;
            return false;
        } else {
            found = entry;
            if (ret_parent)
                *ret_parent = now.parent;
        }
    }
    if (!found)
        return false;
    search->process = (struct indexed_process){.pid = found->pid,
                                               .start_ns = found->start_ns,
                                               .hypervisor = found->named.hypervisor,
                                               .guest_cid = found->named.guest_cid};
    search->doubt[0] = '\0';
    return true;
}

static bool find_believed(struct process_table *table, enum process_role role,
                          const char *sandbox_id, struct process_search *search)
{
    const struct process_table_range named = process_table_find(table, role, sandbox_id);
    struct process_search of_shim = {0};
    struct process_table_range shims;
    struct shim shim = {0};

    if (role == PROCESS_VMM) {
        shims = process_table_find(table, PROCESS_SHIM, sandbox_id);
        if (find_one(&shims, &shim, &of_shim, &shim.parent))
            shim.pid = of_shim.process.pid;
    }
    return find_one(&named, &shim, search, NULL);
}

static bool is_id(const char *sandbox_id)
{
    return sandbox_id[0] && strlen(sandbox_id) < OBSERVE_SANDBOX_ID_BYTES;
}

int observe_cache_refresh(struct observe_cache *cache)
{
    struct process_table *table = cache->processes->table;

    return process_table_is_young(table) ? 0 : process_table_read_on(table);
}

int observe_cache_read_on(struct observe_cache *cache)
{
    struct process_table *table = cache->processes->table;

    return process_table_is_reading(table) && !cache->processes->is_held
               ? process_table_read_on(table)
               : 0;
}

void observe_cache_hold(struct observe_cache *cache, bool is_held)
{
    cache->processes->is_held = is_held;
}

int process_index_find(struct process_index *index, enum process_role role, const char *sandbox_id,
                       struct process_search *ret_search)
{
    struct process_table *table = index->table;
    const struct process_table_entry *refused;
    const struct process_table_gaps *gaps;
    int r;

    *ret_search = (struct process_search){0};
    if (!is_id(sandbox_id))
        return PROCESS_INDEX_NONE;
    if (find_believed(table, role, sandbox_id, ret_search))
        return PROCESS_INDEX_FOUND;
    ret_search->stale = index->is_held || process_table_is_young(table);
    if (!ret_search->stale) {
        r = process_table_read_on(table);
        if (r != 0)
            return r < 0 ? r : PROCESS_INDEX_UNFINISHED;
        ret_search->stale = process_table_gaps(table)->is_doubtful;
        ret_search->doubt[0] = '\0';
        ret_search->is_contested = false;
        if (find_believed(table, role, sandbox_id, ret_search))
            return PROCESS_INDEX_FOUND;
    }
    gaps = process_table_gaps(table);
    ret_search->sure_since_ns = gaps->sure_since_ns;
    ret_search->has_unread = gaps->has_unread;
    refused = process_table_find_refused(table, role, sandbox_id);
    if (refused && !ret_search->doubt[0])
        (void)snprintf(ret_search->doubt, sizeof(ret_search->doubt),
                       "process %d names the sandbox but is not trusted: %s", (int)refused->pid,
                       process_trust_text(refused->trust));
    return PROCESS_INDEX_NONE;
}

bool process_index_find_known(struct process_index *index, enum process_role role,
                              const char *sandbox_id, struct indexed_process *ret_process)
{
    struct process_search search = {0};
    bool found = is_id(sandbox_id) && find_believed(index->table, role, sandbox_id, &search);

    *ret_process = search.process;
    return found;
}

int observe_each_vmm(struct observe_cache *cache,
                     int (*callback)(void *userdata, const char *sandbox_id, pid_t pid,
                                     uint64_t start_ns),
                     void *userdata)
{
    struct process_table *table = cache->processes->table;
    struct process_table_range all;
    int r = 0;

    if (process_table_gaps(table)->sure_since_ns == 0)
        r = process_table_read_on(table);
    if (r > 0)
        return r;
    /* What is looked for later may have started since. */
    process_table_expire(table);
    r = 0; /* what cannot be read now may be known from before */
    all = process_table_all(table);
    for (size_t i = 0; r == 0 && i < all.count; i++)
        if (all.entry[i].named.role == PROCESS_VMM)
            r = callback(userdata, all.entry[i].named.id, all.entry[i].pid, all.entry[i].start_ns);
    return r;
}

/* ---- unknown sandboxes ----------------------------------------------------------------------- */

/* The kubelet pauses at most two minutes between its attempts. */
static const uint64_t FORGOTTEN_NS = 300 * NSEC_PER_SEC;

/* The question about this sandbox; a new one replaces the least recently asked. */
static struct question *remember(struct unknown_sandboxes *unknown_sandboxes,
                                 const char *sandbox_id)
{
    const uint64_t now = clock_boottime();
    struct question *question = NULL, *oldest = &unknown_sandboxes->question[0];

    for (unsigned i = 0; i < QUESTIONS && !question; i++) {
        if (strcmp(unknown_sandboxes->question[i].sandbox_id, sandbox_id) == 0)
            question = &unknown_sandboxes->question[i];
        else if (unknown_sandboxes->question[i].last_ns < oldest->last_ns)
            oldest = &unknown_sandboxes->question[i];
    }
    if (!question || now - question->last_ns > FORGOTTEN_NS) {
        question = question ? question : oldest;
        *question = (struct question){.first_ns = now};
        memcpy(question->sandbox_id, sandbox_id, strlen(sandbox_id) + 1);
    }
    question->last_ns = now;
    return question;
}

void unknown_sandboxes_ask(struct unknown_sandboxes *unknown_sandboxes, const char *sandbox_id)
{
    if (observe_is_sandbox_id(sandbox_id))
        (void)remember(unknown_sandboxes, sandbox_id);
}

int unknown_sandboxes_find(struct unknown_sandboxes *unknown_sandboxes,
                           struct process_index *processes, const char *sandbox_id)
{
    struct process_search shim;
    struct question *question;
    int r;

    if (!observe_is_sandbox_id(sandbox_id))
        return OBSERVED_ABSENT;
    question = remember(unknown_sandboxes, sandbox_id);
    r = process_index_find(processes, PROCESS_SHIM, sandbox_id, &shim);
    if (r < 0)
        return r;
    if (r != PROCESS_INDEX_NONE || shim.sure_since_ns < question->first_ns)
        return OBSERVED_UNFINISHED;
    *question = (struct question){0};
    return OBSERVED_ABSENT;
}
