/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - processes identified by their arguments, within this boot.
 *
 * A pid from a file proves nothing: it may be stale and reused by another process. A process is
 * tied to a sandbox if it was started with the sandbox's id, by a user whose arguments are believed
 * (process_trust.h). The name of its program is no evidence (a container's own mount namespace,
 * renamed binaries).
 *
 * /proc is always the kernel's own, whatever --root is.
 */
#include "lib/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/process_reader.h"

/* The error of read(2) on a file in /proc whose process has ended. */
enum { ENDED_MEANWHILE = -ESRCH };

enum {
    STAT_BYTES = 2048,
    STAT_FIELD_STATE = 3,
    STAT_FIELD_PARENT = 4,
    STAT_FIELD_THREADS = 20,
    STAT_FIELD_START = 22,
    FIRECRACKER_ID_CHARS = 32,
};

static int open_file(pid_t pid, const char *name, int *ret_fd)
{
    char path[64];

    if (pid <= 0)
        return PROCESS_GONE;
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    *ret_fd = open(path, O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : 0;
}

int process_read_file(pid_t pid, const char *name, struct buffer *ret_text)
{
    cleanup(fd_closep) int fd = -1;
    int r = open_file(pid, name, &fd);

    if (r == 0)
        r = buffer_read_all(ret_text, fd);
    return r == ENDED_MEANWHILE ? PROCESS_GONE : r;
}

static int stat_failure(int error)
{
    switch (error) {
    case ESRCH:
        return PROCESS_GONE;
    case EPERM:
        return PROCESS_DENIED;
    default:
        return -error;
    }
}

int process_stat(pid_t pid, const char *name, struct stat *ret_stat)
{
    char path[64];
    struct statx x;

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MODE | STATX_INO, &x) < 0)
        return stat_failure(errno);
    *ret_stat = (struct stat){
        .st_mode = x.stx_mode,
        .st_dev = makedev(x.stx_dev_major, x.stx_dev_minor),
        .st_ino = x.stx_ino,
    };
    return 0;
}

/* Field `number` (from 1) of /proc/PID/stat, counted after the name, which may contain anything. */
static const char *stat_field(const char *text, int number)
{
    const char *field = strrchr(text, ')');

    for (int i = 2; field && i < number; i++) {
        field = strchr(field, ' ');
        field = field ? field + 1 : NULL;
    }
    return field;
}

int process_read(pid_t pid, struct process *ret_process)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(STAT_BYTES);
    const char *state, *parent, *threads, *start;
    uint64_t ticks_per_second = (uint64_t)sysconf(_SC_CLK_TCK), ticks;
    int r = process_read_file(pid, "stat", &text);

    if (r < 0)
        return r;
    state = stat_field(buffer_text(&text), STAT_FIELD_STATE);
    parent = stat_field(buffer_text(&text), STAT_FIELD_PARENT);
    threads = stat_field(buffer_text(&text), STAT_FIELD_THREADS);
    start = stat_field(buffer_text(&text), STAT_FIELD_START);
    if (!state || !parent || !threads || !start)
        return -EBADMSG;
    ret_process->parent = (pid_t)strtol(parent, NULL, 10);
    ret_process->threads = (unsigned)strtoul(threads, NULL, 10);
    ticks = strtoull(start, NULL, 10);
    ret_process->waits = *state == 'D';
    ret_process->stopped = *state == 'T' || *state == 't';
    ret_process->alive = *state != 'Z' && *state != 'X' && *state != 'x';
    ret_process->start_ns = ticks * (NSEC_PER_SEC / ticks_per_second);
    return 0;
}

bool process_stands_still(pid_t pid, struct error *ret_error)
{
    struct process process;

    if (process_read(pid, &process) < 0 || !(process.stopped || process.waits))
        return false;
    if (process.stopped)
        (void)error_set(ret_error, 0,
                        "process %d is stopped (SIGSTOP, a debugger): kill -CONT %d has it go on",
                        (int)pid, (int)pid);
    else
        (void)error_set(
            ret_error, 0,
            "process %d waits for a disk (state D): look at the storage and at dmesg; it "
            "goes on when the disk answers",
            (int)pid);
    return true;
}

int process_has_ended(pid_t pid, uint64_t start_ns)
{
    struct process process;
    int r = process_read(pid, &process);

    if (r < 0)
        return r == PROCESS_GONE ? 1 : r;
    return process.start_ns != start_ns || (!process.alive && process.threads <= 1);
}

static int read_directly(pid_t pid, size_t bytes, struct buffer *ret_text)
{
    cleanup(fd_closep) int fd = -1;
    char part[4096];
    ssize_t count = 1;
    int r = open_file(pid, "cmdline", &fd);

    while (r == 0 && count > 0 && bytes > 0) {
        count = read(fd, part, bytes < sizeof(part) ? bytes : sizeof(part));
        if (count < 0)
            r = -errno;
        else
            r = buffer_append(ret_text, part, (size_t)count);
        bytes -= r == 0 ? (size_t)count : 0;
    }
    return r == ENDED_MEANWHILE ? PROCESS_GONE : r;
}

int process_read_first_arguments(pid_t pid, size_t bytes, struct buffer *ret_arguments)
{
    struct process_reading reading = {.pid = pid};
    int r;

    if (pid <= 0)
        return PROCESS_GONE;
    if (!process_reader_is_used())
        return read_directly(pid, bytes, ret_arguments);
    r = process_reader_read(&reading, 1, bytes, ret_arguments);
    return r < 0 ? r : reading.result;
}

int process_read_arguments(pid_t pid, struct buffer *ret_arguments)
{
    enum { MOST_BYTES = 16 * 1024 * 1024 };
    const size_t limit = ret_arguments->limit ? ret_arguments->limit : MOST_BYTES;
    const struct buffer_mark before = buffer_mark(ret_arguments);
    int r = process_read_first_arguments(pid, limit + 1, ret_arguments);

    if (r < 0)
        buffer_rewind(ret_arguments, before);
    return r;
}

int process_still_has_arguments(pid_t pid, const struct buffer *arguments)
{
    cleanup(buffer_done) struct buffer now = BUFFER_INIT(arguments->length);
    int r = process_read_first_arguments(pid, arguments->length, &now);

    if (r < 0)
        return r == PROCESS_GONE ? 0 : r;
    return now.length == arguments->length &&
           memcmp(buffer_text(&now), buffer_text(arguments), now.length) == 0;
}

static bool may_precede(const char *argument, const char *token)
{
    static const char prefix[] = "sandbox-";
    size_t before = (size_t)(token - argument), length = strlen(prefix);

    if (before == 0 || strchr("/,=:", token[-1]))
        return true;
    return before >= length && strncmp(token - length, prefix, length) == 0 &&
           may_precede(argument, token - length);
}

static bool argument_names(const char *argument, const char *token)
{
    size_t length = strlen(token);

    for (const char *at = strstr(argument, token); at; at = strstr(at + 1, token))
        if (may_precede(argument, at) && strchr("/,=:", at[length]))
            return true; /* strchr also finds the NUL */
    return false;
}

static bool is_firecracker_id(const char *previous, const char *argument, const char *token)
{
    return previous && strcmp(previous, "--id") == 0 && strlen(token) > FIRECRACKER_ID_CHARS &&
           strlen(argument) == FIRECRACKER_ID_CHARS &&
           strncmp(argument, token, FIRECRACKER_ID_CHARS) == 0;
}

bool process_arguments_name(const struct buffer *arguments, const char *token)
{
    const char *argument = buffer_text(arguments), *previous = NULL;
    const char *end = argument + arguments->length;

    for (; argument < end; previous = argument, argument += strlen(argument) + 1)
        if (argument_names(argument, token) || is_firecracker_id(previous, argument, token))
            return true;
    return false;
}

const char *process_arguments_program(const struct buffer *arguments)
{
    return basename(buffer_text(arguments));
}

bool process_arguments_are_jailers(const struct buffer *arguments)
{
    return strcmp(process_arguments_program(arguments), "jailer") == 0;
}
