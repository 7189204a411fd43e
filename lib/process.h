/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - what /proc says about one process. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "lib/buffer.h"
#include "lib/result.h"

struct process {
    bool alive;        /* exists and is not a zombie */
    bool waits;        /* in the kernel, where at most SIGKILL can end it */
    bool stopped;      /* by a signal or a debugger */
    pid_t parent;      /* the current one: it changes when the parent ends */
    unsigned threads;  /* of a zombie: 1, unless other threads have not ended */
    uint64_t start_ns; /* CLOCK_BOOTTIME */
};

/* The failures that callers distinguish. */
enum process_failure {
    PROCESS_GONE = -ENOENT,     /* no such process, or it ended meanwhile */
    PROCESS_DENIED = -EACCES,   /* the process may not be examined */
    PROCESS_HANGS = -ETIMEDOUT, /* its memory stays locked (process_reader.h): ask again later */
};

/* Appends the whole of /proc/PID/NAME. 0, PROCESS_GONE, BUFFER_FULL, another -errno. */
int process_read_file(pid_t pid, const char *name, struct buffer *ret_text);

/* Examines what the link /proc/PID/NAME leads to: type, mode, device and inode as cached by the
 * kernel, without asking the file system, which may hang (FUSE, NFS). 0, an enum process_failure,
 * another -errno. */
int process_stat(pid_t pid, const char *name, struct stat *ret_stat);

/* 0, PROCESS_GONE, another -errno. */
int process_read(pid_t pid, struct process *ret_process);

/* Whether the process answers nobody because it is stopped or waits for a disk; ret_error says
 * which, and what to do. */
bool process_stands_still(pid_t pid, struct error *ret_error);

/* Whether this process has ended: no thread is left, so its descriptors are closed. A killed
 * process lives on while a thread waits for a disk. 1, 0, or -errno: unknown. */
int process_has_ended(pid_t pid, uint64_t start_ns);

/* Reads the arguments, each followed by a NUL. Returns as process_read_file(), or PROCESS_HANGS.
 * Other files that take the lock of the process's memory (environ, maps, mem) should not be read.
 */
int process_read_arguments(pid_t pid, struct buffer *ret_arguments);

/* Reads the first `bytes` bytes of the arguments. */
int process_read_first_arguments(pid_t pid, size_t bytes, struct buffer *ret_arguments);

/* Whether the process still has these arguments, or ones that begin with them. Between reading them
 * and judging the process (process_trust.h) it may have executed another program, or its pid may
 * have been reused: then the judgement does not apply to the arguments. 1, 0, or PROCESS_HANGS or
 * another -errno: unknown. */
int process_still_has_arguments(pid_t pid, const struct buffer *arguments);

/* Whether one of the arguments contains `token` as a whole token: bounded on either side by the
 * argument's end or one of / , = :, and on the left also by "sandbox-". Firecracker gets only the
 * first 32 characters, as the whole argument of --id. */
bool process_arguments_name(const struct buffer *arguments, const char *token);

/* Whether argv[0] is Firecracker's jailer, which executes or starts the VMM. */
bool process_arguments_are_jailers(const struct buffer *arguments);

/* The last component of argv[0]; "" if there is none. */
const char *process_arguments_program(const struct buffer *arguments);

/* ---- process list --------------------------------------------------------------------------- */

/* Iterates over all processes and reads their arguments.
 *
 * If a reader runs (process_reader.h), it is asked for the arguments of several processes at once,
 * because each request costs two context switches.
 */

struct process_list;

int process_list_new(struct process_list **ret_list); /* 0 or -errno */
struct process_list *process_list_free(struct process_list *list);

/* The next process listed in /proc; 0: none is left. 0 or -errno. */
int process_list_next(struct process_list *list, pid_t *ret_pid);

/* Appends at most `bytes` bytes of the arguments of the process that `next` returned last. Returns
 * as process_read_first_arguments(). */
int process_list_read_arguments(const struct process_list *list, size_t bytes,
                                struct buffer *ret_arguments);
