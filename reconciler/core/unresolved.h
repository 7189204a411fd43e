/* SPDX-License-Identifier: Apache-2.0 */
/* unresolved.h - searches for the paths whose hashes are directory names. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "config/config.h"

struct context;
struct observed_sandbox;
struct publish_walk;

/* The fields are private to the module. */
struct unresolved {
    const struct context *context;
    bool wanted;               /* search again from the beginning */
    struct publish_walk *walk; /* the walk in progress */
    bool in_claims;            /* then the claims, page by page: */
    char after[PATH_MAX];
    const char *kubelet[CONFIG_LIST_ITEMS]; /* borrowed by the walk */
};

void unresolved_done(struct unresolved *unresolved);
bool unresolved_is_idle(const struct unresolved *unresolved);

/* Requests a search through all candidates, made only if a name is still unresolved by then. */
void unresolved_want(struct unresolved *unresolved);

/* One step. 1: there was something to do, 0: nothing; -errno of the store, or -ENOMEM. */
int unresolved_search(struct unresolved *unresolved);

/* Offer a path that has just become known. source: where, in the journal's words: layout, kubelet,
 * bundle, api; static. 0 or -errno of the store. */
int unresolved_offer(const struct context *context, const char *target_path, const char *source);
int unresolved_offer_claims(const struct context *context, const struct observed_sandbox *observed);
