/* SPDX-License-Identifier: Apache-2.0 */
/* bundle.h - config.json of an OCI bundle, text in, facts out; no I/O.
 *
 * The format is that of opencontainers/runtime-spec/config.md, of which only this is read:
 *
 *   mounts[]{source, destination, type}
 *   annotations, of containerd: io.kubernetes.cri.{sandbox-id, sandbox-namespace, sandbox-name}
 *                of CRI-O:      io.kubernetes.cri-o.SandboxID, io.kubernetes.pod.{namespace, name}
 *
 * The rest, of which an application's variables are the most, is only checked to be JSON.
 *
 * Without CRI (ctr, nerdctl) no annotation names a sandbox: the container is a sandbox by itself,
 * and its id, which is the name of the bundle's directory, is the sandbox's id (bundles.c).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/json.h"
#include "lib/result.h"

enum { BUNDLE_MOUNTS = 1024 };

struct bundle_mount {
    char *source;
    char *destination;
};

struct bundle {
    char *sandbox_id;               /* NULL: not given */
    char *pod_namespace, *pod_name; /* NULL unknown */
    unsigned mounts;
    struct bundle_mount *mount; /* mounts of a host path that a runtime may treat as a volume */
    size_t bytes;               /* what all of this takes in memory */
    int64_t written_ns;         /* config.json's time, by bundles.c */
};

/* An enum file_text or -ENOMEM. A member of an unexpected type counts as unknown. */
int bundle_parse(const char *text, size_t length, struct bundle *ret_bundle, struct error *error);
void bundle_done(struct bundle *bundle);
