/* SPDX-License-Identifier: Apache-2.0 */
/* drive_flush.h - syncs the mounted drives every few seconds.
 *
 * A VM may end without notice (Kata kills QEMU when a sandbox ends), and data that its guest has
 * not written to the disk is lost. While a writable drive is mounted, the file systems of all such
 * drives are synced at a steady pace, each in a process of its own: a disk that hangs delays only
 * its own next sync. While the serial of a disk cannot be read, the drives of the last list are
 * synced.
 *
 * Source: syncfs(2).
 */
#pragma once

#include "lib/loop.h"

/* Includes drives that are mounted already. interval_ns 0: never syncs. */
void drive_flush_start(struct loop *loop, uint64_t interval_ns);

/* To be called when a drive has been mounted. A disk whose serial was chosen by the VMM is only
 * known as a drive by this call, because all disks of such a guest, its root included, have such
 * serials. So an agent that was restarted does not sync that drive until it is asked to mount it
 * again. */
void drive_flush_wake(const char *serial);

void drive_flush_end(void);
