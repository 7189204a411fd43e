/* SPDX-License-Identifier: Apache-2.0 */
/* passthrough.h - where a guest of Kata's Rust runtime has a volume, from the host's side.
 *
 * The guest path of a direct volume is made of the device's id, a random part and the last part of
 * the container's destination (src/runtime-rs, resource/src/volume/utils.rs):
 *
 *     /run/kata-containers/shared/containers/passthrough/DEVICE10-RANDOM8-BASENAME
 *
 * and written down nowhere; but the shim makes a directory of that name on the host:
 *
 *     /run/kata-containers/shared/sandboxes/SANDBOX/rw/passthrough/
 *
 * Beside it stand files shared with the guest, alike in form, with the beginning of a container's
 * id in the first place.
 */
#pragma once

#include <stdbool.h>

#include "lib/directory.h"

/* Those of the form above. No such directory: no names. 0 or -errno. */
int passthrough_read(int root, const char *sandbox_id, struct directory_names *ret_names);

/* Whether a name of the form above is a volume's, mounted at a destination that ends in BASENAME.
 */
bool passthrough_is_candidate(const char *name, const char *basename,
                              bool (*is_container)(void *userdata, const char *part),
                              void *userdata);

/* The names of one device that end in BASENAME: the first of them. NULL if there is none, or if
 * there are several devices'. is_container: whether the first part belongs to a container. */
const char *passthrough_find(const struct directory_names *names, const char *basename,
                             bool (*is_container)(void *userdata, const char *part),
                             void *userdata);

/* Whether the container, of whose id these are the first characters, has a file or directory of the
 * node in the place of the mount whose destination ends in BASENAME. */
bool passthrough_is_shared(const struct directory_names *names, const char *container,
                           const char *basename);

/* The guest's path of a name. 0 or -ENOMEM. */
int passthrough_guest_path(const char *name, char **ret_path);
