/* SPDX-License-Identifier: Apache-2.0 */
/* unresolved.h - the search for the paths behind directory names that are hashes. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "config/config.h"

struct context;
struct observed_sandbox;
struct publish_walk;

/* The fields are the module's own. */
struct unresolved {
    const struct context *context;
    bool wanted;               /* search once more, from the beginning */
    struct publish_walk *walk; /* under way */
    bool in_claims;            /* after it, by pages: */
    char after[PATH_MAX];
    const char *kubelet[CONFIG_LIST_ITEMS]; /* what the walk borrows */
};

void unresolved_done(struct unresolved *unresolved);
bool unresolved_is_idle(const struct unresolved *unresolved);

/* Have all candidates gone through, if a name is unresolved by then. */
void unresolved_want(struct unresolved *unresolved);

/* A step. 1: there was something to do, 0: nothing; -errno of the store or for want of memory. */
int unresolved_search(struct unresolved *unresolved);

/* A path that was not known a moment ago. 0 or -errno of the store. */
int unresolved_offer_volume(const struct context *context, const char *target_path);
int unresolved_offer_asked(const struct context *context, const char *target_path);
int unresolved_offer_claims(const struct context *context, const struct observed_sandbox *observed);
