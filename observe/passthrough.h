/* SPDX-License-Identifier: Apache-2.0 */
/* passthrough.h - where a guest of Kata's Rust runtime has a volume, seen from the host.
 *
 * The guest path of a direct volume consists of the device's id, a random part and the last part of
 * the container's destination (src/runtime-rs, resource/src/volume/utils.rs):
 *
 *     /run/kata-containers/shared/containers/passthrough/DEVICE10-RANDOM8-BASENAME
 *
 * It is not recorded anywhere, but the shim makes a directory of that name on the host:
 *
 *     /run/kata-containers/shared/sandboxes/SANDBOX/rw/passthrough/
 *
 * The same directory has files shared with the guest, whose names have the same form, with the
 * beginning of a container's id as the first part.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/directory.h"

/* The names of the form above. If the directory does not exist: no names. 0 or -errno. */
int passthrough_read(int root, const char *sandbox_id, struct directory_names *ret_names);

/* Whether a name of the form above is that of a volume whose mount destination ends in BASENAME. */
bool passthrough_is_candidate(const char *name, const char *basename,
                              bool (*is_container)(void *userdata, const char *part),
                              void *userdata);

/* The oldest name that ends in BASENAME and was made at since_ns or later: the directories of
 * containers that have ended remain. NULL if there is none, or if such names belong to several
 * devices. is_container: whether the first part belongs to a container. */
const char *passthrough_find(int root, const char *sandbox_id, const struct directory_names *names,
                             const char *basename, int64_t since_ns,
                             bool (*is_container)(void *userdata, const char *part),
                             void *userdata);

/* Whether the container with this beginning of its id has a file or directory of the node in place
 * of the mount whose destination ends in BASENAME. */
bool passthrough_is_shared(const struct directory_names *names, const char *container,
                           const char *basename);

/* The guest path for a name. 0 or -ENOMEM. */
int passthrough_guest_path(const char *name, char **ret_path);
