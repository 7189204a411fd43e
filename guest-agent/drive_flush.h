/* SPDX-License-Identifier: Apache-2.0 */
/* drive_flush.h - what was written to a drive reaches its disk within seconds.
 *
 * A VM may end without notice (Kata kills QEMU when a sandbox ends), and takes with it what its
 * guest had not yet written. While a writable drive is mounted, the file systems of all of them are
 * synced at a steady pace, in a process of its own: a disk that hangs delays the next round and
 * nothing else.
 *
 * Source: syncfs(2).
 */
#pragma once

#include "lib/loop.h"

/* Begins with the drives that are mounted already. 0: never syncs. */
void drive_flush_start(struct loop *loop, uint64_t interval_ns);

void drive_flush_wake(void); /* a drive has been mounted */

void drive_flush_end(void);
