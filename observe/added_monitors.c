/* SPDX-License-Identifier: Apache-2.0 */
/* added_monitors.c - reads the directory, then walks through /proc once.
 *
 * The walk begins after the directory was read, and it sees every process that lives throughout the
 * walk. A process of root whose arguments cannot be read could serve any of the sockets, so the
 * result is then unknown.
 */
#include "observe/added_monitors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/directory.h"
#include "lib/hash.h"
#include "lib/path.h"
#include "lib/process.h"
#include "lib/process_trust.h"
#include "observe/observe.h"

enum { ARGUMENTS_BYTES = 2 * 1024 * 1024, MONITORS = 16384, PROCESSES_PER_STEP = 16 };
/* Each process may take almost as long as one that hangs. */
static const uint64_t STEP_NS = 10 * NSEC_PER_MSEC;
/* Attempts in total to read processes that hang: one that starts or forks locks its memory for a
 * moment, too. */
enum { ATTEMPTS = 20 };

static const char suffix[] = ".sock";

struct monitor {
    UT_hash_handle hh; /* key: the sandbox's id, or .PID */
    bool served;
    size_t key_length;
    struct stat status;
    char name[]; /* begins with the key */
};

struct added_monitors {
    struct monitor *monitors, *next;
    unsigned count;
    int directory;
    struct process_list *processes;
    pid_t again; /* a process that hung, to be read again in the next step; 0: none */
    unsigned attempts;
    struct buffer arguments;
};

/* ---- the directory ------------------------------------------------------------------------- */

/* The length of the key that the name begins with; 0: the name is not of crust-qemu's form. */
static size_t find_key(const char *name)
{
    size_t length = strlen(name), end = strlen(suffix);
    char id[OBSERVE_SANDBOX_ID_BYTES];

    if (name[0] == '.')
        return length > 1 && strspn(name + 1, "0123456789") == length - 1 ? length : 0;
    if (length <= end || length - end >= sizeof(id) || strcmp(name + length - end, suffix) != 0)
        return 0;
    (void)snprintf(id, sizeof(id), "%.*s", (int)(length - end), name);
    return observe_is_sandbox_id(id) ? length - end : 0;
}

static int add_name(struct added_monitors *monitors, const char *name)
{
    size_t key_length = find_key(name);
    struct monitor *monitor;
    struct stat status;

    if (!key_length || monitors->count == MONITORS ||
        fstatat(monitors->directory, name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISSOCK(status.st_mode))
        return 0;
    monitor = calloc(1, sizeof(*monitor) + strlen(name) + 1);
    if (!monitor)
        return -ENOMEM;
    memcpy(monitor->name, name, strlen(name) + 1);
    monitor->key_length = key_length;
    monitor->status = status;
    HASH_ADD_KEYPTR(hh, monitors->monitors, monitor->name, key_length, monitor);
    if (!monitor->hh.tbl) {
        free(monitor);
        return -ENOMEM;
    }
    monitors->count++;
    return 0;
}

static int read_names(struct added_monitors *monitors)
{
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    int r = directory_list(monitors->directory, &names);

    while (r == 0 && (name = directory_next(names)))
        r = add_name(monitors, name);
    return r;
}

/* Follows no link at its last component, and does not enter another mount there. */
static int open_directory(int root, int *ret_directory)
{
    cleanup(fd_closep) int parent = -1, directory = -1;
    static const char path[] = ADDED_MONITORS;
    const char *slash = strrchr(path, '/');
    char above[sizeof(path)];
    struct stat status;
    int r;

    (void)snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
    r = path_open_directory_in_root(root, above, &parent);
    if (r == 0)
        r = path_open_directory_below(parent, slash + 1, &directory);
    if (r < 0)
        return r;
    if (fstat(directory, &status) < 0)
        return -errno;
    if (status.st_uid != 0 || (status.st_mode & (S_IRWXG | S_IRWXO)))
        return ADDED_MONITORS_EXPOSED;
    *ret_directory = take_fd(&directory);
    return 0;
}

int added_monitors_read(int root, struct added_monitors **ret_monitors)
{
    struct added_monitors *monitors;
    int directory = -1, r = open_directory(root, &directory);

    if (r < 0)
        return r;
    monitors = calloc(1, sizeof(*monitors));
    if (!monitors) {
        fd_close(directory);
        return -ENOMEM;
    }
    monitors->directory = directory;
    buffer_init(&monitors->arguments, ARGUMENTS_BYTES);
    r = read_names(monitors);
    if (r < 0)
        added_monitors_free(monitors);
    else
        *ret_monitors = monitors;
    return r;
}

struct added_monitors *added_monitors_free(struct added_monitors *monitors)
{
    struct monitor *monitor, *next;

    if (!monitors)
        return NULL;
    HASH_ITER (hh, monitors->monitors, monitor, next) {
        HASH_DEL(monitors->monitors, monitor);
        free(monitor);
    }
    process_list_free(monitors->processes);
    buffer_done(&monitors->arguments);
    fd_close(monitors->directory);
    free(monitors);
    return NULL;
}

int added_monitors_directory(const struct added_monitors *monitors)
{
    return monitors->directory;
}

/* ---- which processes serve them ------------------------------------------------------------ */

static void note_served(struct added_monitors *monitors, const char *key, size_t length)
{
    struct monitor *monitor;

    HASH_FIND(hh, monitors->monitors, key, length, monitor);
    if (monitor)
        monitor->served = true;
}

void added_monitors_keep(struct added_monitors *monitors, const char *sandbox_id)
{
    note_served(monitors, sandbox_id, strlen(sandbox_id));
}

bool added_monitors_are_doubtful(const struct added_monitors *monitors)
{
    for (const struct monitor *monitor = monitors->monitors; monitor; monitor = monitor->hh.next)
        if (!monitor->served)
            return true;
    return false;
}

/* Looks for "sandbox-ID" and "…/run/crustd/qemu/ID.sock", each up to a comma. */
static void check_argument(struct added_monitors *monitors, const char *argument)
{
    static const char sandbox[] = "sandbox-", directory[] = ADDED_MONITORS "/";
    const char *socket = strstr(argument, directory);
    size_t length, end = strlen(suffix);

    if (strncmp(argument, sandbox, strlen(sandbox)) == 0)
        note_served(monitors, argument + strlen(sandbox), strcspn(argument + strlen(sandbox), ","));
    if (!socket)
        return;
    socket += strlen(directory);
    length = strcspn(socket, ",");
    if (length > end && strncmp(socket + length - end, suffix, end) == 0)
        note_served(monitors, socket, length - end);
}

static int check_process(struct added_monitors *monitors, pid_t pid)
{
    char trial[32];
    const char *argument, *end;
    int r;

    (void)snprintf(trial, sizeof(trial), ".%d", (int)pid);
    note_served(monitors, trial, strlen(trial));
    buffer_clear(&monitors->arguments);
    r = process_read_counted_arguments(monitors->processes, pid, &monitors->arguments);
    if (r == PROCESS_HANGS && monitors->attempts < ATTEMPTS) {
        monitors->attempts++;
        monitors->again = pid;
        return PROGRESS_MORE;
    }
    if (r < 0)
        return r == PROCESS_GONE ? 0 : r;
    argument = buffer_text(&monitors->arguments);
    end = argument + monitors->arguments.length;
    for (; argument < end; argument += strlen(argument) + 1)
        check_argument(monitors, argument);
    return 0;
}

int added_monitors_step(struct added_monitors *monitors)
{
    const uint64_t until_ns = clock_boottime() + STEP_NS;
    int r = 0;

    if (!monitors->processes)
        r = process_list_new(&monitors->processes);
    for (unsigned i = 0;
         r == 0 && i < PROCESSES_PER_STEP && (i == 0 || clock_boottime() < until_ns); i++) {
        pid_t pid = monitors->again;

        monitors->again = 0;
        if (!pid)
            r = process_list_next(monitors->processes, &pid);
        if (r == 0 && !pid) {
            monitors->next = monitors->monitors;
            return 0;
        }
        if (r == 0)
            r = check_process(monitors, pid);
    }
    return r < 0 ? r : PROGRESS_MORE;
}

bool added_monitors_next(struct added_monitors *monitors, struct added_monitor *ret_monitor)
{
    const struct monitor *monitor = monitors->next;

    while (monitor && monitor->served)
        monitor = monitor->hh.next;
    monitors->next = monitor ? monitor->hh.next : NULL;
    if (!monitor)
        return false;
    *ret_monitor = (struct added_monitor){
        .name = monitor->name,
        .device = monitor->status.st_dev,
        .inode = monitor->status.st_ino,
        .modified = monitor->status.st_mtim,
    };
    return true;
}
