/* stage_files.h - metadata directories put in place, and taken away, as a whole.
 *
 * A runtime that reads at any moment finds all of it or nothing, and no name of ours: what is not
 * whole yet, and what is being removed, lies in a working directory outside of the watched root, on
 * the same file system.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/result.h"

struct stage_place {
    int root;             /* O_PATH of --root */
    const char *volumes;  /* the watched root; made (0700) where it is missing */
    const char *workshop; /* the working directory, made likewise; nobody else's */
};

/* Outcomes. */
enum {
    STAGE_DONE,
    STAGE_UNCHANGED,  /* it was so already */
    STAGE_IN_THE_WAY, /* something else has the name; error says what */
};

/* Puts directory `name` with this mountInfo.json in place. In one that is there already only that
 * file is replaced, for others may have put theirs beside it. STAGE_* or -errno. All is on disk
 * when it returns. */
int stage_files_put(const struct stage_place *place, const char *name, const char *text,
                    size_t length, struct error *error);

/* Takes the directory, with whatever is in it, out of the watched root. STAGE_DONE, STAGE_UNCHANGED
 * (there was none) or -errno. It is removed by stage_files_sweep(), or before the next put. */
int stage_files_take(const struct stage_place *place, const char *name, struct error *error);

/* Removes what lies in the working directory. 0 or -errno. */
int stage_files_sweep(const struct stage_place *place);
