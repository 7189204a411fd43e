/* SPDX-License-Identifier: Apache-2.0 */
/* process_index.c - an index of VMMs and shims by the sandbox id in their arguments.
 *
 * The arguments do not prove which program a process runs, so the index may contain other processes
 * of root; their ids are never looked up. The index is an array sorted by id. It is always read as
 * a whole, at most once per SETTLE_NS and for at most a twentieth of the time, however many
 * searches fail. Any user can make a reading take long, so each call reads a part, and the last
 * complete index serves meanwhile. A few of the processes that are not trusted are kept for
 * messages.
 *
 * The tie of a VMM to its sandbox (is_tied()) cannot be verified once the shim has ended, so a tie
 * that was seen once holds for as long as the process lives. The only tie accepted for a rootless
 * VMM is to be its shim's child.
 */
#include "observe/process_index.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/process.h"
#include "lib/process_list.h"
#include "lib/process_trust.h"
#include "lib/result.h"
#include "observe/sandbox_arguments.h"

/* The part of a process's arguments that is read. Kata's VMMs have about 20 KiB; any user can start
 * thousands of processes with as many as the kernel allows. */
enum { ARGUMENTS_BYTES = 64 * 1024, CGROUP_BYTES = 64 * 1024 };

/* What one call reads: all processes of an ordinary node, two steps for each. Each of them may take
 * almost as long as a process that hangs (process_reader.h), so the time is bounded, too. */
enum { CALL_STEPS = 2 * 4096, CALL_BYTES = 4 * 1024 * 1024 };
static const uint64_t CALL_NS = 15 * NSEC_PER_MSEC;
enum { PROCESSES = 65536, REFUSED = 32, CGROUP_ID_CHARS = 32, INIT = 1 };

static const uint64_t SETTLE_NS = 100 * NSEC_PER_MSEC, REST_NS = 5 * NSEC_PER_SEC;
static const uint64_t ABANDONED_NS =
    10 * NSEC_PER_SEC; /* then a reading that was not continued is dropped */

struct entry {
    char id[SANDBOX_ARGUMENTS_ID_BYTES];
    enum process_role role;
    enum process_trust trust; /* PROCESS_ROOTS; for a VMM also PROCESS_USERS */
    bool tied;                /* to its sandbox */
    struct indexed_process process;
};

struct refused {
    char id[SANDBOX_ARGUMENTS_ID_BYTES];
    enum process_role role;
    enum process_trust trust;
    pid_t pid;
};

struct process_table {
    size_t count, room;
    struct entry *entry;
    unsigned refusals;
    struct refused refused[REFUSED];
    bool has_unread;   /* a process hung */
    bool has_missed;   /* a process of root that started before the reading may be missing */
    bool is_doubtful;  /* that, or one that started during the reading */
    uint64_t began_ns; /* the reading */
};

/* The arguments of a process; and of the current call its deadline, the bytes it has read, and
 * whether it met a process that hung. */
struct reader {
    struct buffer arguments;
    uint64_t until_ns;
    size_t bytes;
    bool hung, is_first; /* is_first: this process is the first of the call */
};

struct process_index {
    struct process_table known;
    uint64_t read_ns; /* when it was completed; 0: never */
    uint64_t cost_ns; /* how long the reading took */
    /* The reading in progress: */
    struct process_list *processes;
    pid_t listed; /* a process that is listed but not added yet; 0: none */
    struct process_table next;
    uint64_t next_cost_ns, next_ns; /* next_ns: when the last part was read */
    struct reader reader;
    bool is_held;
};

int process_index_new(struct process_index **ret_index)
{
    struct process_index *index = calloc(1, sizeof(*index));

    if (!index)
        return -ENOMEM;
    buffer_init(&index->reader.arguments, ARGUMENTS_BYTES);
    *ret_index = index;
    return 0;
}

/* Drops the reading in progress. */
static void stop_reading(struct process_index *index)
{
    index->processes = process_list_free(index->processes);
    index->listed = 0;
    free(index->next.entry);
    index->next = (struct process_table){0};
    index->next_cost_ns = 0;
}

struct process_index *process_index_free(struct process_index *index)
{
    if (!index)
        return NULL;
    stop_reading(index);
    free(index->known.entry);
    buffer_done(&index->reader.arguments);
    free(index);
    return NULL;
}

/* ---- entries ----------------------------------------------------------------------------- */

static bool set_key(struct entry *entry, enum process_role role, const char *id)
{
    const size_t length = strlen(id);

    if (!length || length >= sizeof(entry->id))
        return false;
    memcpy(entry->id, id, length + 1);
    entry->role = role;
    return true;
}

static bool read_arguments(struct entry *entry, const struct buffer *arguments)
{
    struct sandbox_arguments named;

    if (!sandbox_arguments_read(arguments, &named))
        return false;
    memcpy(entry->id, named.id, sizeof(entry->id));
    entry->role = named.role;
    entry->process.hypervisor = named.hypervisor;
    entry->process.guest_cid = named.guest_cid;
    return true;
}

/* ---- the table ------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    int order = strcmp(left->id, right->id);

    return order ? order : (int)left->role - (int)right->role;
}

static size_t first_of(const struct process_table *table, const struct entry *key)
{
    size_t low = 0, high = table->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (compare(&table->entry[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_same(const struct entry *a, const struct entry *b)
{
    return compare(a, b) == 0 && a->process.pid == b->process.pid &&
           a->process.start_ns == b->process.start_ns;
}

/* Whether the previous reading found it tied. */
static bool was_tied(const struct process_table *before, const struct entry *entry)
{
    for (size_t i = first_of(before, entry);
         i < before->count && compare(&before->entry[i], entry) == 0; i++)
        if (is_same(&before->entry[i], entry))
            return before->entry[i].tied;
    return false;
}

static void note_refused(struct process_table *table, const struct entry *entry)
{
    struct refused *refused = &table->refused[table->refusals];

    if (table->refusals == REFUSED)
        return;
    table->refusals++;
    *refused =
        (struct refused){.role = entry->role, .trust = entry->trust, .pid = entry->process.pid};
    memcpy(refused->id, entry->id, sizeof(refused->id));
}

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
    struct entry shim = {0};

    return read_first_arguments(reader, NULL, pid) == 0 &&
           read_arguments(&shim, &reader->arguments) && shim.role == PROCESS_SHIM &&
           strcmp(shim.id, id) == 0 && process_judge_unjailed(pid, NULL) == PROCESS_ROOTS &&
           still_has_arguments(reader, pid) == 1;
}

static bool may_be_rootless_vmm(const struct entry *entry)
{
    return entry->role == PROCESS_VMM && entry->trust == PROCESS_USERS;
}

static bool may_be_kept(struct reader *reader, const struct entry *entry, pid_t parent)
{
    return entry->trust == PROCESS_ROOTS ||
           (may_be_rootless_vmm(entry) && is_shim_of(reader, parent, entry->id));
}

static int add_entry(struct process_table *table, const struct entry *entry)
{
    if (table->count == table->room) {
        size_t more = table->room ? 2 * table->room : 64;
        struct entry *room = reallocarray(table->entry, more, sizeof(*room));

        if (!room)
            return -ENOMEM;
        table->entry = room;
        table->room = more;
    }
    table->entry[table->count++] = *entry;
    return 0;
}

/* A process that hangs keeps its entries of the previous index. */
static int keep_unread(struct process_table *table, const struct process_table *before, pid_t pid)
{
    int r = 0;

    table->has_unread = true;
    table->has_missed |= process_judge(pid, NULL) == PROCESS_ROOTS;
    for (size_t i = 0; r == 0 && i < before->count; i++)
        if (before->entry[i].process.pid == pid)
            r = add_entry(table, &before->entry[i]);
    return r;
}

/* The call's time is up: the process is added in the next call. If this call has read nothing else,
 * the process counts as one that hangs, so that the reading makes progress. */
static int put_off(struct process_index *index, pid_t pid)
{
    if (index->reader.is_first)
        return keep_unread(&index->next, &index->known, pid);
    index->listed = pid;
    return 0;
}

/* A process that has a sandbox's id and could not be examined. */
static int skip(struct process_table *table, int failure)
{
    table->has_missed |=
        failure != PROCESS_GONE && failure != PROCESS_DENIED && failure != BUFFER_FULL;
    return 0;
}

/* Skips processes that end meanwhile or execute another program, which was not judged. */
static int add_process(struct process_index *index, pid_t pid)
{
    const struct process_table *before = &index->known;
    struct process_table *table = &index->next;
    struct reader *reader = &index->reader;
    struct entry entry = {.process = {.pid = pid}};
    struct process process;
    int trust, r = read_first_arguments(reader, index->processes, pid);

    if (r == PROCESS_HANGS)
        return keep_unread(table, before, pid);
    /* A failure to read does not mean that the process has ended. */
    if (r < 0 && r != PROCESS_GONE && r != PROCESS_DENIED)
        return r;
    if (r < 0 || !read_arguments(&entry, &reader->arguments))
        return 0;
    r = process_read(pid, &process);
    if (r < 0)
        return skip(table, r);
    if (!process.alive)
        return 0;
    entry.process.start_ns = process.start_ns;
    trust =
        entry.role == PROCESS_SHIM ? process_judge_unjailed(pid, NULL) : process_judge(pid, NULL);
    if (trust < 0)
        return skip(table, trust);
    entry.trust = (enum process_trust)trust;
    entry.tied = was_tied(before, &entry);
    r = still_has_arguments(reader, pid);
    if (r == PROCESS_HANGS)
        return keep_unread(table, before, pid);
    if (r != 1) {
        table->has_missed |= entry.trust == PROCESS_ROOTS;
        return 0;
    }
    if (!entry.tied && may_be_rootless_vmm(&entry) && is_late(reader))
        return put_off(index, pid);
    if (entry.tied || may_be_kept(reader, &entry, process.parent))
        return add_entry(table, &entry);
    if (reader->hung) /* its parent hung, and may be its shim */
        return keep_unread(table, before, pid);
    note_refused(table, &entry);
    return 0;
}

/* Lists one more process, or adds the one that was listed; each may wait. *ret_is_last: none is
 * left. */
static int read_next(struct process_index *index, bool *ret_is_last)
{
    const pid_t pid = index->listed;
    int r;

    *ret_is_last = false;
    if (pid) {
        index->listed = 0;
        return add_process(index, pid);
    }
    r = process_list_next(index->processes, &index->listed);
    *ret_is_last = r == 0 && !index->listed;
    return r;
}

static bool has_room(const struct process_index *index)
{
    return index->next.count < PROCESSES;
}

/* 0: all processes were read; PROGRESS_MORE; -errno. */
static int read_processes(struct process_index *index)
{
    struct reader *reader = &index->reader;
    bool is_last = false;
    unsigned steps = 0;
    int r;

    reader->until_ns = clock_boottime() + CALL_NS;
    reader->bytes = 0;
    reader->hung = false;
    do {
        reader->is_first = steps == 0;
        r = read_next(index, &is_last);
    } while (r == 0 && !is_last && has_room(index) && !reader->hung && !is_late(reader) &&
             reader->bytes < CALL_BYTES && ++steps < CALL_STEPS);
    return r == 0 && !is_last && has_room(index) ? PROGRESS_MORE : r;
}

static void finish_reading(struct process_index *index, bool is_whole)
{
    struct process_table *next = &index->next;

    for (size_t i = 0; i < next->count; i++)
        next->entry[i].tied |= was_tied(&index->known, &next->entry[i]);
    if (next->count)
        qsort(next->entry, next->count, sizeof(*next->entry), compare);
    next->is_doubtful = next->has_missed || !is_whole;
    free(index->known.entry);
    index->known = *next;
    *next = (struct process_table){0};
    index->cost_ns = index->next_cost_ns;
    index->read_ns = clock_boottime();
    stop_reading(index);
}

/* Reads the next part. 0: `known` was replaced; PROGRESS_MORE; -errno. */
static int read_on(struct process_index *index)
{
    const uint64_t began_ns = clock_boottime();
    bool is_first;
    int r = 0;

    if (began_ns - index->next_ns > ABANDONED_NS)
        stop_reading(index);
    is_first = !index->processes;
    if (is_first) {
        index->next.began_ns = began_ns;
        r = process_list_new(&index->processes);
    }
    if (r == 0)
        r = read_processes(index);
    index->next_ns = clock_boottime();
    index->next_cost_ns += index->next_ns - began_ns;
    if (r < 0)
        stop_reading(index);
    if (r != 0)
        return r;
    finish_reading(index, is_first);
    return 0;
}

/* ---- what ties a VMM to its sandbox ------------------------------------------------------- */

struct shim {
    pid_t pid, parent; /* 0: none is known */
};

static bool names_sandbox(const struct buffer *cgroup, const char *id)
{
    return memmem(buffer_text(cgroup), cgroup->length, id, strnlen(id, CGROUP_ID_CHARS)) != NULL;
}

/* Whether its cgroup's name contains the sandbox's id, or is the shim's. */
static bool is_in_cgroup(const struct entry *entry, const struct shim *shim)
{
    cleanup(buffer_done) struct buffer own = BUFFER_INIT(CGROUP_BYTES);
    cleanup(buffer_done) struct buffer other = BUFFER_INIT(CGROUP_BYTES);

    if (process_read_file(entry->process.pid, "cgroup", &own) < 0)
        return false;
    if (names_sandbox(&own, entry->id))
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

static bool is_living(const struct entry *entry, struct process *ret_now)
{
    return process_read(entry->process.pid, ret_now) == 0 && ret_now->alive &&
           ret_now->start_ns == entry->process.start_ns;
}

/* A child that has not called execve(2) yet, or a worker, has the arguments of its parent. */
static bool is_child_of_another(const struct process_table *table, const struct entry *entry,
                                pid_t parent)
{
    for (size_t i = first_of(table, entry);
         i < table->count && compare(&table->entry[i], entry) == 0; i++)
        if (table->entry[i].process.pid == parent)
            return true;
    return false;
}

/* Finds the one process that is trusted. ret_parent may be NULL. */
static bool find_one(struct process_table *table, const struct entry *key, const struct shim *shim,
                     struct process_search *search, pid_t *ret_parent)
{
    const struct entry *found = NULL;

    for (size_t i = first_of(table, key); i < table->count && compare(&table->entry[i], key) == 0;
         i++) {
        struct entry *entry = &table->entry[i];
        struct process now;

        if (!is_living(entry, &now) || is_child_of_another(table, entry, now.parent))
            continue;
        entry->tied =
            entry->tied || entry->role == PROCESS_SHIM || is_tied(entry, now.parent, shim);
        if (!entry->tied) {
            (void)snprintf(search->doubt, sizeof(search->doubt),
                           "process %d names the sandbox, but neither its parent nor its cgroup "
                           "is the sandbox's",
                           (int)entry->process.pid);
        } else if (found) {
            (void)snprintf(search->doubt, sizeof(search->doubt),
                           "processes %d and %d both name the sandbox, so neither is trusted",
                           (int)found->process.pid, (int)entry->process.pid);
            return false;
        } else {
            found = entry;
            if (ret_parent)
                *ret_parent = now.parent;
        }
    }
    if (!found)
        return false;
    search->process = found->process;
    search->doubt[0] = '\0';
    return true;
}

static void find_shim(struct process_table *table, const char *sandbox_id, struct shim *ret_shim)
{
    struct process_search search = {0};
    struct entry key = {0};

    *ret_shim = (struct shim){0};
    if (set_key(&key, PROCESS_SHIM, sandbox_id) &&
        find_one(table, &key, ret_shim, &search, &ret_shim->parent))
        ret_shim->pid = search.process.pid;
}

static bool find_believed(struct process_table *table, const struct entry *key,
                          struct process_search *search)
{
    struct shim shim = {0};

    if (key->role == PROCESS_VMM)
        find_shim(table, key->id, &shim);
    return find_one(table, key, &shim, search, NULL);
}

/* Reports a process that is not trusted, if none is. */
static void tell_refused(const struct process_table *table, const struct entry *key,
                         struct process_search *search)
{
    for (unsigned i = 0; i < table->refusals && !search->doubt[0]; i++) {
        const struct refused *refused = &table->refused[i];

        if (refused->role == key->role && strcmp(refused->id, key->id) == 0)
            (void)snprintf(search->doubt, sizeof(search->doubt),
                           "process %d names the sandbox but is not trusted: %s", (int)refused->pid,
                           process_trust_text(refused->trust));
    }
}

static bool is_young(const struct process_index *index)
{
    uint64_t age = clock_boottime() - index->read_ns;
    uint64_t rest = 20 * index->cost_ns < REST_NS ? 20 * index->cost_ns : REST_NS;

    return index->read_ns && (age < SETTLE_NS || age < rest);
}

int process_index_refresh(struct process_index *index)
{
    return is_young(index) ? 0 : read_on(index);
}

int process_index_read_on(struct process_index *index)
{
    return index->processes && !index->is_held ? read_on(index) : 0;
}

void process_index_hold(struct process_index *index, bool is_held)
{
    index->is_held = is_held;
}

int process_index_find(struct process_index *index, enum process_role role, const char *sandbox_id,
                       struct process_search *ret_search)
{
    struct entry key = {0};
    int r;

    *ret_search = (struct process_search){0};
    if (!set_key(&key, role, sandbox_id))
        return PROCESS_INDEX_NONE;
    if (find_believed(&index->known, &key, ret_search))
        return PROCESS_INDEX_FOUND;
    ret_search->stale = index->is_held || is_young(index);
    if (!ret_search->stale) {
        r = read_on(index);
        if (r != 0)
            return r < 0 ? r : PROCESS_INDEX_UNFINISHED;
        ret_search->stale = index->known.is_doubtful;
        ret_search->doubt[0] = '\0';
        if (find_believed(&index->known, &key, ret_search))
            return PROCESS_INDEX_FOUND;
    }
    ret_search->sure_since_ns = index->known.has_missed ? 0 : index->known.began_ns;
    ret_search->has_unread = index->known.has_unread;
    tell_refused(&index->known, &key, ret_search);
    return PROCESS_INDEX_NONE;
}
