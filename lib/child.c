/* child.c - posix_spawn, a pipe and a pidfd.
 *
 * The end of the process decides, not that of the pipe: what it started may hold the pipe open for
 * ever. When the process has ended, what it has said by then is read, the rest of its group is
 * killed, and that is the answer.
 *
 * A killed process is reaped as soon as its pidfd says that it is dead. Only one that is freed
 * before that is waited for, and not for long: a process in a system call that does not end would
 * hold the daemon up. It then stays a zombie, which is all that is left of it.
 */
#include "lib/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"

enum { READ_BYTES = 16 * 1024, REAP_MILLISECONDS = 100 };

struct child {
    struct loop *loop;
    pid_t pid; /* 0: reaped */
    int pidfd;
    int pipe;
    struct loop_io ended, said;
    struct loop_timer deadline;
    struct buffer output;
    enum child_end end; /* why it was killed; EXITED: it was not */
    child_done *done;
    void *userdata;
};

/* ---- its output ---- */

/* 0, or 1: there is more than the limit. */
static int read_output(struct child *child)
{
    char bytes[READ_BYTES];

    for (;;) {
        ssize_t length = read(child->pipe, bytes, sizeof(bytes));

        if (length < 0 && errno == EINTR)
            continue;
        if (length <= 0) {
            if (length == 0)
                loop_io_stop(&child->said);
            return 0;
        }
        if (buffer_append(&child->output, bytes, (size_t)length) < 0)
            return 1;
    }
}

static void kill_group(const struct child *child)
{
    if (child->pid)
        (void)kill(-child->pid, SIGKILL);
}

static void end_by(struct child *child, enum child_end end)
{
    child->end = end;
    loop_io_stop(&child->said);
    loop_timer_stop(&child->deadline);
    kill_group(child);
}

static void on_said(struct loop_io *io, int events)
{
    struct child *child = container_of(io, struct child, said);

    (void)events;
    if (read_output(child) > 0)
        end_by(child, CHILD_FLOOD);
}

static void on_deadline(struct loop_timer *timer)
{
    end_by(container_of(timer, struct child, deadline), CHILD_TIMEOUT);
}

/* ---- its end ---- */

/* The group's number stays taken while its leader is not reaped, so it is killed before that. */
static int reap(struct child *child)
{
    int status = 0;

    kill_group(child);
    (void)waitpid(child->pid, &status, WNOHANG);
    child->pid = 0;
    return status;
}

static void on_ended(struct loop_io *io, int events)
{
    struct child *child = container_of(io, struct child, ended);
    enum child_end end;
    int status;

    (void)events;
    loop_io_stop(&child->ended);
    loop_io_stop(&child->said);
    loop_timer_stop(&child->deadline);
    if (child->end == CHILD_EXITED && read_output(child) > 0)
        child->end = CHILD_FLOOD;
    status = reap(child);
    end = child->end == CHILD_EXITED && WIFSIGNALED(status) ? CHILD_KILLED : child->end;
    child->done(child, end, end == CHILD_KILLED ? WTERMSIG(status) : WEXITSTATUS(status),
                &child->output, child->userdata);
}

/* ---- its beginning ---- */

static int prepare_files(posix_spawn_file_actions_t *files, int output)
{
    int r = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

    if (r == 0)
        r = posix_spawn_file_actions_adddup2(files, output, STDOUT_FILENO);
    if (r == 0)
        r = posix_spawn_file_actions_addopen(files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (r == 0)
        r = posix_spawn_file_actions_addchdir_np(files, "/");
    return r;
}

/* The daemon ignores some signals and its loop blocks some; a program expects neither. */
static int prepare_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    int r;

    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    r = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                 POSIX_SPAWN_SETSIGDEF);
    if (r == 0)
        r = posix_spawnattr_setpgroup(attributes, 0);
    if (r == 0)
        r = posix_spawnattr_setsigmask(attributes, &none);
    return r == 0 ? posix_spawnattr_setsigdefault(attributes, &all) : r;
}

/* Nothing writes to the arguments. */
static int spawn(const char *const *arguments, int output, pid_t *ret_pid)
{
    static char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    char *environment[] = {path, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    union {
        const char *const *constant;
        char *const *plain;
    } pointer = {.constant = arguments};
    int r;

    if (posix_spawn_file_actions_init(&files) != 0)
        return -ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        (void)posix_spawn_file_actions_destroy(&files);
        return -ENOMEM;
    }
    r = prepare_files(&files, output);
    if (r == 0)
        r = prepare_attributes(&attributes);
    if (r == 0)
        r = posix_spawn(ret_pid, arguments[0], &files, &attributes, pointer.plain, environment);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&files);
    return -r;
}

static int start(struct child *child, const char *const *arguments)
{
    cleanup(fd_closep) int output = -1;
    int ends[2], r;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    child->pipe = ends[0];
    output = ends[1];
    if (fcntl(child->pipe, F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    r = spawn(arguments, output, &child->pid);
    if (r < 0) {
        child->pid = 0;
        return r;
    }
    child->pidfd = pidfd_open(child->pid, 0);
    return child->pidfd < 0 ? -errno : 0;
}

int child_new(struct loop *loop, const struct child_request *request, child_done *done,
              void *userdata, struct child **ret_child)
{
    struct child *child = calloc(1, sizeof(*child));
    int r;

    if (!child)
        return -ENOMEM;
    child->loop = loop;
    child->pidfd = child->pipe = -1;
    child->done = done;
    child->userdata = userdata;
    buffer_init(&child->output, request->output_limit);
    r = start(child, request->arguments);
    if (r < 0) {
        child_free(child);
        return r;
    }
    loop_io_start(loop, &child->ended, child->pidfd, LOOP_READ, on_ended);
    loop_io_start(loop, &child->said, child->pipe, LOOP_READ, on_said);
    loop_timer_start(loop, &child->deadline, request->deadline_ns, on_deadline);
    *ret_child = child;
    return 0;
}

struct child *child_free(struct child *child)
{
    if (!child)
        return NULL;
    loop_io_stop(&child->ended);
    loop_io_stop(&child->said);
    loop_timer_stop(&child->deadline);
    if (child->pid) {
        kill_group(child);
        (void)poll(&(struct pollfd){.fd = child->pidfd, .events = POLLIN}, 1, REAP_MILLISECONDS);
        (void)reap(child);
    }
    fd_close(child->pidfd);
    fd_close(child->pipe);
    buffer_done(&child->output);
    free(child);
    return NULL;
}
