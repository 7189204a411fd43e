/* SPDX-License-Identifier: Apache-2.0 */
/* container_find.c - one pass over /proc. A process that ends meanwhile is left out.
 *
 * kata-agent names a container's cgroup after it: "/ID", or the path that the runtime asked for,
 * which ends with the id (with systemd "PREFIX-ID.scope"). Its processes are children of the agent,
 * which is in the same pid namespace as this process, and have a mount namespace of their own.
 *
 * What a container can do about it: one that may write to the cgroup file system can call a cgroup
 * of its own after another container. Its own children have a parent in its pid namespace and do
 * not count. Its first process, moved there, makes the id ambiguous for as long as the other
 * container runs, and nothing is mounted. Such a container has CAP_SYS_ADMIN in the guest.
 *
 * Source: rustjail's container.rs in Kata Containers 4.1.0 (cgroups_path), proc(5), cgroups(7),
 * pid_namespaces(7).
 */
#include "guest-agent/guest_drive.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/directory.h"

enum {
    TEXT_BYTES = 16 * 1024, /* cgroup and status of a process; what is longer is not read */
    PATH_CHARS = 64,
};

struct search {
    const char *id;
    int proc;
    ino_t own_pids, own_mounts; /* namespaces of this process */
    unsigned own_depth;         /* how many pid namespaces it is in */
    bool is_first;              /* the one found is the first process of its pid namespace */
    bool is_ambiguous;
    struct container_place found; /* process -1: none */
};

/* ---- what /proc says of a process ---- */

static int read_text(int process, const char *name, char ret_text[static TEXT_BYTES])
{
    cleanup(fd_closep) int fd = openat(process, name, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t count = 1;

    if (fd < 0)
        return -errno;
    while (count > 0 && length < TEXT_BYTES - 1) {
        count = read(fd, ret_text + length, TEXT_BYTES - 1 - length);
        length += count > 0 ? (size_t)count : 0;
    }
    ret_text[length] = '\0';
    return count < 0 ? -errno : 0;
}

static int read_namespace(int process, const char *name, ino_t *ret_inode)
{
    struct stat status;

    if (fstatat(process, name, &status, 0) < 0)
        return -errno;
    *ret_inode = status.st_ino;
    return 0;
}

/* Where the values of a field of `status` begin; "" if there is no such field. The kernel escapes
 * newlines in a process's name, so no name looks like a field. */
static const char *find_field(const char *status, const char *name)
{
    const char *at = strstr(status, name);

    return at ? at + strlen(name) : "";
}

/* The numbers of one line: how many there are, and the last one. */
static unsigned count_numbers(const char *text, unsigned long *ret_last)
{
    unsigned count = 0;

    *ret_last = 0;
    while (*text && *text != '\n') {
        char *end = NULL;
        unsigned long number = strtoul(text, &end, 10);

        if (end == text)
            break;
        *ret_last = number;
        count++;
        text = end + strspn(end, "\t ");
    }
    return count;
}

/* ---- its cgroup ---- */

/* What runtimes call a container's cgroup, before and after its id: with and without systemd. */
static const char *const forms[][2] = {
    {"", ""},
    {"crio-", ""},
    {"", ".scope"},
    {"cri-containerd-", ".scope"},
    {"crio-", ".scope"},
    {"kata_agent-", ".scope"},
    {"libpod-", ".scope"},
    {"nerdctl-", ".scope"},
    {"docker-", ".scope"},
};

bool container_has_cgroup(const char *path, size_t length, const char *id)
{
    const char *end = path + length;
    char name[PATH_CHARS * 2];

    while (path < end) {
        const char *slash = memchr(path, '/', (size_t)(end - path));
        size_t part = (size_t)((slash ? slash : end) - path);

        for (size_t i = 0; i < array_length(forms); i++) {
            int written = snprintf(name, sizeof(name), "%s%s%s", forms[i][0], id, forms[i][1]);

            if (written == (int)part && written < (int)sizeof(name) &&
                memcmp(path, name, part) == 0)
                return true;
        }
        path += part + 1;
    }
    return false;
}

/* "HIERARCHY:CONTROLLERS:PATH" in each line. No cgroup's name has a newline. */
static bool is_in_cgroup(int process, const char *id)
{
    char text[TEXT_BYTES];

    if (read_text(process, "cgroup", text) < 0)
        return false;
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        const char *path = memchr(line, ':', length);

        if (path)
            path = memchr(path + 1, ':', length - (size_t)(path + 1 - line));
        if (path && container_has_cgroup(path + 1, length - (size_t)(path + 1 - line), id))
            return true;
        line += length + (line[length] == '\n');
    }
    return false;
}

/* ---- whose child it is ---- */

/* The agent's own children have their parent in our pid namespace; a container's have not. Of those
 * in the container, *ret_is_first is the one that the container began with, unless its containers
 * share a pid namespace. */
static bool is_agents_child(const struct search *search, int process, bool *ret_is_first)
{
    cleanup(fd_closep) int parent = -1;
    char status[TEXT_BYTES], name[PATH_CHARS];
    unsigned long last;
    unsigned depth;
    ino_t pids = 0;

    if (read_text(process, "status", status) < 0)
        return false;
    (void)snprintf(name, sizeof(name), "%lu", strtoul(find_field(status, "\nPPid:\t"), NULL, 10));
    parent = openat(search->proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0 || read_namespace(parent, "ns/pid", &pids) < 0 || pids != search->own_pids)
        return false;
    depth = count_numbers(find_field(status, "\nNSpid:\t"), &last);
    *ret_is_first = last == 1 && depth == search->own_depth + 1;
    return true;
}

/* ---- the search ---- */

static void judge(struct search *search, const char *name)
{
    cleanup(fd_closep) int process = openat(search->proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool is_first = false;
    ino_t mounts = 0;

    if (process < 0 || !is_in_cgroup(process, search->id) ||
        read_namespace(process, "ns/mnt", &mounts) < 0 || mounts == search->own_mounts ||
        !is_agents_child(search, process, &is_first))
        return;
    if (search->found.process >= 0 && (search->is_first || !is_first)) {
        if (search->is_first == is_first && search->found.mounts != mounts)
            search->is_ambiguous = true;
        return;
    }
    fd_close(search->found.process);
    search->found = (struct container_place){take_fd(&process), mounts};
    search->is_first = is_first;
    search->is_ambiguous = false;
}

int container_find(const char *proc, const char *id, struct container_place *ret_place)
{
    cleanup(dir_closep) DIR *names = opendir(proc);
    cleanup(fd_closep) int self = -1;
    struct search search = {.id = id, .found = {.process = -1}};
    char status[TEXT_BYTES];
    unsigned long last;
    const char *name;
    int r;

    if (!names)
        return -errno;
    search.proc = dirfd(names);
    self = openat(search.proc, "self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    r = self < 0 ? -errno : read_namespace(self, "ns/pid", &search.own_pids);
    if (r == 0)
        r = read_namespace(self, "ns/mnt", &search.own_mounts);
    if (r == 0)
        r = read_text(self, "status", status);
    if (r < 0)
        return r;
    search.own_depth = count_numbers(find_field(status, "\nNSpid:\t"), &last);
    while ((name = directory_next(names))) {
        if (isdigit((unsigned char)name[0]))
            judge(&search, name);
    }
    if (search.found.process >= 0 && !search.is_ambiguous) {
        *ret_place = search.found;
        return CONTAINER_FOUND;
    }
    fd_close(search.found.process);
    return search.is_ambiguous ? CONTAINER_AMBIGUOUS : CONTAINER_ABSENT;
}
