/* SPDX-License-Identifier: Apache-2.0 */
/* bundles.h - the OCI bundles of a sandbox's containers.
 *
 * Engines keep the bundles of all containers beside each other, PARENT/CONTAINER-ID[/REST]; whose
 * container it is stands only inside, in an annotation; without one it is a sandbox by itself. What
 * was found there is remembered by container id, which is never used twice, so each bundle is read
 * through once, and later only those of the sandbox that is asked for. What one question costs is
 * bounded in files, bytes and time: past that it is to be asked again, once others had their turn.
 */
#pragma once

#include <limits.h>

#include "observe/bundle.h"

enum { BUNDLES_PARENTS = 8, BUNDLES_ID_BYTES = 129 };

struct bundles;

int bundles_new(struct bundles **ret_bundles);
struct bundles *bundles_free(struct bundles *bundles);

/* Where the bundle of `id` stands among its like. false: its path does not name it. */
struct bundles_place {
    char parent[PATH_MAX];
    char rest[PATH_MAX]; /* "" or "/REST" */
};
int bundles_place_of(const char *bundle, const char *id, struct bundles_place *ret_place);

/* The bundle is borrowed. Returning -errno ends the walk and is what it returns. */
typedef int bundles_callback(void *userdata, const char *container_id, struct bundle *bundle);

enum bundles_outcome {
    BUNDLES_ALL,
    BUNDLES_UNFINISHED, /* the callback has had none of them: ask again soon */
};

/* Every container whose annotation, or else whose own id, names this sandbox. A bundle that does
 * not read well is passed over. An enum bundles_outcome or -errno. */
int bundles_each(struct bundles *bundles, int root, const struct bundles_place *place,
                 const char *sandbox_id, bundles_callback *callback, void *userdata);

enum bundles_owner {
    BUNDLES_OWNER_KNOWN,
    BUNDLES_CONTAINER_GONE,   /* there is no bundle: it is whose it last was */
    BUNDLES_OWNER_MAY_CHANGE, /* it can't be read yet, or has only just been made: ask again soon */
};

/* Whose container it is: "" nobody's, or not said yet. An enum bundles_owner or -errno. */
int bundles_owner(struct bundles *bundles, int root, const char *parent, const char *container_id,
                  char ret_sandbox_id[static BUNDLES_ID_BYTES]);
