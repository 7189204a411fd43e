/* SPDX-License-Identifier: Apache-2.0 */
/* leftovers.h - remains of helpers in one sandbox, and when their removal is due. Private to
 * reconciler/helper/. */
#pragma once

#include "reconciler/helper/share.h"
#include "store/store.h"

struct helper_leftover {
    struct helper_leftover *next;
    char name[HELPER_NAME_BYTES];
    unsigned failures;
    uint64_t next_ns;
};

struct helper_leftovers {
    struct helper_leftover *first;
    struct error error; /* why the last removal failed */
};

/* Adds a name, which is due at once (error NULL: found at start), or records that its removal has
 * failed again. */
void helper_leftovers_put(struct helper_leftovers *leftovers, const char *name,
                          const struct error *error);
void helper_leftovers_remove(struct helper_leftovers *leftovers, const char *name);
void helper_leftovers_done(struct helper_leftovers *leftovers);

bool helper_leftovers_are_none(const struct helper_leftovers *leftovers);
/* Whether the removal of some has failed and is not due again yet. */
bool helper_leftovers_are_stuck(const struct helper_leftovers *leftovers);
/* The next name to remove now; NULL: none. */
const char *helper_leftovers_due(const struct helper_leftovers *leftovers);
/* The time until one is due; UINT64_MAX: there is none. */
uint64_t helper_leftovers_wait(const struct helper_leftovers *leftovers);

/* Calls back with the names of helpers in a live sandbox's share. 0, -errno, or the callback's
 * result. */
int helper_leftovers_search(int root, const struct store_helper_run *sandbox,
                            int (*callback)(void *userdata, const char *name), void *userdata);
