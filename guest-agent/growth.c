/* SPDX-License-Identifier: Apache-2.0 */
/* growth.c - fork, ioctl, one struct through a pipe, wait.
 *
 * The child is forked from a program without threads, touches neither the loop nor the heap's
 * owners, and leaves by _exit(). It closes what it inherited, or a client's connection, or the pipe
 * that a report is read from, would stay open for as long as it runs. The pipe's end says that it
 * is over, however it came to that; waiting for a process that has closed its files takes no time
 * worth mentioning.
 */
#include "guest-agent/growth.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"

/* Another's resize is waited for this long. */
#define BUSY_PATIENCE_NS (5 * NSEC_PER_SEC)
#define BUSY_PAUSE_NS    (50 * NSEC_PER_MSEC)

struct growth {
    pid_t child;
    int pipe;
    struct loop_io io;
    growth_done *done; /* NULL: nobody wants to know */
    void *userdata;
    bool reported;
};

struct report {
    int outcome;
    struct error error;
};

static unsigned running;

static int grow_once(const struct volume *volume, struct error *error)
{
    cleanup(fd_closep) int directory = -1;
    struct filesystem filesystem;
    int r;

    if (volume->kind == FILESYSTEM_OTHER)
        return error_set(error, FILESYSTEM_UNSUPPORTED,
                         "%s is a file system that cannot be grown here", volume->file_system);
    r = volume_open(volume, &filesystem, &directory);
    if (r < 0)
        return error_set_errno(error, r, "cannot open %s", volume->mount_point);
    return filesystem_grow(directory, &filesystem, error);
}

int growth_run(const struct volume *volume, struct error *error)
{
    const struct timespec pause = {.tv_nsec = (long)BUSY_PAUSE_NS};
    uint64_t patience_ends = clock_boottime() + BUSY_PATIENCE_NS;
    int outcome = grow_once(volume, error);

    while (outcome == FILESYSTEM_BUSY && clock_boottime() < patience_ends) {
        (void)nanosleep(&pause, NULL);
        outcome = grow_once(volume, error);
    }
    return outcome;
}

static _Noreturn void child_main(const struct volume *volume, int pipe)
{
    struct report report = {0};

    (void)signal(SIGTERM, SIG_DFL); /* not the loop's handlers */
    (void)signal(SIGINT, SIG_DFL);
    if (dup2(pipe, STDIN_FILENO) < 0)
        _exit(EXIT_FAILURE);
    (void)close_range(STDIN_FILENO + 1, ~0U, 0);
    report.outcome = growth_run(volume, &report.error);
    if (write(STDIN_FILENO, &report, sizeof(report)) != sizeof(report))
        _exit(EXIT_FAILURE);
    _exit(EXIT_SUCCESS);
}

static void growth_release(struct growth *growth)
{
    loop_io_stop(&growth->io);
    fd_close(growth->pipe);
    free(growth);
}

static void on_report(struct loop_io *io, int events)
{
    struct growth *growth = container_of(io, struct growth, io);
    struct report report;
    ssize_t count = read(growth->pipe, &report, sizeof(report));

    (void)events;
    if (count < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    loop_io_stop(&growth->io);
    (void)waitpid(growth->child, NULL, 0);
    running--;
    growth->reported = true;
    if (count != sizeof(report)) {
        report.outcome = -ECHILD;
        (void)error_set(&report.error, -ECHILD, "the process that grows it has died");
    }
    if (growth->done)
        growth->done(growth, report.outcome, &report.error, growth->userdata);
    else
        growth_release(growth);
}

int growth_new(struct loop *loop, const struct volume *volume, growth_done *done, void *userdata,
               struct growth **ret_growth)
{
    struct growth *growth;
    int ends[2];

    if (running >= GROWTH_LIMIT)
        return -EAGAIN;
    growth = calloc(1, sizeof(*growth));
    if (!growth)
        return -ENOMEM;
    *growth = (struct growth){.pipe = -1, .done = done, .userdata = userdata};
    if (pipe2(ends, O_CLOEXEC) < 0) {
        int r = -errno;

        free(growth);
        return r;
    }
    growth->pipe = ends[0];
    growth->child = fork();
    if (growth->child == 0)
        child_main(volume, ends[1]);
    fd_close(ends[1]);
    if (growth->child < 0) {
        int r = -errno;

        growth_release(growth);
        return r;
    }
    running++;
    loop_io_start(loop, &growth->io, growth->pipe, LOOP_READ, on_report);
    *ret_growth = growth;
    return 0;
}

struct growth *growth_free(struct growth *growth)
{
    if (growth && growth->reported)
        growth_release(growth);
    else if (growth)
        growth->done = NULL;
    return NULL;
}

struct growth *growth_abandon(struct growth *growth)
{
    if (!growth)
        return NULL;
    if (!growth->reported) {
        (void)kill(growth->child, SIGKILL);
        running--;
    }
    growth_release(growth);
    return NULL;
}
