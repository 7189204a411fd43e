/* SPDX-License-Identifier: Apache-2.0 */
/* targets.h - the volumes of a sandbox that a helper is given, and where the guest has them. */
#pragma once

#include "agent-client/guest_call.h"
#include "lib/result.h"
#include "observe/kata.h"
#include "reconciler/helper/report.h"
#include "store/store.h"

struct context;
struct hypervisor_call;

enum { HELPER_CANDIDATES = 8 };

struct helper_target {
    int64_t volume_id, binding_id;
    uint64_t device_bytes;
    unsigned candidates;
    unsigned candidate[HELPER_CANDIDATES]; /* indexes of the paths that may be the volume's */
};

struct helper_targets {
    bool grow; /* otherwise only report */
    /* Places that may be those of volumes that must not be resized: none of them is passed to the
     * helper. */
    unsigned forbidden;
    bool withheld;      /* a place was withheld for that reason */
    bool all_forbidden; /* too many to list, so only known places are passed */
    char forbidden_path[HELPER_VOLUMES][STORE_ADDRESS_BYTES];
    unsigned targets;
    struct helper_target target[HELPER_VOLUMES];
    unsigned paths;
    char path[HELPER_VOLUMES][STORE_ADDRESS_BYTES];
};

/* Must be called first, with `grow` set. 0 or -errno. */
int helper_targets_begin(const struct context *context, const char *sandbox_id, int64_t sandbox_ref,
                         struct helper_targets *targets);

/* Adds the volume's places, as long as there is room for them. */
void helper_targets_add(const struct context *context, const struct store_volume *volume,
                        struct helper_targets *targets);

/* Adds all other volumes of the sandbox that the helper can include: to grow, those whose device
 * the VMM has at its full size; to report, all that the guest has. */
void helper_targets_complete(const struct context *context, const char *sandbox_id,
                             int64_t sandbox_ref, struct helper_targets *targets);

/* ---- guest routes --------------------------------------------------------------------------- */

/* What the record and the configuration say about the routes to a volume's guest. */

/* Fills in everything but the call itself, its route and its deadline. Borrows the volume, whose
 * address it may fill in, and the socket's path. */
void guest_routes_describe(const struct context *context, struct store_volume *volume,
                           char shim_socket[static GUEST_ADDRESS_BYTES],
                           struct guest_request *ret_request);

/* ---- guest ---------------------------------------------------------------------------------- */

/* Observes a sandbox's guest before anything is brought into it: by its VMM's arguments,
 * or by asking the VMM, depending on hypervisor_guest_source() for its kind. */

/* Zero-initialised, and embedded in its owner. */
struct helper_guest {
    struct hypervisor_call *call;
    bool is_known;
    struct guest_traits traits; /* if they are known */
    struct error error;         /* why not, else */
    void (*done)(struct helper_guest *guest);
};

/* Exactly one `done` follows, from the loop or from within. */
void helper_guest_start(struct helper_guest *guest, const struct context *context,
                        const struct store_helper_run *sandbox,
                        void (*done)(struct helper_guest *guest));
void helper_guest_stop(struct helper_guest *guest);
