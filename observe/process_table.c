/* SPDX-License-Identifier: Apache-2.0 */
/* process_table.c - reads all processes into a table, sorted by sandbox id, and finds a sandbox's
 * VMM or shim in it.
 *
 * By is_young() the table is read at most once per SETTLE_NS and for at most a twentieth of the
 * time, however many searches fail.
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

/* The part of a process's arguments that is read. Kata's VMMs have about 20 KiB; any user can start
 * thousands of processes with as many as the kernel allows. */
enum { ARGUMENTS_BYTES = 64 * 1024 };

/* What one call reads: all processes of an ordinary node, two steps for each. Each of them may take
 * almost as long as a process that hangs (process.h), so the time is bounded, too. */
enum { CALL_STEPS = 2 * 4096, CALL_BYTES = 4 * 1024 * 1024 };
static const uint64_t CALL_NS = 15 * NSEC_PER_MSEC;
enum { ENTRIES = 65536, REFUSED = 32 };

static const uint64_t SETTLE_NS = 100 * NSEC_PER_MSEC, REST_NS = 5 * NSEC_PER_SEC;
static const uint64_t ABANDONED_NS =
    10 * NSEC_PER_SEC; /* then a reading that was not continued is dropped */

struct entry {
    struct sandbox_arguments named;
    enum process_trust trust; /* PROCESS_ROOTS; for a VMM also PROCESS_USERS */
    pid_t pid;
    uint64_t start_ns; /* CLOCK_BOOTTIME */
    bool tied;         /* to its sandbox, by this reading or one before it */
};

/* The entries of one sandbox and role. */
struct range {
    struct entry *entry;
    size_t count;
};

struct reading {
    size_t count, room;
    struct entry *entry;
    unsigned refusals;
    struct entry refused[REFUSED];
    bool has_missed; /* a process of root that started before the reading may be missing */
    uint64_t began_ns;
    /* What it may lack when it is complete: */
    uint64_t sure_since_ns; /* every process of root started by then is in it; 0: unknown */
    bool has_unread;        /* a process hung */
    bool is_doubtful; /* a process of root may be missing, or one that started during the reading */
};

/* The arguments of a process; and of the current call its deadline, the bytes it has read, and
 * whether it met a process that hung. */
struct reader {
    struct buffer arguments;
    uint64_t until_ns;
    size_t bytes;
    bool hung, is_first; /* is_first: this process is the first of the call */
};

struct process_table {
    struct reading known;
    uint64_t read_ns; /* when it was completed; 0: never */
    uint64_t cost_ns; /* how long the reading took */
    /* The reading in progress: */
    struct process_list *processes;
    pid_t listed; /* a process that is listed but not added yet; 0: none */
    struct reading next;
    uint64_t next_cost_ns, next_ns; /* next_ns: when the last part was read */
    struct reader reader;
};

int process_table_new(struct process_table **ret_table)
{
    struct process_table *table = calloc(1, sizeof(*table));

    if (!table)
        return -ENOMEM;
    buffer_init(&table->reader.arguments, ARGUMENTS_BYTES);
    *ret_table = table;
    return 0;
}

/* Drops the reading in progress. */
static void stop_reading(struct process_table *table)
{
    table->processes = process_list_free(table->processes);
    table->listed = 0;
    free(table->next.entry);
    table->next = (struct reading){0};
    table->next_cost_ns = 0;
}

struct process_table *process_table_free(struct process_table *table)
{
    if (!table)
        return NULL;
    stop_reading(table);
    free(table->known.entry);
    buffer_done(&table->reader.arguments);
    free(table);
    return NULL;
}

/* ---- entries ----------------------------------------------------------------------------- */

static int compare_names(const struct entry *entry, enum process_role role, const char *sandbox_id)
{
    int order = strcmp(entry->named.id, sandbox_id);

    return order ? order : (int)entry->named.role - (int)role;
}

static int compare(const void *a, const void *b)
{
    const struct entry *other = b;

    return compare_names(a, other->named.role, other->named.id);
}

static struct range find_range(const struct reading *reading, enum process_role role,
                               const char *sandbox_id)
{
    struct range range = {0};
    size_t low = 0, high = reading->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (compare_names(&reading->entry[middle], role, sandbox_id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    while (low + range.count < reading->count &&
           compare_names(&reading->entry[low + range.count], role, sandbox_id) == 0)
        range.count++;
    if (range.count)
        range.entry = &reading->entry[low];
    return range;
}

/* Whether the previous reading found it tied. */
static bool was_tied(const struct reading *before, const struct entry *entry)
{
    const struct range same = find_range(before, entry->named.role, entry->named.id);

    for (size_t i = 0; i < same.count; i++)
        if (same.entry[i].pid == entry->pid && same.entry[i].start_ns == entry->start_ns)
            return same.entry[i].tied;
    return false;
}

static int add_entry(struct reading *reading, const struct entry *entry)
{
    if (reading->count == reading->room) {
        size_t more = reading->room ? 2 * reading->room : 64;
        struct entry *room = reallocarray(reading->entry, more, sizeof(*room));

        if (!room)
            return -ENOMEM;
        reading->entry = room;
        reading->room = more;
    }
    reading->entry[reading->count++] = *entry;
    return 0;
}

/* ---- reading ----------------------------------------------------------------------------- */

/* processes: the list that pid came from; NULL: none. */
static int read_first_arguments(struct reader *reader, const struct process_list *processes,
                                pid_t pid)
{
    int r;

    buffer_clear(&reader->arguments);
    r = processes ? process_list_read_arguments(processes, ARGUMENTS_BYTES, &reader->arguments)
                  : process_read_first_arguments(pid, ARGUMENTS_BYTES, &reader->arguments);
    reader->bytes += reader->arguments.length;
    reader->hung |= r == PROCESS_HANGS;
    return r;
}

/* As process_still_has_arguments(). */
static int still_has_arguments(struct reader *reader, pid_t pid)
{
    int r = process_still_has_arguments(pid, &reader->arguments);

    reader->hung |= r == PROCESS_HANGS;
    return r;
}

static bool is_late(const struct reader *reader)
{
    return clock_boottime() >= reader->until_ns;
}

/* Whether pid is the shim of sandbox `id`. Processes of other users are only kept if their parent
 * is. */
static bool is_shim_of(struct reader *reader, pid_t pid, const char *id)
{
    struct sandbox_arguments shim;

    return read_first_arguments(reader, NULL, pid) == 0 &&
           sandbox_arguments_read(&reader->arguments, &shim) && shim.role == PROCESS_SHIM &&
           strcmp(shim.id, id) == 0 && process_judge_unjailed(pid, NULL) == PROCESS_ROOTS &&
           still_has_arguments(reader, pid) == 1;
}

/* A process that hangs keeps its entries of the previous reading. */
static int keep_unread(struct reading *next, const struct reading *before, pid_t pid)
{
    int r = 0;

    next->has_unread = true;
    next->has_missed |= process_judge(pid, NULL) == PROCESS_ROOTS;
    for (size_t i = 0; r == 0 && i < before->count; i++)
        if (before->entry[i].pid == pid)
            r = add_entry(next, &before->entry[i]);
    return r;
}

/* A process that has a sandbox's id and could not be examined. */
static int skip_process(struct reading *next, int failure)
{
    next->has_missed |=
        failure != PROCESS_GONE && failure != PROCESS_DENIED && failure != BUFFER_FULL;
    return 0;
}

/* Skips processes that end meanwhile or execute another program, which was not judged. */
static int add_process(struct process_table *table, pid_t pid)
{
    const struct reading *before = &table->known;
    struct reading *next = &table->next;
    struct reader *reader = &table->reader;
    struct entry entry = {.pid = pid};
    struct process process;
    bool may_be_rootless;
    int trust, r = read_first_arguments(reader, table->processes, pid);

    if (r == PROCESS_HANGS)
        return keep_unread(next, before, pid);
    /* A failure to read does not mean that the process has ended. */
    if (r < 0 && r != PROCESS_GONE && r != PROCESS_DENIED)
        return r;
    if (r < 0 || !sandbox_arguments_read(&reader->arguments, &entry.named))
        return 0;
    r = process_read(pid, &process);
    if (r < 0)
        return skip_process(next, r);
    if (!process.alive)
        return 0;
    entry.start_ns = process.start_ns;
    trust = entry.named.role == PROCESS_SHIM ? process_judge_unjailed(pid, NULL)
                                             : process_judge(pid, NULL);
    if (trust < 0)
        return skip_process(next, trust);
    entry.trust = (enum process_trust)trust;
    entry.tied = was_tied(before, &entry);
    r = still_has_arguments(reader, pid);
    if (r == PROCESS_HANGS)
        return keep_unread(next, before, pid);
    if (r != 1) {
        next->has_missed |= entry.trust == PROCESS_ROOTS;
        return 0;
    }
    may_be_rootless = entry.named.role == PROCESS_VMM && entry.trust == PROCESS_USERS;
    /* The call's time is up: the process is added in the next call. If this call has read nothing
     * else, the process counts as one that hangs, so that the reading makes progress. */
    if (!entry.tied && may_be_rootless && is_late(reader)) {
        if (reader->is_first)
            return keep_unread(next, before, pid);
        table->listed = pid;
        return 0;
    }
    if (entry.tied || entry.trust == PROCESS_ROOTS ||
        (may_be_rootless && is_shim_of(reader, process.parent, entry.named.id)))
        return add_entry(next, &entry);
    if (reader->hung) /* its parent hung, and may be its shim */
        return keep_unread(next, before, pid);
    if (next->refusals < REFUSED)
        next->refused[next->refusals++] = entry;
    return 0;
}

/* Lists one more process, or adds the one that was listed; each may wait. *ret_is_last: none is
 * left. */
static int read_next(struct process_table *table, bool *ret_is_last)
{
    const pid_t pid = table->listed;
    int r;

    *ret_is_last = false;
    if (pid) {
        table->listed = 0;
        return add_process(table, pid);
    }
    r = process_list_next(table->processes, &table->listed);
    *ret_is_last = r == 0 && !table->listed;
    return r;
}

/* 0: all processes were read; PROGRESS_MORE; -errno. */
static int read_processes(struct process_table *table)
{
    struct reader *reader = &table->reader;
    bool is_last = false;
    unsigned steps = 0;
    int r;

    reader->until_ns = clock_boottime() + CALL_NS;
    reader->bytes = 0;
    reader->hung = false;
    do {
        reader->is_first = steps == 0;
        r = read_next(table, &is_last);
        is_last |= table->next.count >= ENTRIES;
    } while (r == 0 && !is_last && !reader->hung && !is_late(reader) &&
             reader->bytes < CALL_BYTES && ++steps < CALL_STEPS);
    return r == 0 && !is_last ? PROGRESS_MORE : r;
}

static void finish_reading(struct process_table *table, bool is_whole)
{
    struct reading *next = &table->next;

    for (size_t i = 0; i < next->count; i++)
        next->entry[i].tied |= was_tied(&table->known, &next->entry[i]);
    if (next->count)
        qsort(next->entry, next->count, sizeof(*next->entry), compare);
    next->sure_since_ns = next->has_missed ? 0 : next->began_ns;
    next->is_doubtful = next->has_missed || !is_whole;
    free(table->known.entry);
    table->known = *next;
    *next = (struct reading){0};
    table->cost_ns = table->next_cost_ns;
    table->read_ns = clock_boottime();
    stop_reading(table);
}

/* Reads the next part, of a new reading if none is in progress. An enum progress_outcome (DONE: the
 * table has been replaced) or -errno. */
static int read_on(struct process_table *table)
{
    const uint64_t began_ns = clock_boottime();
    bool is_first;
    int r = 0;

    if (began_ns - table->next_ns > ABANDONED_NS)
        stop_reading(table);
    is_first = !table->processes;
    if (is_first) {
        table->next.began_ns = began_ns;
        r = process_list_new(&table->processes);
    }
    if (r == 0)
        r = read_processes(table);
    table->next_ns = clock_boottime();
    table->next_cost_ns += table->next_ns - began_ns;
    if (r < 0)
        stop_reading(table);
    if (r != 0)
        return r;
    finish_reading(table, is_first);
    return 0;
}

/* Whether the last reading is so recent, or took so long, that it is too early for the next. */
static bool is_young(const struct process_table *table)
{
    uint64_t age = clock_boottime() - table->read_ns;
    uint64_t rest = 20 * table->cost_ns < REST_NS ? 20 * table->cost_ns : REST_NS;

    return table->read_ns && (age < SETTLE_NS || age < rest);
}

/* A process that names the sandbox and is not trusted; NULL: none is known. */
static const struct entry *find_refused(const struct process_table *table, enum process_role role,
                                        const char *sandbox_id)
{
    for (unsigned i = 0; i < table->known.refusals; i++)
        if (compare_names(&table->known.refused[i], role, sandbox_id) == 0)
            return &table->known.refused[i];
    return NULL;
}

enum { CGROUP_BYTES = 64 * 1024, CGROUP_ID_CHARS = 32, INIT = 1 };

/* ---- what ties a VMM to its sandbox ------------------------------------------------------- */

struct shim {
    pid_t pid, parent; /* 0: none is known */
};

/* Whether its cgroup's name contains the sandbox's id, or is the shim's. */
static bool is_in_cgroup(const struct entry *entry, const struct shim *shim)
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
static bool is_tied(const struct entry *entry, pid_t parent, const struct shim *shim)
{
    if (shim->pid && parent == shim->pid)
        return true;
    if (entry->trust != PROCESS_ROOTS)
        return false;
    return parent == INIT || (shim->pid && parent == shim->parent) || is_in_cgroup(entry, shim);
}

/* ---- finding ----------------------------------------------------------------------------- */

/* A child that has not called execve(2) yet, or a worker, has the arguments of its parent. */
static bool is_child_of_another(const struct range *named, pid_t parent)
{
    for (size_t i = 0; i < named->count; i++)
        if (named->entry[i].pid == parent)
            return true;
    return false;
}

/* Finds the one process that is trusted. ret_parent may be NULL. */
static bool find_one(const struct range *named, const struct shim *shim,
                     struct process_search *search, pid_t *ret_parent)
{
    const struct entry *found = NULL;

    for (size_t i = 0; i < named->count; i++) {
        struct entry *entry = &named->entry[i];
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

static bool find_believed(const struct process_table *table, enum process_role role,
                          const char *sandbox_id, struct process_search *search)
{
    const struct range named = find_range(&table->known, role, sandbox_id);
    struct process_search of_shim = {0};
    struct range shims;
    struct shim shim = {0};

    if (role == PROCESS_VMM) {
        shims = find_range(&table->known, PROCESS_SHIM, sandbox_id);
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
    struct process_table *table = cache->processes;

    return is_young(table) ? 0 : read_on(table);
}

int observe_cache_read_on(struct observe_cache *cache)
{
    struct process_table *table = cache->processes;

    return table->processes && !cache->is_held ? read_on(table) : 0;
}

void observe_cache_hold(struct observe_cache *cache, bool is_held)
{
    cache->is_held = is_held;
}

int process_index_find(struct observe_cache *cache, enum process_role role, const char *sandbox_id,
                       struct process_search *ret_search)
{
    struct process_table *table = cache->processes;
    const struct entry *refused;
    int r;

    *ret_search = (struct process_search){0};
    if (!is_id(sandbox_id))
        return PROCESS_INDEX_NONE;
    if (find_believed(table, role, sandbox_id, ret_search))
        return PROCESS_INDEX_FOUND;
    ret_search->stale = cache->is_held || is_young(table);
    if (!ret_search->stale) {
        r = read_on(table);
        if (r != 0)
            return r < 0 ? r : PROCESS_INDEX_UNFINISHED;
        ret_search->stale = table->known.is_doubtful;
        ret_search->doubt[0] = '\0';
        ret_search->is_contested = false;
        if (find_believed(table, role, sandbox_id, ret_search))
            return PROCESS_INDEX_FOUND;
    }
    ret_search->sure_since_ns = table->known.sure_since_ns;
    ret_search->has_unread = table->known.has_unread;
    refused = find_refused(table, role, sandbox_id);
    if (refused && !ret_search->doubt[0])
        (void)snprintf(ret_search->doubt, sizeof(ret_search->doubt),
                       "process %d names the sandbox but is not trusted: %s", (int)refused->pid,
                       process_trust_text(refused->trust));
    return PROCESS_INDEX_NONE;
}

bool process_index_find_known(struct observe_cache *cache, enum process_role role,
                              const char *sandbox_id, struct indexed_process *ret_process)
{
    struct process_search search = {0};
    bool found = is_id(sandbox_id) && find_believed(cache->processes, role, sandbox_id, &search);

    *ret_process = search.process;
    return found;
}

int observe_each_vmm(struct observe_cache *cache,
                     int (*callback)(void *userdata, const char *sandbox_id, pid_t pid,
                                     uint64_t start_ns),
                     void *userdata)
{
    struct process_table *table = cache->processes;
    int r = table->known.sure_since_ns == 0 ? read_on(table) : 0;

    if (r > 0)
        return r;
    table->read_ns = 0; /* what is looked for later may have started since */
    r = 0;              /* what cannot be read now may be known from before */
    for (size_t i = 0; r == 0 && i < table->known.count; i++) {
        const struct entry *entry = &table->known.entry[i];

        if (entry->named.role == PROCESS_VMM)
            r = callback(userdata, entry->named.id, entry->pid, entry->start_ns);
    }
    return r;
}

/* ---- unknown sandboxes ----------------------------------------------------------------------- */

/* The kubelet pauses at most two minutes between its attempts. */
static const uint64_t FORGOTTEN_NS = 300 * NSEC_PER_SEC;

/* The question about this sandbox; a new one replaces the least recently asked. */
static struct question *remember(struct observe_cache *cache, const char *sandbox_id)
{
    const uint64_t now = clock_boottime();
    struct question *question = NULL, *oldest = &cache->question[0];

    for (unsigned i = 0; i < OBSERVE_QUESTIONS && !question; i++) {
        if (strcmp(cache->question[i].sandbox_id, sandbox_id) == 0)
            question = &cache->question[i];
        else if (cache->question[i].last_ns < oldest->last_ns)
            oldest = &cache->question[i];
    }
    if (!question || now - question->last_ns > FORGOTTEN_NS) {
        question = question ? question : oldest;
        *question = (struct question){.first_ns = now};
        memcpy(question->sandbox_id, sandbox_id, strlen(sandbox_id) + 1);
    }
    question->last_ns = now;
    return question;
}

void unknown_sandboxes_ask(struct observe_cache *cache, const char *sandbox_id)
{
    if (observe_is_sandbox_id(sandbox_id))
        (void)remember(cache, sandbox_id);
}

int unknown_sandboxes_find(struct observe_cache *cache, const char *sandbox_id)
{
    struct process_search shim;
    struct question *question;
    int r;

    if (!observe_is_sandbox_id(sandbox_id))
        return OBSERVED_ABSENT;
    question = remember(cache, sandbox_id);
    r = process_index_find(cache, PROCESS_SHIM, sandbox_id, &shim);
    if (r < 0)
        return r;
    if (r != PROCESS_INDEX_NONE || shim.sure_since_ns < question->first_ns)
        return OBSERVED_UNFINISHED;
    *question = (struct question){0};
    return OBSERVED_ABSENT;
}
