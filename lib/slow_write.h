/* SPDX-License-Identifier: Apache-2.0 */
/* slow_write.h - one write(2) that may block for minutes, in a process of its own.
 *
 * For attributes of sysfs that work while they are written to (a SCSI rescan waits for the disk):
 * there are no threads here, and O_NONBLOCK means nothing to them. The process writes and ends. One
 * that hangs is killed at its deadline; if even that has to wait for the kernel, it is left behind,
 * and a few such are enough for new ones to be refused.
 */
#pragma once

#include <stdint.h>

#include "lib/loop.h"

struct slow_write;

/* result: 0 written, -errno of the write, -ETIMEDOUT. */
typedef void slow_write_done(struct slow_write *write, int result, void *userdata);

/* Writes text in one piece; fd stays the caller's, who may close it at once. The deadline counts
 * from now. `done` is called once, from the loop; then, or earlier, the owner frees it. 0, -EBUSY
 * (too many are left behind) or -errno. */
int slow_write_new(struct loop *loop, int fd, const char *text, uint64_t deadline_ns,
                   slow_write_done *done, void *userdata, struct slow_write **ret_write);
struct slow_write *slow_write_free(struct slow_write *write);
