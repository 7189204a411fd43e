/* SPDX-License-Identifier: Apache-2.0 */
/* stage_files.h - metadata directories put in place, and taken away, as a whole.
 *
 * A runtime that reads at any moment finds all of it or nothing, and no temporary names:
 * directories that are incomplete or being removed are in a working directory outside the watched
 * root, on the same file system.
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

/* What is to stand in a directory. */
struct stage_content {
    const char *text; /* of mountInfo.json */
    size_t length;
    const char *beside; /* an empty file's name; NULL none */
};

/* Puts directory `name` with this content in place. In one that is there already only these files
 * are replaced or made, because others may have put theirs beside them. STAGE_* or -errno. What is
 * in it is on disk when it returns; that it is there, after stage_files_sync(). */
int stage_files_put(const struct stage_place *place, const char *name,
                    const struct stage_content *content, struct error *error);

/* Takes the directory, with the files in it, out of the watched root. STAGE_DONE, STAGE_UNCHANGED
 * (there was none) or -errno: also where something in it is not for crustd to remove
 * (lib/removal.h), and then all of it stays. After stage_files_sync() it stays away; then
 * stage_files_sweep() removes it. */
int stage_files_take(const struct stage_place *place, const char *name, struct error *error);

/* Syncs everything that was put and taken so far. 0 or -errno. */
int stage_files_sync(const struct stage_place *place);

/* Removes what lies in the working directory, at start also what a daemon that was killed has left.
 * 0 (also if there is no such directory) or -errno. */
int stage_files_sweep(const struct stage_place *place, struct error *error);
