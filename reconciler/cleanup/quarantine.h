/* SPDX-License-Identifier: Apache-2.0 */
/* quarantine.h - metadata moved out of a watched directory, and back, losing no concurrent write.
 *
 * The trash is a directory on the same mount, outside of everything that is watched:
 *
 *   TRASH/NAME/KEY          a whole metadata directory, under its own name
 *   TRASH/NAME/SANDBOX_ID   or one file of it
 *
 * NAME is never used twice. Nothing else is ever made: no name of ours appears in a watched
 * directory, for Kata takes the first unknown name there for a sandbox's id. Every function may be
 * repeated after being killed anywhere; none knows of the store.
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
    QUARANTINE_UNFIT, /* the trash will not do; the error says why, and which key to change */
};

/* Opens both, below root; the trash is made (0700) if it is not there. watched: directories that it
 * must not lie in, NULL after the last. */
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
    QUARANTINE_ABSENT, /* there is nothing to be moved */
    QUARANTINE_TAKEN,  /* there is something in its place: that is newer */
};

/* Into the trash. DONE, ABSENT, -errno. */
int quarantine_take(const struct quarantine *quarantine, const struct quarantine_item *item);

struct quarantine_state {
    bool in_trash;
    bool unchanged; /* in the trash, with the item's fingerprint */
    bool in_place;  /* something stands where it was taken from */
};

/* Where it is. 0 or -errno: nothing was learned. */
int quarantine_observe(const struct quarantine *quarantine, const struct quarantine_item *item,
                       struct quarantine_state *ret_state);

/* Back to where it was. DONE, TAKEN (for a file: its directory is gone), ABSENT, -errno. */
int quarantine_put_back(const struct quarantine *quarantine, const struct quarantine_item *item);

/* Deletes what lies in the trash: metadata only, regular files of one directory (lib/removal.h).
 * DONE, -errno. */
int quarantine_delete(const struct quarantine *quarantine, const struct quarantine_item *item,
                      struct error *error);

/* Clears away what a move that was cut short left behind: nothing but an empty directory. */
void quarantine_tidy(const struct quarantine *quarantine, const struct quarantine_item *item);
