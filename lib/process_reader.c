/* SPDX-License-Identifier: Apache-2.0 */
/* process_reader.c - see process.h.
 *
 * Requests and answers go through a stream socket, one request at a time:
 *
 *   request   struct request, and as many process ids as it says
 *   answer    for each id: struct piece with bytes, any number of them, and one without, which has
 *             the result
 *
 * A reader that has not answered is killed only if the kernel reports that it waits: a runnable one
 * merely lacks a processor.
 */
#include "lib/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"

/* PATIENCE: how long a reader may wait for another process, which is enough for most processes that
 * start or fork on a busy node. */
enum { PATIENCE_MILLISECONDS = 15, LEFT_BEHIND = 8 };
enum { PIECES_BYTES = 16 * 1024, MOST_AT_ONCE = 64 };

static const uint64_t PATIENCE_NS = PATIENCE_MILLISECONDS * NSEC_PER_MSEC;
static const uint64_t STARVED_NS = NSEC_PER_SEC; /* how long any reader may take */
static const uint64_t LASTING_NS = NSEC_PER_SEC, TELL_NS = 10 * NSEC_PER_SEC;

struct request {
    uint64_t bytes;
    uint32_t count;
};

struct piece {
    int32_t result;
    uint32_t length;
};

static struct {
    pid_t owner; /* the process that uses it, but not its children; 0: none */
    pid_t pid;   /* 0: none runs */
    int socket;
    pid_t left_behind[LEFT_BEHIND];      /* killed and perhaps not dead yet; 0: free */
    uint64_t waited_ns;                  /* for the answer to the current request */
    pid_t hung;                          /* a process that hangs or hung repeatedly, */
    uint64_t first_ns, last_ns, told_ns; /* the first and last time, and when it was logged */
} reader;

/* The received part of an answer that is not consumed yet. */
static struct {
    char bytes[PIECES_BYTES];
    size_t at, length;
} received;

/* ---- in the reader ------------------------------------------------------------------------- */

static struct {
    char bytes[PIECES_BYTES];
    size_t length;
} said;

static bool receive_whole(int socket, void *data, size_t length)
{
    return recv(socket, data, length, MSG_WAITALL) == (ssize_t)length;
}

static bool flush(int socket)
{
    for (size_t at = 0; at < said.length;) {
        ssize_t sent = send(socket, said.bytes + at, said.length - at, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        at += (size_t)sent;
    }
    said.length = 0;
    return true;
}

static void end_piece(int32_t result, size_t length)
{
    const struct piece piece = {.result = result, .length = (uint32_t)length};

    memcpy(said.bytes + said.length, &piece, sizeof(piece));
    said.length += sizeof(piece) + length;
}

/* Sends the first bytes of one process's arguments. */
static bool say_arguments(int socket, pid_t pid, size_t bytes)
{
    cleanup(fd_closep) int fd = -1;
    ssize_t count = 0;
    char path[32];
    int r = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        count = -1;
    while (count >= 0) {
        size_t room = sizeof(said.bytes) - said.length;

        if (room < sizeof(said.bytes) / 4) {
            if (!flush(socket))
                return false;
            continue;
        }
        room -= 2 * sizeof(struct piece);
        count =
            read(fd, said.bytes + said.length + sizeof(struct piece), bytes < room ? bytes : room);
        if (count <= 0)
            break;
        end_piece(0, (size_t)count);
        bytes -= (size_t)count;
    }
    if (count < 0)
        r = errno == ESRCH ? PROCESS_GONE : -errno; /* the process ended meanwhile */
    end_piece(r, 0);
    return true;
}

static _Noreturn void serve(int socket)
{
    struct request request;
    pid_t pid[MOST_AT_ONCE];

    while (receive_whole(socket, &request, sizeof(request)) && request.count <= MOST_AT_ONCE &&
           receive_whole(socket, pid, request.count * sizeof(pid[0]))) {
        for (uint32_t i = 0; i < request.count; i++)
            if (!say_arguments(socket, pid[i], request.bytes))
                _exit(1);
        if (!flush(socket))
            break;
    }
    _exit(0);
}

/* The reader ends when its socket is closed or its parent was killed, but not by a signal sent to
 * both. */
static _Noreturn void become_reader(int socket, pid_t parent)
{
    enum { ONLY = 3 };

    if (dup2(socket, ONLY) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(1);
    (void)prctl(PR_SET_NAME, "crustd-reader");
    (void)close_range(ONLY + 1, ~0U, 0);
    for (int fd = 0; fd < ONLY; fd++)
        (void)close(fd);
    serve(ONLY);
}

/* ---- starting and ending it ------------------------------------------------------------- */

/* All signals stay blocked in the reader, so that no handler of the program runs there. */
static pid_t fork_reader(int socket)
{
    sigset_t all, before;
    pid_t parent = getpid(), pid;

    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0)
        become_reader(socket, parent);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return pid < 0 ? -errno : pid;
}

/* A free place for a killed reader; NULL: too many are not dead yet. */
static pid_t *find_place(void)
{
    pid_t *place = NULL;

    for (unsigned i = 0; i < LEFT_BEHIND; i++) {
        if (reader.left_behind[i] && waitpid(reader.left_behind[i], NULL, WNOHANG) != 0)
            reader.left_behind[i] = 0;
        if (!reader.left_behind[i])
            place = &reader.left_behind[i];
    }
    return place;
}

static int start_reader(void)
{
    int ends[2];
    pid_t pid;

    if (reader.pid)
        return 0;
    if (!find_place())
        return -EBUSY;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    pid = fork_reader(ends[1]);
    fd_close(ends[1]);
    if (pid < 0) {
        fd_close(ends[0]);
        return pid;
    }
    reader.pid = pid;
    reader.socket = ends[0];
    received.at = received.length = 0;
    return 0;
}

static void end_reader(void)
{
    pid_t *place = find_place();

    (void)kill(reader.pid, SIGKILL);
    fd_close(reader.socket);
    if (place)
        *place = reader.pid;
    reader.pid = 0;
}

int process_reader_start(void)
{
    reader.owner = getpid();
    return start_reader();
}

void process_reader_stop(void)
{
    if (reader.pid)
        end_reader();
    reader.owner = 0;
}

bool process_reader_is_used(void)
{
    return reader.owner && reader.owner == getpid();
}

/* ---- requests ----------------------------------------------------------------------------- */

static bool is_waiting(void)
{
    struct process process;

    return process_read(reader.pid, &process) == 0 && process.waits;
}

/* 0, PROCESS_HANGS, or another -errno: the reader has ended. */
static int await(void)
{
    struct pollfd answer = {.fd = reader.socket, .events = POLLIN};
    int count;

    do {
        const uint64_t began_ns = clock_boottime();

        if (reader.waited_ns >= PATIENCE_NS && is_waiting())
            return PROCESS_HANGS;
        count = poll(&answer, 1, PATIENCE_MILLISECONDS);
        reader.waited_ns += clock_boottime() - began_ns;
        if (count == 0 && reader.waited_ns >= STARVED_NS)
            return PROCESS_HANGS;
    } while (count == 0 || (count < 0 && errno == EINTR));
    return count < 0 ? -errno : 0;
}

static int receive_more(void)
{
    ssize_t count = recv(reader.socket, received.bytes, sizeof(received.bytes), MSG_DONTWAIT);
    int r = 0;

    if (count < 0 && errno == EAGAIN) {
        r = await();
        if (r == 0)
            count = recv(reader.socket, received.bytes, sizeof(received.bytes), MSG_DONTWAIT);
    }
    if (r == 0 && count <= 0)
        r = count < 0 ? -errno : -EPIPE;
    received.at = 0;
    received.length = r == 0 ? (size_t)count : 0;
    return r;
}

/* Receives into ret_data, or appends to the text. If the text is full, the rest is still received
 * and dropped. */
static int take(size_t length, char *ret_data, struct buffer *ret_text)
{
    int r = 0;

    while (r == 0 && length > 0) {
        size_t there = received.length - received.at, count = there < length ? there : length;

        if (ret_text)
            (void)buffer_append(ret_text, received.bytes + received.at, count);
        else
            ret_data = mempcpy(ret_data, received.bytes + received.at, count);
        received.at += count;
        length -= count;
        if (length > 0)
            r = receive_more();
    }
    return r;
}

static int take_answer(struct process_reading *reading, struct buffer *text)
{
    const size_t before = text->length;
    struct piece piece;
    int r;

    do {
        r = take(sizeof(piece), (char *)&piece, NULL);
        if (r == 0)
            r = take(piece.length, NULL, text);
    } while (r == 0 && piece.length > 0);
    if (r < 0)
        return r;
    reading->length = text->length - before;
    reading->result = buffer_error(text) < 0 ? buffer_error(text) : piece.result;
    return 0;
}

static int ask(struct process_reading *readings, unsigned count, struct request request,
               struct buffer *text)
{
    struct {
        struct request request;
        pid_t pid[MOST_AT_ONCE];
    } message = {.request = request};
    const size_t length = sizeof(message.request) + count * sizeof(message.pid[0]);
    int r = 0;

    reader.waited_ns = 0;
    for (unsigned i = 0; i < count; i++)
        message.pid[i] = readings[i].pid;
    if (send(reader.socket, &message, length, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)length)
        return -EPIPE;
    for (unsigned i = 0; r == 0 && i < count; i++)
        r = take_answer(&readings[i], text);
    return r;
}

/* Logs a process that hangs, unless only for a moment, as at its start or fork. Of many, one is
 * named. */
static void tell(const struct process_reading *readings, unsigned count)
{
    const uint64_t now = clock_boottime();
    const bool is_first = !reader.last_ns || now - reader.last_ns >= TELL_NS;

    if (count > 1 || (!is_first && readings[0].pid != reader.hung))
        return;
    if (is_first) {
        reader.hung = readings[0].pid;
        reader.first_ns = now;
    }
    reader.last_ns = now;
    if (now - reader.first_ns < LASTING_NS || (reader.told_ns && now - reader.told_ns < TELL_NS))
        return;
    reader.told_ns = now;
    log_warning(
        NULL,
        "the arguments of process %d cannot be read, because it keeps its memory locked: nothing "
        "is concluded from it; if this goes on, find out what it does, and end it",
        (int)readings[0].pid);
}

int process_reader_read(struct process_reading *readings, unsigned count, size_t bytes,
                        struct buffer *ret_text)
{
    const struct request request = {.bytes = bytes, .count = count};
    const struct buffer_mark mark = buffer_mark(ret_text);
    int r = -EPIPE;

    if (count > MOST_AT_ONCE)
        return -EINVAL;
    /* The reader may have been killed: then it is started once more. */
    for (unsigned i = 0; i < 2 && r < 0 && r != PROCESS_HANGS; i++) {
        buffer_rewind(ret_text, mark);
        r = start_reader();
        if (r == 0)
            r = ask(readings, count, request, ret_text);
        if (r < 0 && reader.pid)
            end_reader();
    }
    if (r == PROCESS_HANGS)
        tell(readings, count);
    return r;
}
