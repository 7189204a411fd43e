/* SPDX-License-Identifier: Apache-2.0 */
/* process_scan.c - walks through /proc: who names a sandbox that looks stale (the process scan),
 * and who serves a socket that crust-qemu added.
 *
 * The process scan walks once for all requested sandboxes.
 * Missing a process that ends during the walk does no harm. A process that starts after the walk
 * has passed it also leaves state directories and sandbox records, which are checked separately;
 * and a sandbox that is being created has not been stale for the grace time.
 *
 * A process of any user that names a sandbox keeps that sandbox's metadata, because a rootless VMM
 * runs as such a user. It must not keep more than it names, or any user could prevent every
 * removal. So if the arguments of a process cannot be read, because they are too long or its memory
 * stays locked, it counts for every sandbox only if it is root's. The same applies to cgroups:
 * Linux before 6.8 reports no path longer than PATH_MAX, and a user to whom a part of the tree is
 * delegated can make one.
 *
 * The metadata of a rootless VMM that keeps its memory locked stays nevertheless, by what needs
 * none of its memory: its shim is root's and names the sandbox, and after a shim was killed, the
 * VMM's cgroup, which the shim made, still has the sandbox's id. Besides, a sandbox counts as alive
 * while the process that the store has as its VMM exists (evidence.c).
 */
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
#include "lib/collections.h"
#include "lib/directory.h"
#include "lib/path.h"
#include "lib/process.h"
#include "lib/result.h"
#include "observe/observe.h"
#include "observe/process_scan.h"

enum { ARGUMENTS_BYTES = 2 * 1024 * 1024, CGROUP_BYTES = 64 * 1024, TOKEN_CHARS = 32 };
/* What one step reads and searches, which takes a few milliseconds at most. The limits matter
 * because any user can start processes with long arguments, which are searched for every
 * sandbox. */
enum { PROCESSES_PER_STEP = 16, STEP_BYTES = 4 * 1024 * 1024 };
/* Each process may take almost as long as one that hangs. */
static const uint64_t STEP_NS = 10 * NSEC_PER_MSEC;
/* Attempts in total to read processes that hang: one that starts or forks locks its memory for a
 * moment, too. Users' processes have as many of their own, so that they leave root's theirs. */
enum { ATTEMPTS = 20 };

struct walk {
    struct process_list *processes; /* NULL: it has not begun */
    pid_t again;                    /* one that hung, and is the next one once more; 0: none */
};

/* *ret_pid is 0 if none is left. 0 or -errno. */
static int next_process(struct walk *walk, pid_t *ret_pid)
{
    int r = walk->processes ? 0 : process_list_new(&walk->processes);

    *ret_pid = walk->again;
    walk->again = 0;
    return r == 0 && !*ret_pid ? process_list_next(walk->processes, ret_pid) : r;
}

struct asked {
    UT_hash_handle hh;
    bool has_process, has_cgroup;
    pid_t pid; /* the first process with the id; 0: none, or one that could not be read */
    char token[TOKEN_CHARS + 1];
};

struct process_scan {
    struct asked *asked;
    struct walk walk;
    /* The current process, and the sandbox that it is searched for next; NULL: it was searched for
     * all. */
    pid_t pid;
    bool unread, unread_cgroup;
    bool has_locked_arguments; /* it is a user's, and hangs */
    unsigned roots_attempts, users_attempts;
    bool is_over; /* further processes cannot change the answer */
    struct buffer arguments, cgroup;
    struct asked *next;
    uint64_t kubelet_start_ns;
};

static struct asked *find(const struct process_scan *process_scan, const char *sandbox_id)
{
    struct asked *asked;

    HASH_FIND(hh, process_scan->asked, sandbox_id, strnlen(sandbox_id, TOKEN_CHARS), asked);
    return asked;
}

int process_scan_new(struct process_scan **ret_scan)
{
    struct process_scan *process_scan = calloc(1, sizeof(*process_scan));

    if (!process_scan)
        return -ENOMEM;
    buffer_init(&process_scan->arguments, ARGUMENTS_BYTES);
    buffer_init(&process_scan->cgroup, CGROUP_BYTES);
    *ret_scan = process_scan;
    return 0;
}

struct process_scan *process_scan_free(struct process_scan *process_scan)
{
    struct asked *asked, *next;

    if (!process_scan)
        return NULL;
    HASH_ITER (hh, process_scan->asked, asked, next) {
        HASH_DEL(process_scan->asked, asked);
        free(asked);
    }
    process_list_free(process_scan->walk.processes);
    buffer_done(&process_scan->arguments);
    buffer_done(&process_scan->cgroup);
    free(process_scan);
    return NULL;
}

int process_scan_ask(struct process_scan *process_scan, const char *sandbox_id)
{
    size_t length = strnlen(sandbox_id, TOKEN_CHARS);
    struct asked *asked;

    if (find(process_scan, sandbox_id))
        return 0;
    asked = calloc(1, sizeof(*asked));
    if (!asked)
        return -ENOMEM;
    memcpy(asked->token, sandbox_id, length);
    HASH_ADD_KEYPTR(hh, process_scan->asked, asked->token, length, asked);
    if (!asked->hh.tbl) {
        free(asked);
        return -ENOMEM;
    }
    return 0;
}

/* ---- one process ------------------------------------------------------------------------- */

static bool holds(const struct buffer *text, const struct asked *asked)
{
    return memmem(buffer_text(text), text->length, asked->token, strlen(asked->token)) != NULL;
}

/* The process hung. Returns PROGRESS_MORE, because a step waits for only one such process; 0: it
 * has ended; -errno. */
static int take_hanging(struct process_scan *process_scan, pid_t pid, int cgroup_outcome)
{
    const int trust = process_judge(pid, NULL);
    const bool is_roots = trust == PROCESS_ROOTS;
    unsigned *attempts = is_roots ? &process_scan->roots_attempts : &process_scan->users_attempts;

    if (trust < 0)
        return trust == PROCESS_GONE ? 0 : trust;
    if (*attempts < ATTEMPTS) {
        (*attempts)++;
        process_scan->walk.again = pid;
    } else if (is_roots) {
        /* It may belong to any sandbox, or be a kubelet that was just started. */
        for (struct asked *asked = process_scan->asked; asked; asked = asked->hh.next)
            asked->has_process = asked->has_cgroup = true;
        process_scan->kubelet_start_ns = clock_boottime();
        process_scan->is_over = true;
    } else if (result_is_shortage(cgroup_outcome)) {
        return cgroup_outcome;
    } else {
        buffer_clear(&process_scan->arguments);
        process_scan->has_locked_arguments = true;
        process_scan->pid = pid;
        process_scan->next = process_scan->asked;
    }
    return PROGRESS_MORE;
}

/* Reads the current process; one that has ended is skipped. Returns as take_hanging() if it hung.
 */
static int take_process(struct process_scan *process_scan, pid_t pid)
{
    struct process process;
    int r, s;

    buffer_clear(&process_scan->arguments);
    buffer_clear(&process_scan->cgroup);
    process_scan->unread = process_scan->unread_cgroup = process_scan->has_locked_arguments = false;
    r = process_read_counted_arguments(process_scan->walk.processes, pid, &process_scan->arguments);
    s = r == PROCESS_GONE ? r : process_read_file(pid, "cgroup", &process_scan->cgroup);
    if (r == PROCESS_GONE || s == PROCESS_GONE)
        return 0;
    if (r == PROCESS_HANGS)
        return take_hanging(process_scan, pid, s);
    process_scan->unread = r == BUFFER_FULL;
    if ((r < 0 && !process_scan->unread) || result_is_shortage(s))
        return r < 0 && !process_scan->unread ? r : s;
    process_scan->unread_cgroup = s < 0 && process_judge(pid, NULL) == PROCESS_ROOTS;
    if (strcmp(basename(buffer_text(&process_scan->arguments)), "kubelet") == 0 &&
        process_read(pid, &process) == 0 && process_judge(pid, NULL) == PROCESS_ROOTS &&
        process_still_has_arguments(pid, &process_scan->arguments) !=
            0 && /* a later start only delays */
        process.start_ns > process_scan->kubelet_start_ns)
        process_scan->kubelet_start_ns = process.start_ns;
    process_scan->pid = pid;
    process_scan->next = process_scan->asked;
    return 0;
}

/* Searches it for some more sandboxes; *bytes is how much may still be searched. */
static void search_process(struct process_scan *process_scan, size_t *bytes)
{
    const size_t each = process_scan->arguments.length + process_scan->cgroup.length;

    for (; process_scan->next && *bytes > 0; process_scan->next = process_scan->next->hh.next) {
        struct asked *asked = process_scan->next;
        bool named = !process_scan->unread && holds(&process_scan->arguments, asked);
        bool is_in_cgroup = holds(&process_scan->cgroup, asked);

        asked->has_process |=
            process_scan->unread || named || (process_scan->has_locked_arguments && is_in_cgroup);
        if (named && !asked->pid)
            asked->pid = process_scan->pid;
        asked->has_cgroup |= process_scan->unread_cgroup || is_in_cgroup;
        *bytes -= each < *bytes ? each : *bytes;
    }
}

/* ---- all of them ------------------------------------------------------------------------- */

int process_scan_step(struct process_scan *process_scan)
{
    const uint64_t until_ns = clock_boottime() + STEP_NS;
    size_t bytes = STEP_BYTES;
    int r = 0;

    if (process_scan->is_over)
        return 0;
    for (unsigned i = 0;
         r == 0 && i < PROCESSES_PER_STEP && bytes > 0 && (i == 0 || clock_boottime() < until_ns);
         i++) {
        if (!process_scan->next) {
            pid_t pid;

            r = next_process(&process_scan->walk, &pid);
            if (r < 0 || !pid)
                return r;
            r = take_process(process_scan, pid);
        }
        search_process(process_scan, &bytes);
    }
    return r < 0 ? r : PROGRESS_MORE;
}

bool process_scan_has_process(const struct process_scan *process_scan, const char *sandbox_id)
{
    const struct asked *asked = find(process_scan, sandbox_id);

    return !asked || asked->has_process;
}

pid_t process_scan_get_process(const struct process_scan *process_scan, const char *sandbox_id)
{
    const struct asked *asked = find(process_scan, sandbox_id);

    return asked ? asked->pid : 0;
}

bool process_scan_has_cgroup(const struct process_scan *process_scan, const char *sandbox_id)
{
    const struct asked *asked = find(process_scan, sandbox_id);

    return !asked || asked->has_cgroup;
}

uint64_t process_scan_kubelet_start(const struct process_scan *process_scan)
{
    return process_scan->kubelet_start_ns;
}

/* ---- added monitors ------------------------------------------------------------------------- */

/* Reads the directory, then walks through /proc once.
 *
 * The walk begins after the directory was read, and it sees every process that lives throughout the
 * walk. A process of root whose arguments cannot be read could serve any of the sockets, so the
 * result is then unknown.
 */

enum { MONITORS = 16384 };

static const char suffix[] = ".sock";

struct monitor {
    UT_hash_handle hh; /* key: the sandbox's id, or .PID */
    bool served;
    struct stat status;
    char name[]; /* begins with the key */
};

struct added_monitors {
    struct monitor *monitors, *next;
    unsigned count;
    int directory;
    struct walk walk;
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
    monitor->status = status;
    HASH_ADD_KEYPTR(hh, monitors->monitors, monitor->name, key_length, monitor);
    if (!monitor->hh.tbl) {
        free(monitor);
        return -ENOMEM;
    }
    monitors->count++;
    return 0;
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
    cleanup(dir_closep) DIR *names = NULL;
    struct added_monitors *monitors;
    const char *name;
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
    r = directory_list(directory, &names);
    while (r == 0 && (name = directory_next(names)))
        r = add_name(monitors, name);
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
    process_list_free(monitors->walk.processes);
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
    r = process_read_counted_arguments(monitors->walk.processes, pid, &monitors->arguments);
    if (r == PROCESS_HANGS && monitors->attempts < ATTEMPTS) {
        monitors->attempts++;
        monitors->walk.again = pid;
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

    for (unsigned i = 0;
         r == 0 && i < PROCESSES_PER_STEP && (i == 0 || clock_boottime() < until_ns); i++) {
        pid_t pid;

        r = next_process(&monitors->walk, &pid);
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
