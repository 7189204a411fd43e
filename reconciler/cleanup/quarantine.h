/* SPDX-License-Identifier: Apache-2.0 */
/* quarantine.h - moves metadata out of a watched directory and back, without losing a concurrent
 * write.
 *
 * The trash is a directory on the same mount, outside of everything that is watched:
 *
 *   TRASH/NAME/KEY          a whole metadata directory, under its own name
 *   TRASH/NAME/SANDBOX_ID   or one file of it
 *
 * NAME is never reused. Nothing else is ever made: no name of crustd's appears in a watched
 * directory, because Kata takes the first unknown name there for a sandbox's id. Every function may
 * be repeated after a kill at any point, and none depends on the store.
 */
#pragma once

#include <stdbool.h>

#include "lib/result.h"

struct quarantine {
    int volumes; /* the watched directory; -1 */
    int trash;
};

#define QUARANTINE_INIT                                                                            \
    {                                                                                              \
        -1, -1                                                                                     \
    }

/* Outcomes of quarantine_open(). */
enum {
    QUARANTINE_READY,
    QUARANTINE_UNFIT, /* the trash is unusable; the error has the reason, and the key to change */
};

/* Opens both, below root; the trash is made (0700) if it does not exist. watched: directories that
 * must not contain it, ended by NULL. */
int quarantine_open(int root, const char *volumes, const char *trash, const char *const *watched,
                    struct quarantine *ret_quarantine, struct error *error);
void quarantine_done(struct quarantine *quarantine);

struct quarantine_item {
    const char *key;
    const char *file; /* NULL: the directory itself */
    const char *name; /* in the trash */
    const char *fingerprint;
};

/* Outcomes of the others. */
enum {
    QUARANTINE_DONE,
    QUARANTINE_ABSENT, /* there is nothing to move */
    QUARANTINE_TAKEN,  /* something newer is in its place */
};

/* Moves the item into the trash. DONE, ABSENT, -errno. */
int quarantine_take(const struct quarantine *quarantine, const struct quarantine_item *item);

struct quarantine_state {
    bool in_trash;
    bool unchanged; /* in the trash, with the item's fingerprint */
    bool in_place;  /* something exists in the place that it was taken from */
};

/* Finds out where the item is. 0, or -errno: unknown. */
int quarantine_observe(const struct quarantine *quarantine, const struct quarantine_item *item,
                       struct quarantine_state *ret_state);

/* Moves the item back. DONE, TAKEN (for a file also: its directory is gone), ABSENT, -errno. */
int quarantine_put_back(const struct quarantine *quarantine, const struct quarantine_item *item);

/* Deletes the item in the trash: metadata only, regular files of one directory (lib/directory.h).
 * DONE, -errno. */
int quarantine_delete(const struct quarantine *quarantine, const struct quarantine_item *item,
                      struct error *error);

/* Removes what an interrupted move left behind, which can only be an empty directory. */
void quarantine_tidy(const struct quarantine *quarantine, const struct quarantine_item *item);
