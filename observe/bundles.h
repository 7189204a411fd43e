/* SPDX-License-Identifier: Apache-2.0 */
/* bundles.h - the OCI bundles of a sandbox's containers.
 *
 * Engines keep the bundles of all containers in one directory, PARENT/CONTAINER-ID[/REST]. The
 * sandbox of a container is named by an annotation inside its bundle, and by containerd's sandbox
 * API in the file `sandbox` beside it; a container with neither is a sandbox by itself. Results are
 * remembered by container id, which is never reused, so each bundle is read once, and later only
 * the bundles of the requested sandbox are read again. The cost of one call is bounded in files,
 * bytes and time; a call that exceeds a bound must be repeated after other work has run.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "observe/bundle.h"
#include "observe/observe.h"

enum { BUNDLES_PARENTS = 8, BUNDLES_ID_BYTES = 129 };

struct bundles;

/* The state directories of containerd's plugins. */
#define BUNDLES_TASKS       "io.containerd.runtime.v2.task"
#define BUNDLES_CONTROLLERS "io.containerd.sandbox.controller.v1."

/* Puts another state directory in the place of the first one whose name begins with `from`. Whether
 * there is one, and the path fits. */
bool bundles_swap(const char *path, const char *from, const char *to,
                  char ret_path[static PATH_MAX]);

int bundles_new(struct bundles **ret_bundles);
struct bundles *bundles_free(struct bundles *bundles);

/* Where the bundles of the sandbox `id` are, told from the directory that its shim works in. */
struct bundles_place {
    char own[PATH_MAX]; /* the shim's directory */
    char parent[PATH_MAX];
    char rest[PATH_MAX]; /* "" or "/REST" */
    bool is_apart;       /* the shim's directory is not among the bundles, and is none */
};

/* 0; -ENOENT: the path does not contain the id; -ENAMETOOLONG. */
int bundles_place_of(const char *bundle, const char *id, struct bundles_place *ret_place);

/* The bundle is borrowed. A return value of -errno ends the walk and is returned. */
typedef int bundles_callback(void *userdata, const char *container_id, struct bundle *bundle);

enum bundles_outcome {
    BUNDLES_ALL,
    BUNDLES_UNFINISHED, /* the callback has been given none yet: call again soon */
    BUNDLES_CUT,        /* the callback has been given what is read; there is more than that */
};

/* Calls back for every container whose annotation, or else its file `sandbox`, or else its own id
 * names this sandbox. A bundle that cannot be read is skipped; ret_refused, which may be NULL, has
 * the first one that is, or may be, this sandbox's: an enum file_text, the file, and what is wrong
 * with it; no text: none. An enum bundles_outcome or -errno. */
int bundles_each(struct bundles *bundles, int root, const struct bundles_place *place,
                 const char *sandbox_id, bundles_callback *callback, void *userdata,
                 struct error *ret_refused);

enum bundles_owner {
    BUNDLES_OWNER_KNOWN,
    BUNDLES_CONTAINER_GONE,   /* the bundle does not exist; the sandbox is its last known one */
    BUNDLES_OWNER_MAY_CHANGE, /* not readable yet, or made just now: call again soon */
};

/* The sandbox of the container: "" none, or not known yet. An enum bundles_owner or -errno. */
int bundles_owner(struct bundles *bundles, int root, const char *parent, const char *container_id,
                  char ret_sandbox_id[static BUNDLES_ID_BYTES]);

/* ---- bundle find ---------------------------------------------------------------------------- */

/* Finds the bundle of a sandbox. */

/* Where the bundles of the sandbox's containers are, by its shim's working directory, or its VMM's
 * (vmm_pid 0: not asked), or by a directory of its own below one of paths.bundles or beside it.
 * `own` is "" if there is none; then the sandbox's problem has the reason. 0, OBSERVED_UNFINISHED
 * or -errno. */
int bundle_find(const struct observe_sandbox_paths *paths, const char *sandbox_id, pid_t vmm_pid,
                struct observed_sandbox *sandbox, struct bundles_place *ret_place);
