/* SPDX-License-Identifier: Apache-2.0 */
/* claims.h - the volumes that a sandbox's containers mount, from their bundles. */
#pragma once

#include "observe/bundles.h"
#include "observe/observe.h"

/* Fills claims, pod and bundles of the sandbox, and its problem if it may have volumes that are not
 * seen. passthrough: derive guest paths by the scheme of
 * Kata's Rust runtime. OBSERVED, OBSERVED_UNFINISHED or -errno. */
int claims_read(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                const struct bundles_place *place, bool passthrough,
                struct observed_sandbox *sandbox);

/* Calls back with every place in a guest of Kata's Rust runtime that the path may have, where its
 * records do not tell which one it is. callback: 0 continues. 0, -errno (-EOVERFLOW: it
 * has more containers or mounts than are read; -EBADMSG: a bundle cannot be read; -EBUSY: ask
 * again) or the callback's result. */
typedef int claims_place(void *userdata, const char *guest_path);
int claims_each_place(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                      pid_t vmm_pid, const char *path, claims_place *callback, void *userdata);

/* How many containers the sandbox has beside its own, by their bundles: an engine makes a bundle
 * before the runtime makes the container, and takes it away when the container has been deleted.
 * OBSERVED, OBSERVED_ABSENT (no bundle of the sandbox is found), OBSERVED_UNFINISHED or -errno. */
int claims_count_containers(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                            unsigned *ret_count);

/* If no bundle is found: claims what the runtime recorded as shared directories. 0 or -ENOMEM. */
int claims_from_records(struct observed_sandbox *sandbox);
