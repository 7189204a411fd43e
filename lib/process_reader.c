/* SPDX-License-Identifier: Apache-2.0 */
/* process_reader.c - see process.h.
 *
 * One request at a time goes to the reader and comes back as the answer. The arguments themselves
 * are in memory that each reader shares with this process: one that was killed may still write to
 * its own.
 *
 * A reader that has not answered is killed only if the kernel reports that it waits: a runnable one
 * merely lacks a processor.
 */
#include "lib/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"

/* PATIENCE: how long a reader may wait for another process, which is enough for most processes that
 * start or fork on a busy node. */
enum { PATIENCE_MILLISECONDS = 15, LEFT_BEHIND = 8 };
enum { TEXT_BYTES = 16 * 1024 * 1024 + 4096, KEPT_BYTES = 256 * 1024, MOST_AT_ONCE = 64 };

static const uint64_t PATIENCE_NS = PATIENCE_MILLISECONDS * NSEC_PER_MSEC;
static const uint64_t STARVED_NS = NSEC_PER_SEC; /* how long any reader may take */
static const uint64_t LASTING_NS = NSEC_PER_SEC, TELL_NS = 10 * NSEC_PER_SEC;

struct request {
    size_t bytes;
    unsigned count;
    struct process_reading reading[MOST_AT_ONCE];
};

static struct {
    pid_t owner; /* the process that uses it, but not its children; 0: none */
    pid_t pid;   /* 0: none runs */
    int socket;
    char *text;                          /* shared with it: the arguments, one after another */
    pid_t left_behind[LEFT_BEHIND];      /* killed and perhaps not dead yet; 0: free */
    pid_t hung;                          /* a process that hangs or hung repeatedly, */
    uint64_t first_ns, last_ns, told_ns; /* the first and last time, and when it was logged */
} reader;

/* ---- in the reader ------------------------------------------------------------------------- */

/* Reads the first bytes of one process's arguments. */
static void read_arguments(struct process_reading *reading, size_t bytes, char *text)
{
    cleanup(fd_closep) int fd = -1;
    ssize_t count;
    char path[32];

    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)reading->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    reading->length = 0;
    do {
        count = fd < 0 ? -1 : read(fd, text + reading->length, bytes - reading->length);
        reading->length += count > 0 ? (size_t)count : 0;
    } while (count > 0);
    /* It may have ended meanwhile. */
    reading->result = count == 0 ? 0 : errno == ESRCH ? PROCESS_GONE : -errno;
}

/* The reader ends when its socket is closed. No process that hangs keeps a standard descriptor
 * open. */
static void serve(void)
{
    struct request request;

    for (int fd = 0; fd < PROCESS_HELPER_SOCKET; fd++)
        (void)close(fd);
    while (recv(PROCESS_HELPER_SOCKET, &request, sizeof(request), 0) == (ssize_t)sizeof(request)) {
        char *text = reader.text;

        for (unsigned i = 0; i < request.count; text += request.reading[i++].length)
            read_arguments(&request.reading[i], request.bytes, text);
        if (send(PROCESS_HELPER_SOCKET, &request, sizeof(request), MSG_NOSIGNAL) < 0)
            break;
    }
}

/* ---- starting and ending it ------------------------------------------------------------- */

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
    int r;

    if (reader.pid)
        return 0;
    if (!find_place())
        return -EBUSY;
    reader.text = mmap(NULL, TEXT_BYTES, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reader.text == MAP_FAILED)
        return -errno;
    r = process_fork_helper("crustd-reader", serve, &reader.pid, &reader.socket);
    if (r < 0)
        (void)munmap(reader.text, TEXT_BYTES);
    return r;
}

static void end_reader(void)
{
    pid_t *place = find_place();

    (void)kill(reader.pid, SIGKILL);
    (void)munmap(reader.text, TEXT_BYTES);
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

/* 0, PROCESS_HANGS, or another -errno: the reader has ended. */
static int await(void)
{
    struct pollfd answer = {.fd = reader.socket, .events = POLLIN};
    const uint64_t began_ns = clock_boottime();
    struct process process;
    int count;

    do {
        const uint64_t waited_ns = clock_boottime() - began_ns;

        if (waited_ns >= STARVED_NS ||
            (waited_ns >= PATIENCE_NS && process_read(reader.pid, &process) == 0 && process.waits))
            return PROCESS_HANGS;
        count = poll(&answer, 1, PATIENCE_MILLISECONDS);
    } while (count == 0 || (count < 0 && errno == EINTR));
    return count < 0 ? -errno : 0;
}

static int ask(struct request *request)
{
    const ssize_t length = sizeof(*request);
    int r;

    if (send(reader.socket, request, sizeof(*request), MSG_NOSIGNAL | MSG_DONTWAIT) != length)
        return -EPIPE;
    r = await();
    return r == 0 && recv(reader.socket, request, sizeof(*request), MSG_DONTWAIT) != length ? -EPIPE
                                                                                            : r;
}

/* Copies the texts. One that is too long for the buffer leaves none of those after it. */
static void take(const struct request *request, struct process_reading *readings,
                 struct buffer *ret_text)
{
    size_t at = 0;

    for (unsigned i = 0; i < request->count; at += request->reading[i++].length) {
        readings[i] = request->reading[i];
        if (buffer_append(ret_text, reader.text + at, readings[i].length) == 0)
            continue;
        readings[i].length = 0;
        readings[i].result = buffer_error(ret_text);
    }
    if (at > KEPT_BYTES) /* the memory of the rest is given back */
        (void)madvise(reader.text, TEXT_BYTES, MADV_REMOVE);
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
    struct request request = {.bytes = bytes, .count = count};
    int r = -EPIPE;

    if (count > MOST_AT_ONCE || count * bytes > TEXT_BYTES)
        return -EINVAL;
    memcpy(request.reading, readings, count * sizeof(*readings));
    /* The reader may have been killed: then it is started once more. */
    for (unsigned i = 0; i < 2 && r < 0 && r != PROCESS_HANGS; i++) {
        r = start_reader();
        if (r == 0)
            r = ask(&request);
        if (r < 0 && reader.pid)
            end_reader();
    }
    if (r == 0)
        take(&request, readings, ret_text);
    else if (r == PROCESS_HANGS)
        tell(readings, count);
    return r;
}
