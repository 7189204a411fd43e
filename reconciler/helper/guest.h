/* SPDX-License-Identifier: Apache-2.0 */
/* guest.h - observing a sandbox's guest before something is brought into it: by its VMM's
 * arguments, or by asking the VMM, as hypervisor_guest_source() says of its kind. Private to
 * reconciler/helper/.
 */
#pragma once

#include "lib/result.h"
#include "observe/guest_traits.h"
#include "store/store.h"

struct context;
struct helper_guest;

/* error: why nothing is known of it; NULL: the traits are its. */
typedef void helper_guest_done(const struct guest_traits *traits, const struct error *error,
                               void *userdata);

/* Exactly one `done` from the loop, never from within; freeing it then or earlier is the caller's.
 * 0 or -ENOMEM. */
int helper_guest_new(const struct context *context, const struct store_helper_run *sandbox,
                     helper_guest_done *done, void *userdata, struct helper_guest **ret_guest);
struct helper_guest *helper_guest_free(struct helper_guest *guest); /* returns NULL */
