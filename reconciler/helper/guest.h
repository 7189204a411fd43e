/* SPDX-License-Identifier: Apache-2.0 */
/* guest.h - observes a sandbox's guest before anything is brought into it: by its VMM's arguments,
 * or by asking the VMM, depending on hypervisor_guest_source() for its kind. */
#pragma once

#include "lib/result.h"
#include "observe/guest_traits.h"
#include "store/store.h"

struct context;
struct helper_guest;

/* error: why nothing is known about the guest; NULL: `traits` are valid. */
typedef void helper_guest_done(const struct guest_traits *traits, const struct error *error,
                               void *userdata);

/* Exactly one `done` follows from the loop, never from within; the caller frees it then or earlier.
 * 0 or -ENOMEM. */
int helper_guest_new(const struct context *context, const struct store_helper_run *sandbox,
                     helper_guest_done *done, void *userdata, struct helper_guest **ret_guest);
struct helper_guest *helper_guest_free(struct helper_guest *guest); /* returns NULL */
