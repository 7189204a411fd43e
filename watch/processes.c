/* SPDX-License-Identifier: Apache-2.0 */
/* processes.c - one pidfd per sandbox, readable when its VMM has ended.
 *
 * A pidfd stays with its process: a process that reuses the pid is not reported. A process that has
 * ended but has not been waited for counts as ended. After the report the sandbox is no longer
 * watched; observing it again shows whether there is a new process to watch.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>

#include "lib/cleanup.h"
#include "lib/collections.h"
#include "watch/watch.h"

enum { SANDBOX_ID_BYTES = 129 };

struct process {
    struct watch_processes *watch;
    struct loop_io io;
    int pidfd;
    pid_t pid;
    UT_hash_handle by_sandbox;
    char sandbox_id[];
};

struct watch_processes {
    struct loop *loop;
    void (*exited)(void *userdata, const char *sandbox_id, pid_t pid);
    void *userdata;
    struct watch_counters counters;
    struct process *processes;
};

static struct process *find(const struct watch_processes *watch, const char *sandbox_id)
{
    struct process *process;

    HASH_FIND(by_sandbox, watch->processes, sandbox_id, strlen(sandbox_id), process);
    return process;
}

static void forget(struct process *process)
{
    HASH_DELETE(by_sandbox, process->watch->processes, process);
    loop_io_stop(&process->io);
    fd_close(process->pidfd);
    free(process);
}

static void on_exit_of(struct loop_io *io, int events)
{
    struct process *process = container_of(io, struct process, io);
    struct watch_processes *watch = process->watch;
    char sandbox_id[SANDBOX_ID_BYTES];
    pid_t pid = process->pid;

    (void)events;
    memcpy(sandbox_id, process->sandbox_id, strlen(process->sandbox_id) + 1);
    forget(process);
    watch->counters.events++;
    watch->exited(watch->userdata, sandbox_id, pid);
}

int watch_processes_new(struct loop *loop,
                        void (*exited)(void *userdata, const char *sandbox_id, pid_t pid),
                        void *userdata, struct watch_processes **ret_watch)
{
    struct watch_processes *watch = calloc(1, sizeof(*watch));

    if (!watch)
        return -ENOMEM;
    watch->loop = loop;
    watch->exited = exited;
    watch->userdata = userdata;
    watch->counters.up = true;
    *ret_watch = watch;
    return 0;
}

struct watch_processes *watch_processes_free(struct watch_processes *watch)
{
    struct process *process, *next;

    if (!watch)
        return NULL;
    HASH_ITER (by_sandbox, watch->processes, process, next) {
        forget(process);
    }
    free(watch);
    return NULL;
}

/* Takes over the descriptor, also on failure. */
static int insert(struct watch_processes *watch, const char *sandbox_id, pid_t pid, int pidfd)
{
    size_t length = strlen(sandbox_id);
    struct process *process = calloc(1, sizeof(*process) + length + 1);

    if (!process) {
        fd_close(pidfd);
        return -ENOMEM;
    }
    process->watch = watch;
    process->pidfd = pidfd;
    process->pid = pid;
    memcpy(process->sandbox_id, sandbox_id, length + 1);
    HASH_ADD(by_sandbox, watch->processes, sandbox_id[0], length, process);
    if (!process->by_sandbox.tbl) {
        fd_close(pidfd);
        free(process);
        return -ENOMEM;
    }
    loop_io_start(watch->loop, &process->io, pidfd, LOOP_READ, on_exit_of);
    return 0;
}

int watch_processes_add(struct watch_processes *watch, const char *sandbox_id, pid_t pid)
{
    struct process *earlier = find(watch, sandbox_id);
    int pidfd;

    if (earlier && earlier->pid == pid)
        return WATCH_PROCESS_WATCHED;
    if (strlen(sandbox_id) >= SANDBOX_ID_BYTES)
        return -EINVAL;
    if (pid <= 0)
        return WATCH_PROCESS_GONE;
    pidfd = pidfd_open(pid, 0);
    if (pidfd < 0)
        return errno == ESRCH ? WATCH_PROCESS_GONE : -errno;
    if (earlier)
        forget(earlier);
    return insert(watch, sandbox_id, pid, pidfd);
}

pid_t watch_processes_remove(struct watch_processes *watch, const char *sandbox_id)
{
    struct process *process = find(watch, sandbox_id);
    struct pollfd poll_fd = {.events = POLLIN};
    pid_t ended = 0;

    if (!process)
        return 0;
    poll_fd.fd = process->pidfd;
    if (poll(&poll_fd, 1, 0) == 1)
        ended = process->pid;
    forget(process);
    return ended;
}

const struct watch_counters *watch_processes_counters(const struct watch_processes *watch)
{
    return &watch->counters;
}
