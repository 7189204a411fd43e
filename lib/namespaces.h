/* SPDX-License-Identifier: Apache-2.0 */
/* namespaces.h - whether this process sees the node, or only a part of it.
 *
 * The kernel's first namespaces have fixed inodes (include/linux/proc_ns.h).
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

/* The processes below /proc are all of the node's: its pid namespace, shown by a /proc of it. */
bool namespaces_show_all_processes(void);

/* The user namespace that the kernel's events come to, and whose root may look at every process. */
bool namespaces_user_is_first(void);

/* The first process has this very file at the path, whatever mounts we have ourselves. False also
 * where its root is out of reach (CAP_SYS_PTRACE). */
bool namespaces_first_has(const char *path, const struct stat *file);
