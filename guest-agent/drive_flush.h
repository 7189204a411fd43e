/* SPDX-License-Identifier: Apache-2.0 */
/* drive_flush.h - what was written to a drive reaches its disk within seconds.
 *
 * A VM may end without notice (Kata kills QEMU when a sandbox ends), and takes with it what its
 * guest had not yet written. While a writable drive is mounted, the file systems of all of them are
 * synced at a steady pace, in a process of its own: one that hangs delays the next round and
 * nothing else. While a disk does not say which serial it has, those that were listed before are
 * synced.
 *
 * Source: syncfs(2).
 */
#pragma once

#include "lib/loop.h"

/* Begins with the drives that are mounted already. 0: never syncs. */
void drive_flush_start(struct loop *loop, uint64_t interval_ns);

/* A drive has been mounted. Only so is a disk known for a drive whose serial is its VMM's own: the
 * others of such a guest, its root among them, have serials like it. So an agent that was started
 * again does not sync that drive, unless it is asked to mount it once more. */
void drive_flush_wake(const char *serial);

void drive_flush_end(void);
