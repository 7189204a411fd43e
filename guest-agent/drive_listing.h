/* SPDX-License-Identifier: Apache-2.0 */
/* drive_listing.h - drive_list_read() in a process of its own, for a bounded time.
 *
 * The serial of a virtio-blk disk is asked of the VMM at each read, and the kernel waits for the
 * answer. A disk whose device is gone, or is stuck, never gives one. One process may wait for that:
 * until it has ended, lists are refused at once.
 */
#pragma once

#include "agent-client/drive_call.h"
#include "lib/loop.h"
#include "lib/result.h"

struct drive_listing;

/* list: borrowed, and may be added to; empty if r is not 0. error: filled then. */
typedef void drive_listing_done(struct drive_listing *listing, int r, struct drive_guest_list *list,
                                const struct error *error, void *userdata);

/* Exactly one `done` from the loop, never from within. timeout_ns: the caller's; 0: none. 0, or
 * as child_new() fails, -ENOMEM. */
int drive_listing_new(struct loop *loop, uint64_t timeout_ns, drive_listing_done *done,
                      void *userdata, struct drive_listing **ret_listing);
struct drive_listing *drive_listing_free(struct drive_listing *listing); /* returns NULL */
