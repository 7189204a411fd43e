/* SPDX-License-Identifier: Apache-2.0 */
/* growth.h - growing one file system in a process of its own.
 *
 * The ioctl returns when the file system is grown: in milliseconds as a rule, in minutes for a very
 * large ext4, never while the file system is frozen. So that nobody else waits for it, a child
 * calls it and tells its outcome through a pipe.
 */
#pragma once

#include <errno.h>

#include "guest-agent/volume.h"
#include "lib/loop.h"
#include "lib/result.h"

enum { GROWTH_LIMIT = 16 }; /* at once */

struct growth;

/* outcome: FILESYSTEM_* or -errno, with the error's text when it is not GROWN. */
typedef void growth_done(struct growth *growth, int outcome, const struct error *error,
                         void *userdata);

/* Here and now, trying again for a while if it is busy. FILESYSTEM_* or -errno. */
int growth_run(const struct volume *volume, struct error *error);

enum growth_failure { GROWTH_TOO_MANY = -EAGAIN /* at once */ };

/* In a child. `done` comes once, from the loop. 0, GROWTH_TOO_MANY, another -errno. */
int growth_new(struct loop *loop, const struct volume *volume, growth_done *done, void *userdata,
               struct growth **ret_growth);

/* After done, or to hear no more of it: a running child goes on and is reaped when it ends. */
struct growth *growth_free(struct growth *growth); /* NULL is fine; returns NULL */

/* The same before the process exits: the child is killed, which takes effect as soon as the kernel
 * lets it go (a growth that it has begun may still be finished); then whoever inherits it reaps
 * it. */
struct growth *growth_abandon(struct growth *growth); /* NULL is fine; returns NULL */
