/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_process.c - the resolver for a live process.
 *
 * Absolute paths, and absolute links in them, are resolved inside the process' own root. A relative
 * path would depend on an earlier working directory, so it is not resolved at all. Descriptors are
 * followed through /proc/PID/fd, whose links are magic: stat(2) yields the open file itself.
 */
#include "hypervisor/vmm_process.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/directory.h"
#include "lib/hash.h"
#include "lib/path.h"
#include "lib/path_guard.h"
#include "lib/result.h"

/* Processor time for what is examined in one pass because of an answer: paths, descriptors and
 * files, and the comparisons between them. The VMM chooses how many there are, and a path alone may
 * cost 4 ms: 40 links, each as long as a path can be. */
static const uint64_t SEARCH_NS = 20 * NSEC_PER_MSEC;

/* A pass that has taken longer has no room for a search. */
static const uint64_t ROOM_NS = 5 * NSEC_PER_MSEC;

static struct vmm_identity identity_of(const struct stat *st)
{
    if (S_ISBLK(st->st_mode))
        return (struct vmm_identity){.block_device = true, .device = st->st_rdev};
    return (struct vmm_identity){.device = st->st_dev, .inode = st->st_ino};
}

static bool recall(const struct vmm_process *process, const char *name, int *ret_result,
                   struct vmm_identity *ret_identity)
{
    return process->memory && vmm_memory_find(process->memory, name, ret_result, ret_identity);
}

/* A lack of descriptors or memory may be over the next time. */
static int learn(struct vmm_process *process, const char *name, int r, const struct stat *st,
                 struct vmm_identity *ret_identity)
{
    const struct vmm_identity identity = identity_of(st);

    if (process->memory && !result_is_shortage(r))
        vmm_memory_add(process->memory, name, r, &identity);
    if (r == 0)
        *ret_identity = identity;
    return vmm_resolver_note(&process->resolver, r);
}

static int resolve_path(struct vmm_resolver *resolver, const char *path,
                        struct vmm_identity *ret_identity)
{
    struct vmm_process *process = container_of(resolver, struct vmm_process, resolver);
    struct stat st = {0};
    int r;

    if (path[0] != '/')
        return -EINVAL;
    if (recall(process, path, &r, ret_identity))
        return r;
    if (vmm_resolver_is_exhausted(resolver))
        return -ETIME;
    r = path_guard_check_process(process->pid, process->root, path);
    if (r == 0)
        r = path_stat_in_root(process->root, path, &st);
    return learn(process, path, r, &st, ret_identity);
}

int vmm_process_stat(const struct vmm_process *process, const char *name, struct stat *ret_stat)
{
    struct statx x;

    if (statx(process->descriptors, name, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &x) < 0)
        return -errno;
    *ret_stat = (struct stat){
        .st_mode = x.stx_mode,
        .st_dev = makedev(x.stx_dev_major, x.stx_dev_minor),
        .st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor),
        .st_ino = x.stx_ino,
    };
    return 0;
}

static int resolve_name(struct vmm_process *process, const char *name,
                        struct vmm_identity *ret_identity)
{
    struct stat st = {0};
    int r;

    if (recall(process, name, &r, ret_identity))
        return r;
    if (vmm_resolver_is_exhausted(&process->resolver))
        return -ETIME;
    r = vmm_process_stat(process, name, &st);
    if (r == 0 && !S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode))
        r = -ENODEV;
    return learn(process, name, r, &st, ret_identity);
}

static int resolve_descriptor(struct vmm_resolver *resolver, int fd,
                              struct vmm_identity *ret_identity)
{
    char name[16];

    (void)snprintf(name, sizeof(name), "%d", fd);
    return resolve_name(container_of(resolver, struct vmm_process, resolver), name, ret_identity);
}

static size_t list_held(struct vmm_resolver *resolver, struct vmm_identity *ret_identities,
                        size_t size)
{
    struct vmm_process *process = container_of(resolver, struct vmm_process, resolver);
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    size_t count = 0;
    int r = directory_list(process->descriptors, &names);

    if (r < 0) {
        (void)vmm_resolver_note(resolver, r);
        return 0;
    }
    for (unsigned seen = 0; count < size && (name = directory_next(names)); seen++) {
        resolver->exhausted |= seen == VMM_DESCRIPTORS;
        if (vmm_resolver_is_exhausted(resolver))
            break;
        if (resolve_name(process, name, &ret_identities[count]) == 0)
            count++;
    }
    return count;
}

static int open_directory(pid_t pid, const char *name, int *ret_fd)
{
    char path[48];
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

int vmm_process_init(struct vmm_process *process, pid_t pid, struct error *error)
{
    int r;

    *process = (struct vmm_process){
        .resolver = {.path = resolve_path,
                     .descriptor = resolve_descriptor,
                     .held = list_held,
                     .until_ns = clock_processor() + SEARCH_NS},
        .pid = pid,
        .root = -1,
        .descriptors = -1,
    };
    r = open_directory(pid, "root", &process->root);
    if (r == 0)
        r = open_directory(pid, "fd", &process->descriptors);
    if (r == 0)
        return 0;
    vmm_process_done(process);
    return error_set_errno(error, r, "cannot inspect the VMM, process %d", (int)pid);
}

void vmm_process_done(struct vmm_process *process)
{
    fd_close(take_fd(&process->root));
    fd_close(take_fd(&process->descriptors));
}

void vmm_process_use_memory(struct vmm_process *process, struct vmm_memory *memory)
{
    process->memory = memory;
    process->remembered = memory->count;
}

bool vmm_process_is_to_go_on(const struct vmm_process *process)
{
    return process->resolver.exhausted && process->memory->count > process->remembered;
}

bool vmm_search_may_begin(const struct loop *loop)
{
    return loop_pass_elapsed(&loop->pass) < ROOM_NS;
}

struct vmm_wanted vmm_wanted_of(const struct hypervisor_request *request)
{
    struct vmm_wanted wanted = {.act = request->act, .recorded_drive = request->recorded_drive};

    wanted.identity.block_device = !request->regular_file;
    wanted.identity.device = request->regular_file ? request->file_device : request->device;
    wanted.identity.inode = request->regular_file ? request->inode : 0;
    return wanted;
}

/* ---- vmm memory ----------------------------------------------------------------------------- */

/* No longer than the answer whose names it holds. */

struct vmm_memory_entry {
    UT_hash_handle hh;
    int result;
    struct vmm_identity identity;
    char name[];
};

bool vmm_memory_find(const struct vmm_memory *memory, const char *name, int *ret_result,
                     struct vmm_identity *ret_identity)
{
    const struct vmm_memory_entry *entry;

    HASH_FIND_STR(memory->entries, name, entry);
    if (!entry)
        return false;
    *ret_result = entry->result;
    *ret_identity = entry->identity;
    return true;
}

void vmm_memory_add(struct vmm_memory *memory, const char *name, int result,
                    const struct vmm_identity *identity)
{
    struct vmm_memory_entry *entry =
        memory->count < VMM_MEMORY_ENTRIES ? calloc(1, sizeof(*entry) + strlen(name) + 1) : NULL;

    if (!entry)
        return;
    entry->result = result;
    if (result == 0)
        entry->identity = *identity;
    strcpy(entry->name, name);
    HASH_ADD_STR(memory->entries, name, entry);
    if (entry->hh.tbl)
        memory->count++;
    else
        free(entry);
}

void vmm_memory_done(struct vmm_memory *memory)
{
    struct vmm_memory_entry *entry, *next;

    HASH_ITER (hh, memory->entries, entry, next) {
        HASH_DEL(memory->entries, entry);
        free(entry);
    }
    memory->count = 0;
}

/* ---- vmm resolver --------------------------------------------------------------------------- */

/* The functions that do not depend on the kind of resolver. */

enum { HELD_ENTRIES = 1024 };

bool vmm_resolver_is_exhausted(struct vmm_resolver *resolver)
{
    if (!resolver->exhausted && resolver->until_ns)
        resolver->exhausted = clock_processor() >= resolver->until_ns;
    return resolver->exhausted;
}

int vmm_resolver_note(struct vmm_resolver *resolver, int r)
{
    if (result_is_shortage(r))
        resolver->shortage = r;
    return r;
}

int vmm_resolver_refuse(struct error *error)
{
    return error_set(error, -ETIME,
                     "the VMM has more drives and files, or longer paths to them, than crustd "
                     "examines");
}

int vmm_resolver_doubt(const struct vmm_resolver *resolver, bool found, struct error *error)
{
    if (resolver->exhausted)
        return vmm_resolver_refuse(error);
    if (resolver->shortage && !found)
        return error_set_errno(error, resolver->shortage, "cannot read all of the VMM's files");
    return 0;
}

bool vmm_may_hold(struct vmm_resolver *resolver, const struct vmm_identity *identity)
{
    cleanup(freep) struct vmm_identity *held = calloc(HELD_ENTRIES, sizeof(*held));
    size_t count = held ? resolver->held(resolver, held, HELD_ENTRIES) : HELD_ENTRIES;

    for (size_t i = 0; held && i < count; i++)
        if (vmm_identity_equal(&held[i], identity))
            return true;
    return count == HELD_ENTRIES || resolver->exhausted; /* there may be more */
}

enum hypervisor_list vmm_search_list(struct vmm_resolver *resolver, const struct vmm_wanted *wanted,
                                     bool found, enum hypervisor_outcome *outcome,
                                     struct error *error)
{
    bool lacks =
        *outcome == HYPERVISOR_DRIVE_NOT_FOUND && !vmm_may_hold(resolver, &wanted->identity);

    if (vmm_resolver_doubt(resolver, found, error) < 0) {
        *outcome = HYPERVISOR_UNREACHABLE;
        return HYPERVISOR_LIST_UNREAD;
    }
    if (found)
        return HYPERVISOR_LIST_HAS;
    return lacks ? HYPERVISOR_LIST_LACKS : HYPERVISOR_LIST_UNREAD;
}
