/* SPDX-License-Identifier: Apache-2.0 */
/* slow_write.c - see slow_write.h.
 *
 * The child holds nothing of the daemon's: it closes every descriptor but its own two before it
 * does anything, so that a lock, a socket or the database is never kept by a process that hangs. It
 * calls what is safe after fork(2) and ends by _exit().
 *
 * What the write came to arrives through a pipe. Its end means that the child has ended, or is
 * about to: waiting for it then costs nothing.
 */
#include "lib/slow_write.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"

enum { LEFT_BEHIND = 4, CHILD_FD = 3, CHILD_PIPE = 4 };

struct slow_write {
    struct loop_io io;
    struct loop_timer deadline;
    int pipe;
    pid_t pid; /* 0: waited for */
    slow_write_done *done;
    void *userdata;
};

static pid_t left_behind[LEFT_BEHIND]; /* killed, and not gone yet; 0: free */

static bool is_reaped(pid_t pid)
{
    return waitpid(pid, NULL, WNOHANG) != 0;
}

/* A place for one more that may have to be left behind. */
static pid_t *find_place(void)
{
    pid_t *place = NULL;

    for (unsigned i = 0; i < LEFT_BEHIND; i++) {
        if (left_behind[i] && is_reaped(left_behind[i]))
            left_behind[i] = 0;
        if (!left_behind[i])
            place = &left_behind[i];
    }
    return place;
}

static void end_child(struct slow_write *write)
{
    pid_t *place;

    if (!write->pid)
        return;
    (void)kill(write->pid, SIGKILL);
    place = find_place();
    if (!is_reaped(write->pid) && place)
        *place = write->pid;
    write->pid = 0;
}

static _Noreturn void run_child(int fd, int result_pipe, const char *text)
{
    int result = 0;

    /* Out of the way of the two numbers first, whichever these two have. */
    fd = fcntl(fd, F_DUPFD, CHILD_PIPE + 1);
    result_pipe = fcntl(result_pipe, F_DUPFD, CHILD_PIPE + 1);
    if (dup2(fd, CHILD_FD) < 0 || dup2(result_pipe, CHILD_PIPE) < 0 ||
        close_range(CHILD_PIPE + 1, ~0U, 0) < 0 || close_range(0, 2, 0) < 0)
        _exit(1);
    if (write(CHILD_FD, text, strlen(text)) < 0)
        result = -errno;
    _exit(write(CHILD_PIPE, &result, sizeof(result)) == sizeof(result) ? 0 : 1);
}

static void finish(struct slow_write *write, int result)
{
    loop_io_stop(&write->io);
    loop_timer_stop(&write->deadline);
    write->done(write, result, write->userdata);
}

static void on_result(struct loop_io *io, int events)
{
    struct slow_write *write = container_of(io, struct slow_write, io);
    int result = -EIO;

    (void)events;
    if (read(write->pipe, &result, sizeof(result)) != sizeof(result))
        result = -EIO; /* it was killed, or could not even begin */
    (void)waitpid(write->pid, NULL, 0);
    write->pid = 0;
    finish(write, result);
}

static void on_deadline(struct loop_timer *timer)
{
    struct slow_write *write = container_of(timer, struct slow_write, deadline);

    end_child(write);
    finish(write, -ETIMEDOUT);
}

static int start_child(struct slow_write *write, int fd, const char *text)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    write->pid = fork();
    if (write->pid == 0)
        run_child(fd, ends[1], text);
    fd_close(ends[1]);
    write->pipe = ends[0];
    return write->pid < 0 ? -errno : 0;
}

int slow_write_new(struct loop *loop, int fd, const char *text, uint64_t deadline_ns,
                   slow_write_done *done, void *userdata, struct slow_write **ret_write)
{
    struct slow_write *write;
    int r;

    if (!find_place())
        return -EBUSY;
    write = calloc(1, sizeof(*write));
    if (!write)
        return -ENOMEM;
    write->pipe = -1;
    write->done = done;
    write->userdata = userdata;
    r = start_child(write, fd, text);
    if (r < 0) {
        write->pid = 0;
        slow_write_free(write);
        return r;
    }
    loop_io_start(loop, &write->io, write->pipe, LOOP_READ, on_result);
    loop_timer_start(loop, &write->deadline, deadline_ns, on_deadline);
    *ret_write = write;
    return 0;
}

struct slow_write *slow_write_free(struct slow_write *write)
{
    if (!write)
        return NULL;
    loop_io_stop(&write->io);
    loop_timer_stop(&write->deadline);
    end_child(write);
    fd_close(write->pipe);
    free(write);
    return NULL;
}
