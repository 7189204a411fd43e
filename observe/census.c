/* SPDX-License-Identifier: Apache-2.0 */
/* census.c - walks through /proc once for all requested sandboxes.
 *
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
#include "observe/census.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/hash.h"
#include "lib/process.h"
#include "lib/process_trust.h"
#include "lib/result.h"

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

struct asked {
    UT_hash_handle hh;
    bool has_process, has_cgroup;
    pid_t pid; /* the first process with the id; 0: none, or one that could not be read */
    char token[TOKEN_CHARS + 1];
};

struct census {
    struct asked *asked;
    struct process_list *processes;
    /* The current process, and the sandbox that it is searched for next; NULL: it was searched for
     * all. */
    pid_t pid;
    bool unread, unread_cgroup;
    bool has_locked_arguments; /* it is a user's, and hangs */
    pid_t again; /* the current process hung and is read again in the next step; 0: none */
    unsigned roots_attempts, users_attempts;
    bool is_over; /* further processes cannot change the answer */
    struct buffer arguments, cgroup;
    struct asked *next;
    uint64_t kubelet_start_ns;
};

static struct asked *find(const struct census *census, const char *sandbox_id)
{
    struct asked *asked;

    HASH_FIND(hh, census->asked, sandbox_id, strnlen(sandbox_id, TOKEN_CHARS), asked);
    return asked;
}

int census_new(struct census **ret_census)
{
    struct census *census = calloc(1, sizeof(*census));

    if (!census)
        return -ENOMEM;
    buffer_init(&census->arguments, ARGUMENTS_BYTES);
    buffer_init(&census->cgroup, CGROUP_BYTES);
    *ret_census = census;
    return 0;
}

struct census *census_free(struct census *census)
{
    struct asked *asked, *next;

    if (!census)
        return NULL;
    HASH_ITER (hh, census->asked, asked, next) {
        HASH_DEL(census->asked, asked);
        free(asked);
    }
    process_list_free(census->processes);
    buffer_done(&census->arguments);
    buffer_done(&census->cgroup);
    free(census);
    return NULL;
}

int census_ask(struct census *census, const char *sandbox_id)
{
    size_t length = strnlen(sandbox_id, TOKEN_CHARS);
    struct asked *asked;

    if (find(census, sandbox_id))
        return 0;
    asked = calloc(1, sizeof(*asked));
    if (!asked)
        return -ENOMEM;
    memcpy(asked->token, sandbox_id, length);
    HASH_ADD_KEYPTR(hh, census->asked, asked->token, length, asked);
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

static void note_kubelet(struct census *census, pid_t pid)
{
    const char *program = buffer_text(&census->arguments);
    struct process process;

    if (strcmp(basename(program), "kubelet") == 0 && process_read(pid, &process) == 0 &&
        process_judge(pid, NULL) == PROCESS_ROOTS &&
        process_still_has_arguments(pid, &census->arguments) != 0 && /* a later start only delays */
        process.start_ns > census->kubelet_start_ns)
        census->kubelet_start_ns = process.start_ns;
}

/* A process of root that cannot be read may belong to any sandbox, or be a kubelet that was just
 * started. */
static void keep_all(struct census *census)
{
    for (struct asked *asked = census->asked; asked; asked = asked->hh.next)
        asked->has_process = asked->has_cgroup = true;
    census->kubelet_start_ns = clock_boottime();
    census->is_over = true;
}

static void begin_search(struct census *census, pid_t pid)
{
    census->pid = pid;
    census->next = census->asked;
}

/* The process hung. Returns PROGRESS_MORE, because a step waits for only one such process; 0: it
 * has ended; -errno. */
static int take_hanging(struct census *census, pid_t pid, int cgroup_outcome)
{
    const int trust = process_judge(pid, NULL);
    const bool is_roots = trust == PROCESS_ROOTS;
    unsigned *attempts = is_roots ? &census->roots_attempts : &census->users_attempts;

    if (trust < 0)
        return trust == PROCESS_GONE ? 0 : trust;
    if (*attempts < ATTEMPTS) {
        (*attempts)++;
        census->again = pid;
    } else if (is_roots) {
        keep_all(census);
    } else if (result_is_shortage(cgroup_outcome)) {
        return cgroup_outcome;
    } else {
        buffer_clear(&census->arguments);
        census->has_locked_arguments = true;
        begin_search(census, pid);
    }
    return PROGRESS_MORE;
}

/* Reads the current process; one that has ended is skipped. Returns as take_hanging() if it hung.
 */
static int take_process(struct census *census, pid_t pid)
{
    int r, s;

    buffer_clear(&census->arguments);
    buffer_clear(&census->cgroup);
    census->unread = census->unread_cgroup = census->has_locked_arguments = false;
    r = process_read_counted_arguments(census->processes, pid, &census->arguments);
    s = r == PROCESS_GONE ? r : process_read_file(pid, "cgroup", &census->cgroup);
    if (r == PROCESS_GONE || s == PROCESS_GONE)
        return 0;
    if (r == PROCESS_HANGS)
        return take_hanging(census, pid, s);
    census->unread = r == BUFFER_FULL;
    if ((r < 0 && !census->unread) || result_is_shortage(s))
        return r < 0 && !census->unread ? r : s;
    census->unread_cgroup = s < 0 && process_judge(pid, NULL) == PROCESS_ROOTS;
    note_kubelet(census, pid);
    begin_search(census, pid);
    return 0;
}

/* Searches it for some more sandboxes; *bytes is how much may still be searched. */
static void search_process(struct census *census, size_t *bytes)
{
    const size_t each = census->arguments.length + census->cgroup.length;

    for (; census->next && *bytes > 0; census->next = census->next->hh.next) {
        struct asked *asked = census->next;
        bool named = !census->unread && holds(&census->arguments, asked);
        bool is_in_cgroup = holds(&census->cgroup, asked);

        asked->has_process |=
            census->unread || named || (census->has_locked_arguments && is_in_cgroup);
        if (named && !asked->pid)
            asked->pid = census->pid;
        asked->has_cgroup |= census->unread_cgroup || is_in_cgroup;
        *bytes -= each < *bytes ? each : *bytes;
    }
}

/* ---- all of them ------------------------------------------------------------------------- */

int census_step(struct census *census)
{
    const uint64_t until_ns = clock_boottime() + STEP_NS;
    size_t bytes = STEP_BYTES;
    int r = 0;

    if (census->is_over)
        return 0;
    if (!census->processes)
        r = process_list_new(&census->processes);
    for (unsigned i = 0;
         r == 0 && i < PROCESSES_PER_STEP && bytes > 0 && (i == 0 || clock_boottime() < until_ns);
         i++) {
        if (!census->next) {
            pid_t pid;

            pid = census->again;
            census->again = 0;
            if (!pid)
                r = process_list_next(census->processes, &pid);
            if (r < 0 || !pid)
                return r;
            r = take_process(census, pid);
        }
        search_process(census, &bytes);
    }
    return r < 0 ? r : PROGRESS_MORE;
}

bool census_has_process(const struct census *census, const char *sandbox_id)
{
    const struct asked *asked = find(census, sandbox_id);

    return !asked || asked->has_process;
}

pid_t census_get_process(const struct census *census, const char *sandbox_id)
{
    const struct asked *asked = find(census, sandbox_id);

    return asked ? asked->pid : 0;
}

bool census_has_cgroup(const struct census *census, const char *sandbox_id)
{
    const struct asked *asked = find(census, sandbox_id);

    return !asked || asked->has_cgroup;
}

uint64_t census_kubelet_start(const struct census *census)
{
    return census->kubelet_start_ns;
}

bool census_sees_host(void)
{
    return namespaces_show_all_processes();
}
