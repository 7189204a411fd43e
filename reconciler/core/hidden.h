/* SPDX-License-Identifier: Apache-2.0 */
/* hidden.h - the search for the paths behind directory names that are hashes. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

struct observed_sandbox;
struct publish_walk;
struct reconciler;

struct hidden {
    bool wanted;               /* search once more, from the beginning */
    struct publish_walk *walk; /* under way */
    bool in_claims;            /* after it, by pages: */
    char after[PATH_MAX];
    const char *kubelet[CONFIG_LIST_ITEMS]; /* what the walk borrows */
};

void hidden_done(struct hidden *hidden);
bool hidden_is_idle(const struct hidden *hidden);

/* A step. 1: there was something to do, 0: nothing; -errno of the store or for want of memory. */
int hidden_search(struct reconciler *reconciler);

/* A path that was not known a moment ago. 0 or -errno of the store. */
int hidden_offer_volume(struct reconciler *reconciler, const char *target_path);
int hidden_offer_asked(struct reconciler *reconciler, const char *target_path);
int hidden_offer_claims(struct reconciler *reconciler, const struct observed_sandbox *observed);
