/* SPDX-License-Identifier: Apache-2.0 */
/* auto.h - grows every mounted file system whose device has grown, without being asked. */
#pragma once

#include "lib/loop.h"

struct automatic;

/* Scans at once, then whenever the kernel reports a change to a block device, and every half
 * minute, because a mount or an event may have been missed. 0 or -errno. */
int automatic_new(struct loop *loop, struct automatic **ret_automatic);
struct automatic *automatic_free(struct automatic *automatic); /* NULL is fine; returns NULL */
