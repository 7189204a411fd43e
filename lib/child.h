/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - a process run to its end: bounded in time and output, on the loop.
 *
 * It has its own process group, which is killed as a whole when the time is over, when the output
 * exceeds its limit, or when the owner frees the child. It runs either
 *
 *   a program   without a shell: its arguments, an empty environment, no input, no capabilities and
 *               no way to gain any; or
 *   a function  of ours, for a system call that may block for minutes: there are no threads here,
 *               and O_NONBLOCK means nothing to an attribute of sysfs that works while it is
 *               written to, nor to an ioctl that grows a file system. It has no descriptors but its
 *               input and its output.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/loop.h"
#include "lib/result.h"

enum child_end {
    CHILD_EXITED,  /* status is its exit code */
    CHILD_KILLED,  /* by a signal that was not ours; status is its number */
    CHILD_TIMEOUT, /* its time was over */
    CHILD_FLOOD,   /* it said more than the limit */
};

struct child_request {
    const char *const *arguments; /* ends with NULL; the first is the program, an absolute path */
    size_t output_limit;          /* bytes of its standard output */
    uint64_t allowed_ns;          /* from its start to its end; 0: without end */
    int root; /* the directory that is the program's "/" (CAP_SYS_CHROOT); -1: ours */

    int (*function)(const void *argument); /* returns its exit code, 0 to 255; NULL: a program */
    const void *argument;                  /* the new process has a copy */
    int input; /* a function's standard input, which may be written to; -1: none */

    uint64_t subject; /* the disk, or whatever else it may wait for without end: a device number, or
                         child_subject(); 0: nothing in particular */
};

struct child;

/* output: what it said, borrowed. The child may be freed. */
typedef void child_done(struct child *child, enum child_end end, int status,
                        const struct buffer *output, void *userdata);

enum child_failure {
    CHILD_NOT_PERMITTED = -EPERM,
    CHILD_STILL_HANGS = -EALREADY, /* the kernel holds one of this subject that was killed */
    CHILD_TOO_MANY_HANG = -EUSERS, /* it holds as many as are allowed */
};

/* Exactly one `done` from the loop, never from within this call. 0; -ENOENT, -EACCES, -ENOEXEC … if
 * the program cannot be run; NOT_PERMITTED if its root could not be changed or its capabilities
 * could not be dropped; STILL_HANGS, TOO_MANY_HANG. */
int child_new(struct loop *loop, const struct child_request *request, child_done *done,
              void *userdata, struct child **ret_child);

/* What follows the subject's name and a colon. */
const char *child_explain(int failure);

/* A subject that has a name and no number. */
uint64_t child_subject(const char *name);

/* Ends it as if its time were over: `done` comes soon. */
void child_kill(struct child *child);

struct child *child_free(struct child *child); /* kills what still runs; returns NULL */
