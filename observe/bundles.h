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
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/json.h"
#include "lib/result.h"
#include "observe/observe.h"

/* ---- bundle --------------------------------------------------------------------------------- */

/* Config.json of an OCI bundle, text in, facts out; no I/O.
 *
 * The format is that of opencontainers/runtime-spec/config.md, of which only this is read:
 *
 *   mounts[]{source, destination, type}
 *   linux.devices[]{type, major, minor}
 *   annotations, of containerd: io.kubernetes.cri.sandbox-{id, namespace, name, uid}
 *                of CRI-O:      io.kubernetes.cri-o.SandboxID,
 *                               io.kubernetes.pod.{namespace, name, uid}
 *                of the pod:    io.katacontainers.volume.confidential, resize.grow_annotation
 *
 * The rest, of which an application's variables are the most, is only checked to be JSON.
 *
 * Without CRI (ctr, nerdctl) no annotation names a sandbox: the container is a sandbox by itself,
 * and its id, which is the name of the bundle's directory, is the sandbox's id (bundles.c).
 */

enum { BUNDLE_MOUNTS = 1024, BUNDLE_DEVICES = 16384 };

struct bundle_mount {
    char *source;
    char *destination;
};

struct bundle {
    char *sandbox_id;                         /* NULL: not given */
    char *pod_namespace, *pod_name, *pod_uid; /* NULL unknown */
    unsigned mounts;
    struct bundle_mount *mount; /* mounts of a host path that a runtime may treat as a volume */
    unsigned devices;
    dev_t *device;           /* block devices: of a privileged container, all of the node */
    bool is_confidential;    /* the pod has fixed the size of its devices */
    bool grows_file_systems; /* the pod wants file systems on its raw disks to be grown */
    size_t bytes;            /* what all of this takes in memory */
    int64_t written_ns;      /* config.json's time, by bundles.c */
};

/* grow_annotation: the one by which a pod wants that; "" none. An enum file_text or -ENOMEM. A
 * member of an unexpected type counts as unknown. */
int bundle_parse(const char *text, size_t length, const char *grow_annotation,
                 struct bundle *ret_bundle, struct error *error);
void bundle_done(struct bundle *bundle);

enum { BUNDLES_PARENTS = 8 };

struct bundles;
struct observe_sandbox_paths;
struct observed_sandbox;

/* The state directories of containerd's plugins. */
#define BUNDLES_TASKS       "io.containerd.runtime.v2.task"
#define BUNDLES_CONTROLLERS "io.containerd.sandbox.controller.v1."

/* Puts another state directory in the place of the first one whose name begins with `from`. Whether
 * there is one, and the path fits. */
bool bundles_swap(const char *path, const char *from, const char *to,
                  char ret_path[static PATH_MAX]);

/* grow_annotation: as for bundle_parse(), borrowed. */
int bundles_new(const char *grow_annotation, struct bundles **ret_bundles);
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

/* ---- bundle find ---------------------------------------------------------------------------- */

/* Where the bundles of the sandbox's containers are, by its shim's working directory, or its VMM's
 * (vmm_pid 0: not asked), or by a directory of its own below one of paths.bundles or beside it.
 * `own` is "" if there is none; then the sandbox's problem has the reason. 0, OBSERVED_UNFINISHED
 * or -errno. */
int bundle_find(const struct observe_sandbox_paths *paths, const char *sandbox_id, pid_t vmm_pid,
                struct observed_sandbox *sandbox, struct bundles_place *ret_place);
