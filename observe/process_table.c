/* SPDX-License-Identifier: Apache-2.0 */
/* process_table.c - reads all processes into a table, sorted by sandbox id.
 *
 * By process_table_is_young() its callers read it at most once per SETTLE_NS and for at most a
 * twentieth of the time, however many searches fail.
 */
#include "observe/process_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/process.h"
#include "lib/result.h"

/* The part of a process's arguments that is read. Kata's VMMs have about 20 KiB; any user can start
 * thousands of processes with as many as the kernel allows. */
enum { ARGUMENTS_BYTES = 64 * 1024 };

/* What one call reads: all processes of an ordinary node, two steps for each. Each of them may take
 * almost as long as a process that hangs (process.h), so the time is bounded, too. */
enum { CALL_STEPS = 2 * 4096, CALL_BYTES = 4 * 1024 * 1024 };
static const uint64_t CALL_NS = 15 * NSEC_PER_MSEC;
enum { PROCESSES = 65536, REFUSED = 32 };

static const uint64_t SETTLE_NS = 100 * NSEC_PER_MSEC, REST_NS = 5 * NSEC_PER_SEC;
static const uint64_t ABANDONED_NS =
    10 * NSEC_PER_SEC; /* then a reading that was not continued is dropped */

struct reading {
    size_t count, room;
    struct process_table_entry *entry;
    unsigned refusals;
    struct process_table_entry refused[REFUSED];
    bool has_missed; /* a process of root that started before the reading may be missing */
    uint64_t began_ns;
    struct process_table_gaps gaps;
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

static int compare_names(const struct process_table_entry *entry, enum process_role role,
                         const char *sandbox_id)
{
    int order = strcmp(entry->named.id, sandbox_id);

    return order ? order : (int)entry->named.role - (int)role;
}

static int compare(const void *a, const void *b)
{
    const struct process_table_entry *other = b;

    return compare_names(a, other->named.role, other->named.id);
}

static struct process_table_range find_range(const struct reading *reading, enum process_role role,
                                             const char *sandbox_id)
{
    struct process_table_range range = {0};
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
static bool was_tied(const struct reading *before, const struct process_table_entry *entry)
{
    const struct process_table_range same = find_range(before, entry->named.role, entry->named.id);

    for (size_t i = 0; i < same.count; i++)
        if (same.entry[i].pid == entry->pid && same.entry[i].start_ns == entry->start_ns)
            return same.entry[i].tied;
    return false;
}

static int add_entry(struct reading *reading, const struct process_table_entry *entry)
{
    if (reading->count == reading->room) {
        size_t more = reading->room ? 2 * reading->room : 64;
        struct process_table_entry *room = reallocarray(reading->entry, more, sizeof(*room));

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

    next->gaps.has_unread = true;
    next->has_missed |= process_judge(pid, NULL) == PROCESS_ROOTS;
    for (size_t i = 0; r == 0 && i < before->count; i++)
        if (before->entry[i].pid == pid)
            r = add_entry(next, &before->entry[i]);
    return r;
}

/* A process that has a sandbox's id and could not be examined. */
static int skip(struct reading *next, int failure)
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
    struct process_table_entry entry = {.pid = pid};
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
        return skip(next, r);
    if (!process.alive)
        return 0;
    entry.start_ns = process.start_ns;
    trust = entry.named.role == PROCESS_SHIM ? process_judge_unjailed(pid, NULL)
                                             : process_judge(pid, NULL);
    if (trust < 0)
        return skip(next, trust);
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
        is_last |= table->next.count >= PROCESSES;
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
    next->gaps.sure_since_ns = next->has_missed ? 0 : next->began_ns;
    next->gaps.is_doubtful = next->has_missed || !is_whole;
    free(table->known.entry);
    table->known = *next;
    *next = (struct reading){0};
    table->cost_ns = table->next_cost_ns;
    table->read_ns = clock_boottime();
    stop_reading(table);
}

int process_table_read_on(struct process_table *table)
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

bool process_table_is_reading(const struct process_table *table)
{
    return table->processes != NULL;
}

bool process_table_is_young(const struct process_table *table)
{
    uint64_t age = clock_boottime() - table->read_ns;
    uint64_t rest = 20 * table->cost_ns < REST_NS ? 20 * table->cost_ns : REST_NS;

    return table->read_ns && (age < SETTLE_NS || age < rest);
}

void process_table_expire(struct process_table *table)
{
    table->read_ns = 0;
}

/* ---- finding ----------------------------------------------------------------------------- */

struct process_table_range process_table_find(struct process_table *table, enum process_role role,
                                              const char *sandbox_id)
{
    return find_range(&table->known, role, sandbox_id);
}

struct process_table_range process_table_all(struct process_table *table)
{
    return (struct process_table_range){table->known.entry, table->known.count};
}

const struct process_table_entry *process_table_find_refused(const struct process_table *table,
                                                             enum process_role role,
                                                             const char *sandbox_id)
{
    for (unsigned i = 0; i < table->known.refusals; i++)
        if (compare_names(&table->known.refused[i], role, sandbox_id) == 0)
            return &table->known.refused[i];
    return NULL;
}

const struct process_table_gaps *process_table_gaps(const struct process_table *table)
{
    return &table->known.gaps;
}
