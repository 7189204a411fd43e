/* SPDX-License-Identifier: Apache-2.0 */
/* process_index.c - VMMs and shims by the sandbox in their arguments.
 *
 *   QEMU               -name sandbox-ID[,debug-threads=on], -device vhost-vsock-…,guest-cid=N
 *   Cloud Hypervisor   --api-socket …/ID/ch-api.sock
 *   Firecracker        --id ID, or --api-sock …/ID/run/fc.sock
 *   a shim             -id ID (containerd's shim API, which CRI-O speaks as well)
 *
 * What a process was started as says nothing about which program it is, so other processes may
 * stand here too; nobody asks for their ids. The index is an array sorted by id, read anew as a
 * whole: at most every SETTLE_NS and for a twentieth of the time, however many sandboxes are looked
 * for in vain.
 */
#include "observe/process_index.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "observe/process.h"

enum { ARGUMENTS_BYTES = 256 * 1024, ID_BYTES = 129, PROCESSES = 65536 };

static const uint64_t SETTLE_NS = 100 * NSEC_PER_MSEC;

struct entry {
    char id[ID_BYTES];
    enum process_role role;
    struct indexed_process process;
};

struct process_index {
    uint64_t read_ns; /* when it was; 0 never */
    uint64_t cost_ns; /* how long it took */
    size_t count, room;
    struct entry *entry;
};

int process_index_new(struct process_index **ret_index)
{
    struct process_index *index = calloc(1, sizeof(*index));

    if (!index)
        return -ENOMEM;
    *ret_index = index;
    return 0;
}

struct process_index *process_index_free(struct process_index *index)
{
    if (index)
        free(index->entry);
    free(index);
    return NULL;
}

/* ---- one process' arguments -------------------------------------------------------------- */

static bool set_id(struct entry *entry, enum process_role role, const char *id, size_t length)
{
    if (!length || length >= sizeof(entry->id))
        return false;
    memcpy(entry->id, id, length);
    entry->id[length] = '\0';
    entry->role = role;
    return true;
}

/* The directory of a socket, not counting run/ and root/ within it. */
static bool set_id_of_socket(struct entry *entry, const char *path)
{
    const char *end = strrchr(path, '/');

    while (end && end > path) {
        const char *name = end;

        while (name > path && name[-1] != '/')
            name--;
        if (strncmp(name, "run/", 4) != 0 && strncmp(name, "root/", 5) != 0)
            return set_id(entry, PROCESS_VMM, name, (size_t)(end - name));
        end = name > path ? name - 1 : NULL;
    }
    return false;
}

static bool read_option(struct entry *entry, const char *option, const char *value)
{
    static const char prefix[] = "sandbox-";

    if (strcmp(option, "-name") == 0 && strncmp(value, prefix, strlen(prefix)) == 0)
        return set_id(entry, PROCESS_VMM, value + strlen(prefix),
                      strcspn(value + strlen(prefix), ","));
    if (strcmp(option, "--api-socket") == 0 || strcmp(option, "--api-sock") == 0)
        return set_id_of_socket(entry, value);
    if (strcmp(option, "--id") == 0)
        return set_id(entry, PROCESS_VMM, value, strlen(value));
    if (strcmp(option, "-id") == 0)
        return set_id(entry, PROCESS_SHIM, value, strlen(value));
    return false;
}

static uint32_t read_cid(const char *argument)
{
    static const char name[] = "guest-cid=";
    const char *at = strstr(argument, name);
    char *end;
    unsigned long cid;

    if (!at || (at > argument && at[-1] != ','))
        return 0;
    cid = strtoul(at + strlen(name), &end, 10);
    return (*end == ',' || !*end) && cid < UINT32_MAX ? (uint32_t)cid : 0;
}

static bool read_arguments(struct entry *entry, const struct buffer *arguments)
{
    const char *argument = buffer_text(arguments), *end = argument + arguments->length;
    const char *previous = NULL;
    bool found = false;

    for (; argument < end; previous = argument, argument += strlen(argument) + 1) {
        if (previous && !found)
            found = read_option(entry, previous, argument);
        if (!entry->process.guest_cid)
            entry->process.guest_cid = read_cid(argument);
    }
    entry->process.hypervisor = process_arguments_hypervisor(arguments);
    return found;
}

/* ---- all of them ------------------------------------------------------------------------- */

/* One that ends meanwhile is no loss. */
static int add_process(struct process_index *index, pid_t pid, struct buffer *arguments)
{
    struct entry entry = {.process = {.pid = pid}};
    struct process process;
    struct entry *room;

    buffer_clear(arguments);
    if (process_read_arguments(pid, arguments) < 0 || !read_arguments(&entry, arguments) ||
        process_read(pid, &process) < 0 || !process.alive)
        return 0;
    entry.process.start_ns = process.start_ns;
    if (index->count == index->room) {
        size_t more = index->room ? 2 * index->room : 64;

        room = reallocarray(index->entry, more, sizeof(*room));
        if (!room)
            return -ENOMEM;
        index->entry = room;
        index->room = more;
    }
    index->entry[index->count++] = entry;
    return 0;
}

static int compare(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    int order = strcmp(left->id, right->id);

    return order ? order : (int)left->role - (int)right->role;
}

static int read_all(struct process_index *index)
{
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(ARGUMENTS_BYTES);
    cleanup(dir_closep) DIR *directory = opendir("/proc");
    const struct dirent *name;
    int r = directory ? 0 : -errno;

    index->count = 0;
    index->read_ns = clock_boottime();
    while (r == 0 && index->count < PROCESSES && (name = readdir(directory))) {
        char *end;
        long pid = strtol(name->d_name, &end, 10);

        if (pid > 0 && !*end)
            r = add_process(index, (pid_t)pid, &arguments);
    }
    index->cost_ns = clock_boottime() - index->read_ns;
    if (r < 0)
        index->read_ns = 0;
    else if (index->count)
        qsort(index->entry, index->count, sizeof(*index->entry), compare);
    return r;
}

/* ---- finding ----------------------------------------------------------------------------- */

static size_t first_of(const struct process_index *index, const struct entry *key)
{
    size_t low = 0, high = index->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (compare(&index->entry[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool find_living(const struct process_index *index, const struct entry *key,
                        struct indexed_process *ret_process)
{
    for (size_t i = first_of(index, key); i < index->count && compare(&index->entry[i], key) == 0;
         i++) {
        const struct indexed_process *known = &index->entry[i].process;
        struct process now;

        if (process_read(known->pid, &now) == 0 && now.alive && now.start_ns == known->start_ns) {
            *ret_process = *known;
            return true;
        }
    }
    return false;
}

static bool is_young(const struct process_index *index)
{
    uint64_t age = clock_boottime() - index->read_ns;

    return index->read_ns && (age < SETTLE_NS || age < 20 * index->cost_ns);
}

int process_index_find(struct process_index *index, enum process_role role, const char *sandbox_id,
                       struct indexed_process *ret_process, bool *ret_stale)
{
    struct entry key = {0};
    int r;

    *ret_stale = false;
    if (!set_id(&key, role, sandbox_id, strlen(sandbox_id)))
        return PROCESS_INDEX_NONE;
    if (find_living(index, &key, ret_process))
        return PROCESS_INDEX_FOUND;
    *ret_stale = is_young(index);
    if (*ret_stale)
        return PROCESS_INDEX_NONE;
    r = read_all(index);
    if (r < 0)
        return r;
    return find_living(index, &key, ret_process) ? PROCESS_INDEX_FOUND : PROCESS_INDEX_NONE;
}
