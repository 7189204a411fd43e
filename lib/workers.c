/* SPDX-License-Identifier: Apache-2.0 */
/* workers.c - see workers.h.
 *
 * Daemon, nursery and workers are one image, so a function has the same address in all of them, and
 * messages are plain structs. The nursery forks a worker for each byte that it gets, and sends back
 * the worker's socket and pidfd. It reaps only before it forks, so that a pidfd can be had of a
 * worker that has ended at once.
 *
 * A fixed number of workers fails: sixteen hung VMMs would hold up all others. So a worker that has
 * been silent for SILENT_NS while a job waits no longer counts, and another one is made, up to
 * WORKERS_MOST. The last of them are only for short jobs.
 */
#include "lib/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/collections.h"
#include "lib/process.h"

enum {
    ONLY = PROCESS_HELPER_SOCKET, /* of a nursery and a worker */
    MESSAGE_BYTES = 64 * 1024,
    MESSAGE_DESCRIPTORS = JOB_DESCRIPTORS + 1, /* the last one is a memfd */
    FOR_SHORT_JOBS = 8,
    SUBJECTS_HANG = 28,    /* so many dying workers have a subject, at most */
    PROCESSOR_SECONDS = 5, /* of one job, unless it says otherwise */
};
static const uint64_t SILENT_NS = 50 * NSEC_PER_MSEC, HANGS_NS = NSEC_PER_SEC,
                      GRACE_NS = 200 * NSEC_PER_MSEC, SHORT_NS = 5 * NSEC_PER_SEC;

/* What a header announces follows it, or is in the memfd that comes last. */
struct request_header {
    job_act *act;
    uint64_t deadline_ns;
    uint64_t length;
    bool is_ahead;
    unsigned processor_s;
};
/* A message of one byte, in the place of a request: the job that was started ahead may act. */
static const char GO[1];

struct reply_header {
    uint64_t length;
};
/* In the place of a length: there is only a descriptor, and the reply is still to come. */
static const uint64_t ONLY_GIVES = UINT64_MAX;

/* ---- messages with descriptors ---- */

union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(MESSAGE_DESCRIPTORS * sizeof(int))];
};

static int send_message(int socket, struct iovec *pieces, size_t piece_count, const int *fds,
                        size_t fd_count)
{
    union control control = {.bytes = {0}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = piece_count};

    if (fd_count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, fd_count * sizeof(int));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

enum { NOTHING_YET = -EAGAIN, MESSAGE_CUT = -EMSGSIZE };

/* Returns the length, 0 at the end of the connection, NOTHING_YET, or another -errno; CUT for
 * a message that is cut, also by the limit of open files. ret_fds: the descriptors that came, then
 * -1. */
static ssize_t receive_message(int socket, void *data, size_t size, int flags,
                               int ret_fds[static MESSAGE_DESCRIPTORS])
{
    union control control;
    struct iovec bytes = {data, size};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t length = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = length >= 0 ? CMSG_FIRSTHDR(&message) : NULL;

    for (size_t i = 0; i < MESSAGE_DESCRIPTORS; i++)
        ret_fds[i] = -1;
    if (length < 0)
        return -errno;
    if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len <= sizeof(control.bytes))
        memcpy(ret_fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    return message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? MESSAGE_CUT : length;
}

static void close_all(int fds[static MESSAGE_DESCRIPTORS])
{
    for (size_t i = 0; i < MESSAGE_DESCRIPTORS; i++)
        fd_close(take_fd(&fds[i]));
}

static int last_of(int fds[static MESSAGE_DESCRIPTORS])
{
    int last = -1;

    for (size_t i = 0; i < MESSAGE_DESCRIPTORS && fds[i] >= 0; i++)
        last = (int)i;
    return last < 0 ? -1 : take_fd(&fds[last]);
}

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

/* A sealed memfd, or -errno. */
static int memory_make(const void *data, size_t length)
{
    cleanup(fd_closep) int fd = memfd_create("crustd-job", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    for (size_t written = 0; fd >= 0 && written < length;) {
        ssize_t n = write(fd, (const char *)data + written, length - written);

        if (n < 0)
            return -errno;
        written += (size_t)n;
    }
    if (fd < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return -errno;
    return take_fd(&fd);
}

/* Reads what is in a memfd, whose size cannot change any more. */
static void *memory_read(int fd, uint64_t length)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;
    void *bytes;

    if (length == 0 || length > JOB_REPLY_BYTES || seals < 0 || (seals & SEALS) != SEALS ||
        fstat(fd, &st) < 0 || (uint64_t)st.st_size != length)
        return NULL;
    bytes = malloc(length);
    if (bytes && pread(fd, bytes, length, 0) != (ssize_t)length)
        free(take_pointer(&bytes));
    return bytes;
}

/* ---- in a worker ---- */

static bool is_ahead; /* the job, and has not heard yet that it may act */

void job_await_go(void)
{
    char byte;

    if (is_ahead && recv(ONLY, &byte, sizeof(byte), 0) != sizeof(GO))
        _exit(0); /* the daemon is gone */
    is_ahead = false;
}

static int send_reply(const struct buffer *reply)
{
    const struct reply_header header = {.length = reply->length};
    struct iovec pieces[] = {{(void *)(uintptr_t)&header, sizeof(header)},
                             {(void *)(uintptr_t)buffer_text(reply), reply->length}};
    const bool is_large = sizeof(header) + reply->length > MESSAGE_BYTES;
    cleanup(fd_closep) int fd = is_large ? memory_make(reply->data, reply->length) : -1;

    if (is_large && fd < 0)
        return fd;
    return send_message(ONLY, pieces, is_large ? 1 : array_length(pieces), &fd, is_large);
}

/* The worker has closed it when the reply comes, so that the daemon has the only copy. */
int job_give(int fd)
{
    struct reply_header header = {.length = ONLY_GIVES};
    int r = send_message(ONLY, &(struct iovec){&header, sizeof(header)}, 1, &fd, 1);

    fd_close(fd);
    return r;
}

/* A job that computes without end is ended by SIGXCPU, also before its deadline. */
static void limit_processor_time(unsigned seconds)
{
    struct rusage used;

    if (getrusage(RUSAGE_SELF, &used) == 0)
        (void)setrlimit(
            RLIMIT_CPU,
            &(struct rlimit){(rlim_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + seconds,
                             RLIM_INFINITY});
}

static void work(void)
{
    static unsigned char message[MESSAGE_BYTES];
    struct buffer reply = BUFFER_INIT(JOB_REPLY_BYTES);

    for (;;) {
        struct request_header header;
        cleanup(freep) void *memory = NULL;
        int fds[MESSAGE_DESCRIPTORS];
        struct job_input input = {.request = message + sizeof(header)};
        ssize_t length = receive_message(ONLY, message, sizeof(message), 0, fds);

        if (length == sizeof(GO))
            continue; /* for a job that had nothing to change */
        if (length < (ssize_t)sizeof(header))
            return;
        memcpy(&header, message, sizeof(header));
        if (header.length > (size_t)length - sizeof(header)) {
            cleanup(fd_closep) int fd = last_of(fds);

            input.request = memory = memory_read(fd, header.length);
            if (!memory)
                _exit(1);
        }
        memcpy(input.fds, fds, sizeof(input.fds));
        input.length = header.length;
        input.deadline_ns = header.deadline_ns;
        is_ahead = header.is_ahead;
        limit_processor_time(header.processor_s);
        header.act(&input, &reply);
        close_all(fds);
        if (buffer_error(&reply) < 0 || send_reply(&reply) < 0)
            _exit(1);
        buffer_done(&reply);
    }
}

/* ---- in the nursery ---- */

/* Without a pidfd the worker ends with its socket. The daemon orders another one. */
static void nurse(void)
{
    char byte;

    if (confine_workers() < 0)
        return;
    while (recv(ONLY, &byte, 1, 0) == 1) {
        struct iovec piece = {&byte, 1};
        int ends[2] = {-1, -1};
        pid_t pid;

        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (process_fork_helper("crustd-worker", work, &pid, &ends[0]) == 0)
            ends[1] = (int)syscall(SYS_pidfd_open, pid, 0);
        if (send_message(ONLY, &piece, 1, ends, ends[1] < 0 ? 0 : 2) < 0)
            return;
        fd_close(ends[0]);
        fd_close(ends[1]);
    }
}

/* ---- in the daemon: workers ---- */

struct worker {
    struct worker *prev, *next;
    struct loop_io io; /* of the socket; of the pidfd while it dies */
    struct job *job;   /* NULL: it is ready, or dies */
    uint64_t since_ns; /* when it got the job, or was killed */
    bool is_silent;    /* another one was ordered in its place */
    uint64_t subject;  /* of its last job */
    int socket, pidfd;
    int given; /* by the job, for its owner; -1 */
};

static struct pool {
    struct loop *loop;
    pid_t parent; /* the nursery */
    int socket;   /* to it; -1: none */
    struct loop_io nursery;
    void (*lost)(void *userdata);
    void *userdata;
    struct worker *ready, *busy, *dying; /* lists */
    unsigned ordered;                    /* and not here yet */
    struct job *waiting;                 /* the one that has waited longest is the first */
    struct loop_timer silence;           /* while jobs wait */
    int given;                           /* see job_take_given() */
    uint64_t ended[JOB_WAITED + 1];      /* jobs, by their end */
} pool = {.socket = -1, .given = -1};

int workers_fork_nursery(void)
{
    return process_fork_helper("crustd-nursery", nurse, &pool.parent, &pool.socket);
}

pid_t workers_parent(void)
{
    return pool.parent;
}

static unsigned count(const struct worker *list)
{
    const struct worker *worker;
    unsigned workers;

    DL_COUNT(list, worker, workers);
    return workers;
}

/* Those that can have a job, now or later. */
static unsigned worker_count(void)
{
    return count(pool.ready) + count(pool.busy) + pool.ordered;
}

static bool order_worker(unsigned most)
{
    if (worker_count() + count(pool.dying) >= most ||
        send(pool.socket, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        return false;
    pool.ordered++;
    return true;
}

static void worker_free(struct worker *worker)
{
    loop_io_stop(&worker->io);
    fd_close(worker->socket);
    fd_close(worker->pidfd);
    fd_close(worker->given);
    free(worker);
}

static void on_dead(struct loop_io *io, int events)
{
    struct worker *worker = container_of(io, struct worker, io);

    (void)events;
    DL_DELETE(pool.dying, worker);
    worker_free(worker);
}

/* For a worker that is in no list. One that the kernel holds counts until it is dead. */
static void worker_kill(struct worker *worker)
{
    (void)syscall(SYS_pidfd_send_signal, worker->pidfd, SIGKILL, NULL, 0);
    worker->job = NULL;
    worker->since_ns = clock_boottime();
    fd_close(take_fd(&worker->socket));
    fd_close(take_fd(&worker->given));
    DL_APPEND(pool.dying, worker);
    loop_io_start(pool.loop, &worker->io, worker->pidfd, LOOP_READ, on_dead);
}

/* ---- jobs ---- */

static void job_forget(struct job *job)
{
    loop_timer_stop(&job->deadline);
    free(take_pointer(&job->message));
    fd_close(take_fd(&job->memory));
    job->is_running = false;
}

static void job_finish(struct job *job, enum job_end end, const void *reply, size_t length)
{
    job_forget(job);
    job->worker = NULL;
    pool.ended[end]++;
    job->request.done(job, end, reply, length);
}

/* Takes it back from its worker, which is killed, or from those that wait. */
static void job_take_back(struct job *job)
{
    if (job->worker) {
        DL_DELETE(pool.busy, job->worker);
        worker_kill(take_pointer(&job->worker));
    } else {
        DL_DELETE(pool.waiting, job);
    }
}

/* What was not sent never comes: the end of the connection tells both of it. */
static void send_or_end(struct worker *worker, struct iovec piece, const int *fds, size_t fd_count)
{
    if (send_message(worker->socket, &piece, 1, fds, fd_count) < 0)
        (void)shutdown(worker->socket, SHUT_RDWR);
}

static void assign(struct worker *worker, struct job *job)
{
    struct iovec piece = {job->message, sizeof(struct request_header)};
    int fds[MESSAGE_DESCRIPTORS];
    size_t fd_count = 0;

    for (; fd_count < JOB_DESCRIPTORS && job->request.fds[fd_count] >= 0; fd_count++)
        fds[fd_count] = job->request.fds[fd_count];
    if (job->memory >= 0)
        fds[fd_count++] = job->memory;
    else
        piece.iov_len += job->request.length;
    worker->job = job;
    worker->since_ns = clock_boottime();
    worker->is_silent = false;
    worker->subject = job->request.subject;
    job->worker = worker;
    DL_APPEND(pool.busy, worker);
    send_or_end(worker, piece, fds, fd_count);
}

/* The worker is in no list. It is for the job that has waited longest, or one to come. */
static void worker_release(struct worker *worker)
{
    struct job *job = pool.waiting;

    worker->job = NULL;
    if (job) {
        DL_DELETE(pool.waiting, job);
        assign(worker, job);
    } else if (count(pool.ready) < WORKERS_READY) {
        DL_PREPEND(pool.ready, worker);
    } else {
        worker_kill(worker);
    }
}

static void on_reply(struct loop_io *io, int events)
{
    static unsigned char message[MESSAGE_BYTES];
    struct worker *worker = container_of(io, struct worker, io);
    struct job *job = worker->job;
    struct reply_header header = {0};
    int fds[MESSAGE_DESCRIPTORS];
    cleanup(freep) void *memory = NULL;
    const void *reply = NULL;
    ssize_t length = receive_message(worker->socket, message, sizeof(message), MSG_DONTWAIT, fds);

    (void)events;
    if (length == NOTHING_YET)
        return;
    if (length >= (ssize_t)sizeof(header)) {
        memcpy(&header, message, sizeof(header));
        if (job && header.length == ONLY_GIVES && fds[0] >= 0 && worker->given < 0) {
            worker->given = take_fd(&fds[0]);
            close_all(fds);
            return;
        }
        if (fds[0] >= 0)
            reply = memory = memory_read(fds[0], header.length);
        else if (header.length == (size_t)length - sizeof(header))
            reply = message + sizeof(header);
    }
    close_all(fds);
    pool.given = take_fd(&worker->given);
    if (job)
        DL_DELETE(pool.busy, worker);
    else
        DL_DELETE(pool.ready, worker);
    if (job && reply)
        worker_release(worker);
    else
        worker_kill(worker);
    if (job)
        job_finish(job, reply ? JOB_ANSWERED : JOB_DIED, reply, header.length);
    fd_close(take_fd(&pool.given));
}

int job_take_given(void)
{
    return take_fd(&pool.given);
}

static void on_deadline(struct loop_timer *timer)
{
    struct job *job = container_of(timer, struct job, deadline);
    enum job_end end = job->worker ? JOB_LATE : JOB_WAITED;

    job_take_back(job);
    job_finish(job, end, NULL, 0);
}

/* Orders another worker for each that is silent, while jobs wait. */
static void on_silence(struct loop_timer *timer)
{
    const uint64_t now_ns = clock_boottime();
    unsigned most = WORKERS_MOST - FOR_SHORT_JOBS, wanted = 0;

    for (const struct job *job = pool.waiting; job; job = job->next, wanted++)
        if (job->request.allowed_ns <= SHORT_NS)
            most = WORKERS_MOST;
    for (struct worker *worker = pool.busy; worker && wanted > pool.ordered; worker = worker->next)
        if (!worker->is_silent && now_ns - worker->since_ns >= SILENT_NS)
            worker->is_silent = order_worker(most);
    if (worker_count() < WORKERS_READY)
        (void)order_worker(most);
    if (pool.waiting)
        loop_timer_start(pool.loop, timer, SILENT_NS / 5, on_silence);
}

static void on_born(struct loop_io *io, int events)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    int fds[MESSAGE_DESCRIPTORS];
    char byte;
    ssize_t length = receive_message(pool.socket, &byte, 1, MSG_DONTWAIT, fds);

    (void)io, (void)events;
    if (length == NOTHING_YET || !worker || fds[1] < 0) {
        close_all(fds);
        free(worker);
        if (length > 0 || length == MESSAGE_CUT)
            pool.ordered--; /* another one is ordered when it is needed */
        else if (length != NOTHING_YET) {
            loop_io_stop(&pool.nursery);
            pool.lost(pool.userdata);
        }
        return;
    }
    pool.ordered--;
    worker->socket = fds[0];
    worker->pidfd = fds[1];
    worker->given = -1;
    loop_io_start(pool.loop, &worker->io, worker->socket, LOOP_READ, on_reply);
    worker_release(worker);
}

void workers_start(struct loop *loop, void (*lost)(void *userdata), void *userdata)
{
    pool.loop = loop;
    pool.lost = lost;
    pool.userdata = userdata;
    loop_io_start(loop, &pool.nursery, pool.socket, LOOP_READ, on_born);
    for (unsigned i = 0; i < WORKERS_READY; i++)
        (void)order_worker(WORKERS_MOST);
}

void workers_stop(void)
{
    struct worker **lists[] = {&pool.ready, &pool.busy, &pool.dying};

    loop_io_stop(&pool.nursery);
    loop_timer_stop(&pool.silence);
    for (size_t i = 0; i < array_length(lists); i++)
        while (*lists[i]) {
            struct worker *worker = *lists[i];

            *lists[i] = worker->next;
            (void)syscall(SYS_pidfd_send_signal, worker->pidfd, SIGKILL, NULL, 0);
            worker_free(worker);
        }
    fd_close(take_fd(&pool.socket));
    pool = (struct pool){.socket = -1, .given = -1};
}

/* 0 or -errno. */
static int job_write(struct job *job, const struct job_request *request)
{
    const struct request_header header = {
        request->act, clock_boottime() + request->allowed_ns, request->length, request->is_ahead,
        request->processor_s ? request->processor_s : PROCESSOR_SECONDS};
    const bool is_large = sizeof(header) + request->length > MESSAGE_BYTES;

    if (request->length > JOB_REQUEST_BYTES)
        return -EMSGSIZE;
    job->memory = is_large ? memory_make(request->data, request->length) : -1;
    if (is_large && job->memory < 0)
        return job->memory;
    job->message = malloc(sizeof(header) + (is_large ? 0 : request->length));
    if (!job->message) {
        fd_close(take_fd(&job->memory));
        return -ENOMEM;
    }
    memcpy(job->message, &header, sizeof(header));
    if (!is_large && request->length > 0)
        memcpy((char *)job->message + sizeof(header), request->data, request->length);
    return 0;
}

/* A killed worker that the kernel still holds gets no second one for its subject, and all of them
 * leave some to others. */
static int check_subject(uint64_t subject)
{
    const uint64_t now_ns = clock_boottime();
    unsigned hanging = 0;

    for (const struct worker *worker = pool.dying; subject && worker; worker = worker->next)
        if (worker->subject && now_ns - worker->since_ns >= HANGS_NS) {
            if (worker->subject == subject)
                return CHILD_STILL_HANGS;
            hanging++;
        }
    return hanging < SUBJECTS_HANG ? 0 : CHILD_TOO_MANY_HANG;
}

int job_start(struct job *job, const struct job_request *request)
{
    struct worker *worker = pool.ready;
    int r = check_subject(request->subject);

    if (r == 0)
        r = job_write(job, request);
    if (r < 0)
        return r;
    job->request = *request;
    job->request.data = NULL;
    job->is_running = true;
    loop_timer_start(pool.loop, &job->deadline, request->allowed_ns + GRACE_NS, on_deadline);
    if (worker) {
        DL_DELETE(pool.ready, worker);
        assign(worker, job);
    } else {
        DL_APPEND(pool.waiting, job);
        if (!loop_timer_is_active(&pool.silence))
            loop_timer_start(pool.loop, &pool.silence, SILENT_NS / 5, on_silence);
    }
    if (worker_count() < WORKERS_READY)
        (void)order_worker(
            WORKERS_MOST); /* after the job was sent: it does not wait for the fork */
    return 0;
}

void job_go(struct job *job)
{
    if (job->worker)
        send_or_end(job->worker, (struct iovec){(void *)(uintptr_t)GO, sizeof(GO)}, NULL, 0);
    else if (job->is_running)
        ((struct request_header *)job->message)->is_ahead = false;
}

void job_cancel(struct job *job)
{
    if (!job->is_running)
        return;
    job_forget(job);
    job_take_back(job);
}

void workers_get_status(struct workers_status *ret_status)
{
    const struct job *job;
    unsigned waiting;

    DL_COUNT(pool.waiting, job, waiting);
    *ret_status = (struct workers_status){
        .ready = count(pool.ready),
        .busy = count(pool.busy),
        .dying = count(pool.dying),
        .waiting = waiting,
        .late = pool.ended[JOB_LATE] + pool.ended[JOB_WAITED],
        .died = pool.ended[JOB_DIED],
        .answered = pool.ended[JOB_ANSWERED],
    };
}
