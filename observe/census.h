/* SPDX-License-Identifier: Apache-2.0 */
/* census.h - which sandboxes still have a process, by looking at every process of the node.
 *
 * A process is a sandbox's if its arguments or its cgroup's name hold the sandbox's id, or the
 * first 32 characters of it (Firecracker is told no more). That finds VMMs, shims, virtiofsd, and
 * anything else that is about the sandbox: rather one too many than one too few.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct census;

int census_new(struct census **ret_census);
struct census *census_free(struct census *census);

/* Asks for a sandbox; before the first step. */
int census_ask(struct census *census, const char *sandbox_id);

/* Looks at some processes more. An enum progress_outcome; -errno: nothing is known, begin anew. */
int census_step(struct census *census);

/* After the last step. Not asked for: true, for nothing is known of it. */
bool census_has_process(const struct census *census, const char *sandbox_id);
/* One of them, to be told to people; 0: none is known by its arguments. */
pid_t census_get_process(const struct census *census, const char *sandbox_id);
bool census_has_cgroup(const struct census *census, const char *sandbox_id);

/* When the kubelet that runs now was started, CLOCK_BOOTTIME; 0: none was seen. */
uint64_t census_kubelet_start(const struct census *census);

/* Whether the processes that are seen are all of the host's. */
bool census_sees_host(void);
