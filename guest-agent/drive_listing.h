/* SPDX-License-Identifier: Apache-2.0 */
/* drive_listing.h - runs drive_list_read() in a process of its own, for a bounded time.
 *
 * The kernel asks the VMM for the serial of a virtio-blk disk at each read and waits for the
 * answer, which never comes if the device is gone or stuck. At most one process waits for that:
 * until it has ended, further lists are refused at once.
 */
#pragma once

#include "agent-client/drive_call.h"
#include "lib/loop.h"
#include "lib/result.h"

struct drive_listing;

/* list: borrowed, may be extended. r not 0: the list is empty and the error filled. */
typedef void drive_listing_done(struct drive_listing *listing, int r, struct drive_guest_list *list,
                                const struct error *error, void *userdata);

/* Exactly one `done` from the loop, never from within. timeout_ns: the caller's; 0: none. 0,
 * -ENOMEM, or the errors of child_new(). */
int drive_listing_new(struct loop *loop, uint64_t timeout_ns, drive_listing_done *done,
                      void *userdata, struct drive_listing **ret_listing);
struct drive_listing *drive_listing_free(struct drive_listing *listing); /* returns NULL */
