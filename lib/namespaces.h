/* SPDX-License-Identifier: Apache-2.0 */
/* namespaces.h - whether this process sees the node, or only a part of it.
 *
 * The kernel's first namespaces have fixed inodes (include/linux/proc_ns.h).
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

/* /proc shows all processes of the node: this is its pid namespace, and /proc belongs to it. */
bool namespaces_show_all_processes(void);

/* Whether this is the first user namespace: it receives the kernel's events, and its root may
 * inspect every process. */
bool namespaces_user_is_first(void);

/* Whether process 1 has this very file at the path, whatever mounts this process has. False also if
 * the root of process 1 cannot be reached (CAP_SYS_PTRACE). */
bool namespaces_first_has(const char *path, const struct stat *file);
