/* SPDX-License-Identifier: Apache-2.0 */
/* bundle.h - config.json of an OCI bundle, text in, facts out; no I/O.
 *
 * As in opencontainers/runtime-spec/config.md, of which only this is read:
 *
 *   mounts[]{source, destination, type}
 *   annotations, of containerd: io.kubernetes.cri.{sandbox-id, sandbox-namespace, sandbox-name}
 *                of CRI-O:      io.kubernetes.cri-o.SandboxID, io.kubernetes.pod.{namespace, name}
 *
 * Without CRI (ctr, nerdctl) nothing names a sandbox: the container is one by itself, and its id,
 * which is the bundle's directory, is the sandbox's (bundles.c).
 */
#pragma once

#include <stddef.h>

#include "lib/result.h"
#include "observe/json_cut.h"

enum { BUNDLE_MOUNTS = 1024 };

struct bundle_mount {
    char *source;
    char *destination;
};

struct bundle {
    char *sandbox_id;               /* NULL: not said */
    char *pod_namespace, *pod_name; /* NULL unknown */
    unsigned mounts;
    struct bundle_mount *mount; /* those of a host path that a runtime may take for a volume */
};

/* An enum file_text or -ENOMEM. Whatever is not of the expected type counts as unknown. */
int bundle_parse(const char *text, size_t length, struct bundle *ret_bundle, struct error *error);
void bundle_done(struct bundle *bundle);
