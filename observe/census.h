/* SPDX-License-Identifier: Apache-2.0 */
/* census.h - finds out which sandboxes still have a process, by checking every process of the node.
 *
 * A process belongs to a sandbox if its arguments or its cgroup's name contain the sandbox's id, or
 * the first 32 characters of it (Firecracker gets no more). That finds VMMs, shims, virtiofsd, and
 * anything else that names the sandbox: a false match is safe, a missed process is not.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct census;

int census_new(struct census **ret_census);
struct census *census_free(struct census *census);

/* Adds a sandbox to the question; before the first step. */
int census_ask(struct census *census, const char *sandbox_id);

/* Checks some more processes. An enum progress_outcome; -errno: the result is unknown, begin
 * anew. */
int census_step(struct census *census);

/* After the last step. true also for a sandbox that was not asked for, as its state is unknown. */
bool census_has_process(const struct census *census, const char *sandbox_id);
/* One of its processes, for messages; 0: none is known by its arguments. */
pid_t census_get_process(const struct census *census, const char *sandbox_id);
bool census_has_cgroup(const struct census *census, const char *sandbox_id);

/* When the running kubelet was started, CLOCK_BOOTTIME; 0: none was found. */
uint64_t census_kubelet_start(const struct census *census);

/* Whether all processes of the host are visible. */
bool census_sees_host(void);
