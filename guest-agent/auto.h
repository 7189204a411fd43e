/* SPDX-License-Identifier: Apache-2.0 */
/* auto.h - growing on its own whatever is mounted and whose device has grown. */
#pragma once

#include "lib/loop.h"

struct automatic;

/* Looks at once, then whenever the kernel tells of a change to a block device, and every half
 * minute, for a mount or an event may have been missed. 0 or -errno. */
int automatic_new(struct loop *loop, struct automatic **ret_automatic);
struct automatic *automatic_free(struct automatic *automatic); /* NULL is fine; returns NULL */
