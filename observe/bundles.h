/* SPDX-License-Identifier: Apache-2.0 */
/* bundles.h - the OCI bundles of a sandbox's containers.
 *
 * Engines keep the bundles of all containers in one directory, PARENT/CONTAINER-ID[/REST]. The
 * sandbox of a container is named only by an annotation inside its bundle; a container without one
 * is a sandbox by itself. Results are remembered by container id, which is never reused, so each
 * bundle is read once, and later only the bundles of the requested sandbox are read again. The cost
 * of one call is bounded in files, bytes and time; a call that exceeds a bound must be repeated
 * after other work has run.
 */
#pragma once

#include <limits.h>

#include "observe/bundle.h"

enum { BUNDLES_PARENTS = 8, BUNDLES_ID_BYTES = 129 };

struct bundles;

int bundles_new(struct bundles **ret_bundles);
struct bundles *bundles_free(struct bundles *bundles);

/* Where the bundle of `id` is among the others. false: its path does not contain the id. */
struct bundles_place {
    char parent[PATH_MAX];
    char rest[PATH_MAX]; /* "" or "/REST" */
};
int bundles_place_of(const char *bundle, const char *id, struct bundles_place *ret_place);

/* The bundle is borrowed. A return value of -errno ends the walk and is returned. */
typedef int bundles_callback(void *userdata, const char *container_id, struct bundle *bundle);

enum bundles_outcome {
    BUNDLES_ALL,
    BUNDLES_UNFINISHED, /* the callback has been given none yet: call again soon */
    BUNDLES_CUT,        /* the callback has been given what is read; there is more than that */
};

/* Calls back for every container whose annotation, or else whose own id, names this sandbox. A
 * bundle that cannot be parsed is skipped. An enum bundles_outcome or -errno. */
int bundles_each(struct bundles *bundles, int root, const struct bundles_place *place,
                 const char *sandbox_id, bundles_callback *callback, void *userdata);

enum bundles_owner {
    BUNDLES_OWNER_KNOWN,
    BUNDLES_CONTAINER_GONE,   /* the bundle does not exist; the sandbox is its last known one */
    BUNDLES_OWNER_MAY_CHANGE, /* not readable yet, or made just now: call again soon */
};

/* The sandbox of the container: "" none, or not known yet. An enum bundles_owner or -errno. */
int bundles_owner(struct bundles *bundles, int root, const char *parent, const char *container_id,
                  char ret_sandbox_id[static BUNDLES_ID_BYTES]);
