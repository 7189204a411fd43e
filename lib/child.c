/* SPDX-License-Identifier: Apache-2.0 */
/* child.c - fork, a pipe and a pidfd.
 *
 * fork(2) is used because posix_spawn(3) can neither change the root nor drop capabilities. It is
 * safe because the daemon and the guest agent have no threads whose locks a child could inherit.
 *
 * A child has ended when its process has, not when the pipe is closed: a process that it started
 * may hold the pipe open for ever. At the end of the process its output so far is read, the rest of
 * its process group is killed, and `done` is called.
 *
 * A killed process is reaped as soon as its pidfd says that it is dead. One in a system call that
 * does not end is not waited for longer than REAP_MILLISECONDS: it is left behind, and reaped when
 * a later child is started. One disk that does not answer has one such process: no other is begun
 * for the same subject. And there are bounds on those that have one, and on those that have none:
 * either may hang without keeping the other from beginning.
 */
#include "lib/child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"

enum { READ_BYTES = 16 * 1024, REAP_MILLISECONDS = 100 };

/* No other is begun where so many with a subject, or without, are left behind. More may be that
 * were begun at once. */
enum { NAMED = 28, NAMELESS = 4 };

/* A process that was killed and is not dead yet. */
struct left {
    struct left *next;
    pid_t pid;
    uint64_t subject;
};

struct child {
    struct loop *loop;
    pid_t pid;         /* 0: reaped, or left behind */
    struct left *left; /* for the case that it is left behind; NULL: it was */
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

/* Whether it stayed within the limit. */
static bool read_output(struct child *child)
{
    char bytes[READ_BYTES];

    for (;;) {
        ssize_t length = read(child->pipe, bytes, sizeof(bytes));

        if (length < 0 && errno == EINTR)
            continue;
        if (length <= 0) {
            if (length == 0)
                loop_io_stop(&child->said);
            return true;
        }
        if (buffer_append(&child->output, bytes, (size_t)length) < 0)
            return false;
    }
}

static void kill_group(const struct child *child)
{
    if (child->pid)
        (void)kill(-child->pid, SIGKILL);
}

static void on_unkillable(struct loop_timer *timer);

static void end_by(struct child *child, enum child_end end)
{
    child->end = end;
    loop_io_stop(&child->said);
    loop_timer_start(child->loop, &child->deadline, REAP_MILLISECONDS * NSEC_PER_MSEC,
                     on_unkillable);
    kill_group(child);
}

static void on_said(struct loop_io *io, int events)
{
    struct child *child = container_of(io, struct child, said);

    (void)events;
    if (!read_output(child))
        end_by(child, CHILD_FLOOD);
}

static void on_deadline(struct loop_timer *timer)
{
    end_by(container_of(timer, struct child, deadline), CHILD_TIMEOUT);
}

void child_kill(struct child *child)
{
    end_by(child, CHILD_TIMEOUT);
}

/* ---- its end ---- */

static struct left *left_behind;

/* Reaps those that are dead by now. */
static int find_room(uint64_t subject)
{
    unsigned named = 0, nameless = 0;
    bool still_hangs = false;

    for (struct left **link = &left_behind; *link;) {
        struct left *left = *link;

        if (waitpid(left->pid, NULL, WNOHANG) != 0) {
            *link = left->next;
            free(left);
            continue;
        }
        still_hangs = still_hangs || (subject && left->subject == subject);
        named += left->subject != 0;
        nameless += left->subject == 0;
        link = &left->next;
    }
    if (still_hangs)
        return CHILD_STILL_HANGS;
    return (subject ? named >= NAMED : nameless >= NAMELESS) ? CHILD_TOO_MANY_HANG : 0;
}

const char *child_explain(int failure)
{
    switch (failure) {
    case CHILD_STILL_HANGS:
        return "an earlier process for it still waits in the kernel: its storage does not answer";
    case CHILD_TOO_MANY_HANG:
        return "no process is started for it: too many that were killed still wait in the kernel, "
               "for storage that does not answer";
    default:
        return strerror(-failure);
    }
}

/* FNV-1a. The highest bit tells it from a device's number. */
uint64_t child_subject(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
    return hash | UINT64_C(1) << 63;
}

/* The group's number stays taken while its leader is not reaped, so it is killed before that. */
static int reap(struct child *child)
{
    int status = 0;

    kill_group(child);
    if (waitpid(child->pid, &status, WNOHANG) == 0) {
        child->left->pid = child->pid;
        child->left->next = left_behind;
        left_behind = take_pointer(&child->left);
    }
    child->pid = 0;
    return status;
}

static void finish(struct child *child)
{
    enum child_end end;
    int status;

    loop_io_stop(&child->ended);
    loop_io_stop(&child->said);
    loop_timer_stop(&child->deadline);
    if (child->end == CHILD_EXITED && !read_output(child))
        child->end = CHILD_FLOOD;
    status = reap(child);
    end = child->end == CHILD_EXITED && WIFSIGNALED(status) ? CHILD_KILLED : child->end;
    child->done(child, end, end == CHILD_KILLED ? WTERMSIG(status) : WEXITSTATUS(status),
                &child->output, child->userdata);
}

static void on_ended(struct loop_io *io, int events)
{
    (void)events;
    finish(container_of(io, struct child, ended));
}

static void on_unkillable(struct loop_timer *timer)
{
    finish(container_of(timer, struct child, deadline));
}

/* ---- its beginning ---- */

/* From here to become() in the new process: only what is safe after fork(2). */

/* A lock, a socket or the database is never kept open by a process that hangs. The standard
 * descriptors of the parent are in use, if only by its loop, so neither of these two is one. */
static int keep_files(int input, int output)
{
    if ((input >= 0 && dup2(input, STDIN_FILENO) < 0) || dup2(output, STDOUT_FILENO) < 0)
        return -errno;
    if (input < 0)
        (void)close(STDIN_FILENO);
    return 0;
}

/* Root regains its capabilities with each execve(2), except where it may not gain any: hence
 * no_new_privs. */
static int drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &header, none) < 0)
        return -errno;
    return 0;
}

/* The daemon ignores some signals and its loop blocks some; a program expects neither. */
static int reset_signals(void)
{
    const struct sigaction by_default = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int number = 1; number < NSIG; number++)
        (void)sigaction(number, &by_default, NULL); /* KILL and STOP can't be, and need not */
    (void)sigemptyset(&none);
    return sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? -errno : 0;
}

static int prepare_program(const struct child_request *request, int output)
{
    int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int errors = open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (input < 0 || errors < 0 || dup2(input, STDIN_FILENO) < 0 ||
        dup2(output, STDOUT_FILENO) < 0 || dup2(errors, STDERR_FILENO) < 0)
        return -errno;
    if (request->root >= 0 && (fchdir(request->root) < 0 || chroot(".") < 0))
        return -errno;
    return chdir("/") < 0 ? -errno : drop_capabilities();
}

/* Closing `report` says that the function runs. */
static _Noreturn void call(const struct child_request *request, int report)
{
    fd_close(report);
    (void)close_range(STDERR_FILENO, ~0U, 0);
    _exit(request->function(request->argument));
}

/* Nothing writes to the arguments. report: where the reason for a failure is written. */
static _Noreturn void become(const struct child_request *request, int output, int report)
{
    char *environment[] = {NULL};
    union {
        const char *const *constant;
        char *const *plain;
    } arguments = {.constant = request->arguments};
    int r = setpgid(0, 0) < 0 ? -errno : 0;

    if (r == 0)
        r = reset_signals();
    if (r == 0)
        r = request->function ? keep_files(request->input, output)
                              : prepare_program(request, output);
    if (r == 0 && request->function)
        call(request, report);
    if (r == 0) {
        (void)execve(request->arguments[0], arguments.plain, environment);
        r = -errno;
    }
    (void)!write(report, &r, sizeof(r));
    _exit(127);
}

/* All signals are blocked meanwhile, so that no handler of the daemon runs in the child. */
static pid_t fork_quietly(const struct child_request *request, int output, int report)
{
    sigset_t all, before;
    pid_t pid;

    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0)
        become(request, output, report);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}

static int spawn(const struct child_request *request, int output, pid_t *ret_pid)
{
    cleanup(fd_closep) int heard = -1;
    cleanup(fd_closep) int report = -1;
    int ends[2], r = 0;
    ssize_t length;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    heard = ends[0];
    report = ends[1];
    pid = fork_quietly(request, output, report);
    if (pid < 0)
        return -errno;
    fd_close(report);
    report = -1;
    /* The program runs once the other end is closed without a word. */
    do
        length = read(heard, &r, sizeof(r));
    while (length < 0 && errno == EINTR);
    if (length != (ssize_t)sizeof(r))
        r = 0;
    if (r < 0)
        (void)waitpid(pid, NULL, 0);
    else
        *ret_pid = pid;
    return r;
}

static int start(struct child *child, const struct child_request *request)
{
    cleanup(fd_closep) int output = -1;
    int ends[2], r;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    child->pipe = ends[0];
    output = ends[1];
    if (fcntl(child->pipe, F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    r = spawn(request, output, &child->pid);
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
    struct child *child;
    int r = find_room(request->subject);

    if (r < 0)
        return r;
    child = calloc(1, sizeof(*child));
    if (!child)
        return -ENOMEM;
    child->left = calloc(1, sizeof(*child->left));
    if (!child->left) {
        free(child);
        return -ENOMEM;
    }
    child->left->subject = request->subject;
    child->loop = loop;
    child->pidfd = child->pipe = -1;
    child->done = done;
    child->userdata = userdata;
    buffer_init(&child->output, request->output_limit);
    r = start(child, request);
    if (r < 0) {
        child_free(child);
        return r;
    }
    loop_io_start(loop, &child->ended, child->pidfd, LOOP_READ, on_ended);
    loop_io_start(loop, &child->said, child->pipe, LOOP_READ, on_said);
    if (request->allowed_ns)
        loop_timer_start(loop, &child->deadline, request->allowed_ns, on_deadline);
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
    free(child->left);
    free(child);
    return NULL;
}
