/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - a program run to its end: bounded in time and output, on the loop, without a shell.
 *
 * It gets its arguments, an empty environment, no input, no capabilities and no way to gain any,
 * and a process group of its own, which is killed as a whole when its time is over, it says too
 * much or nobody waits any more.
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
    uint64_t deadline_ns;         /* from now */
    int root;                     /* the directory that is its "/" (CAP_SYS_CHROOT); -1: ours */
};

struct child;

/* output: what it said, borrowed. The child may be freed. */
typedef void child_done(struct child *child, enum child_end end, int status,
                        const struct buffer *output, void *userdata);

/* Exactly one `done` from the loop, never from within. 0; -ENOENT, -EACCES, -ENOEXEC … where there
 * is nothing to run; -EPERM where its root or its lack of capabilities was not to be had. */
int child_new(struct loop *loop, const struct child_request *request, child_done *done,
              void *userdata, struct child **ret_child);
struct child *child_free(struct child *child); /* kills what still runs; returns NULL */
